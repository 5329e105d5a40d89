// y = x W^T with bfloat16 numbers and sums in float32, by one instruction for all row counts: K
// ascends in pairs, each output has one sum (I4).
#include "kernels/all.h"
#include "kernels/panels.h"

namespace tercet::TERCET_ISA {
namespace {

struct Bf16 {
  using Sum = Floats;
  static constexpr int64_t kBytes = 2;

  static int64_t panel_bytes(int64_t k) { return bf16_panel_bytes(k); }

  TERCET_LEAF static Sum dot(Sum sum, Words weights, Words x) { return dot_bf16(sum, weights, x); }

  // Finish rows of one panel from their sums [rows][32].
  template <Epilogue kind>
  TERCET_LEAF static void finish_rows(Linear linear, int64_t panel, Range rows, const uint8_t* sums) {
    for (int64_t row = rows.begin; row < rows.end; ++row, sums += kStepBytes)
      finish<kind>(linear, panel, row, load<f32x16>(sums), load<f32x16>(sums + 64));
  }
};

}  // namespace

void linear_bf16(const Linear& linear, Range panels, Range rows) {
  with_epilogue(linear.epilogue, [&]<Epilogue kind> {
    multiply_panels<Bf16, kind>(linear, panels, rows);
  });
}

}  // namespace tercet::TERCET_ISA
