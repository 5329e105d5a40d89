// What is particular to BF16 and to INT8 in the products of panels.h and tile_panels.h.
#pragma once

#include "kernels/dot.h"
#include "kernels/epilogue.h"
#include "kernels/panels.h"

namespace tercet::TERCET_ISA {

// Sums in float32, by one instruction for all row counts.
struct Bf16 {
  using Sum = Floats;
  static constexpr int64_t kBytes = 2;

  static int64_t panel_bytes(int64_t k) { return bf16_panel_bytes(k); }

  TERCET_LEAF static Sum dot(Sum sum, Words weights, Words x) { return dot_bf16(sum, weights, x); }

  template <int c, int a, int b, typename Tiles>
  TERCET_LEAF static void dot_tiles(Tiles& tiles) {
    tiles.template dot_bf16<c, a, b>();
  }

  // Finish rows of one panel from their sums [rows][32].
  template <Epilogue kind>
  TERCET_LEAF static void finish_rows(Linear linear, int64_t panel, Range rows,
                                      const uint8_t* sums) {
    for (int64_t row = rows.begin; row < rows.end; ++row, sums += kStepBytes)
      finish<kind>(linear, panel, row, load<f32x16>(sums), load<f32x16>(sums + 64));
  }
};

// Unsigned weights (w + 128), signed activations of one scale a row. The sum of integers is exact,
// so any instruction may make it; the floating-point part is the same for all:
// float32(sum) * (scale of the row * scale of the output), then the epilogue.
struct Int8 {
  using Sum = Ints;
  static constexpr int64_t kBytes = 1;

  static int64_t panel_bytes(int64_t k) { return int8_panel_bytes(k); }

  TERCET_LEAF static Sum dot(Sum sum, Words weights, Words x) { return dot_u8s8(sum, weights, x); }

  template <int c, int a, int b, typename Tiles>
  TERCET_LEAF static void dot_tiles(Tiles& tiles) {
    tiles.template dot_s8u8<c, a, b>();
  }

  // Finish rows of one panel from their sums [rows][32].
  template <Epilogue kind>
  TERCET_LEAF static void finish_rows(Linear linear, int64_t panel, Range rows,
                                      const uint8_t* sums) {
    const float* scales = reinterpret_cast<const float*>(
        linear.weight + panel * panel_bytes(linear.k) + padded_k(linear.k) * kPanel);
    const f32x16 low_scale = load<f32x16>(scales), high_scale = load<f32x16>(scales + kLanes);
    for (int64_t row = rows.begin; row < rows.end; ++row, sums += kStepBytes) {
      const u32x16 offset = splat(uint32_t(linear.x.sums[row]) * 128u);
      const f32x16 scale = splat(linear.x.scales[row]);
      const u32x16 low = load<u32x16>(sums) - offset, high = load<u32x16>(sums + 64) - offset;
      finish<kind>(linear, panel, row, to_float(i32x16(low)) * (scale * low_scale),
                   to_float(i32x16(high)) * (scale * high_scale));
    }
  }
};

}  // namespace tercet::TERCET_ISA
