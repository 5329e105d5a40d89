// Products of rows of activations with panels of weights in which one step along K is four bytes
// of each output (BF16 pairs, INT8 quads): written once for both and for all sets with vectors.
//
// A tile is some rows times some vectors of outputs, its sums in registers for all of K:
//
//            panel(s): step 0 | v0 v1 | step 1 | v0 v1 | ...
//   row 0    s00 s01            the four bytes of a row's step are the same for all lanes
//   row 1    s10 s11
//
// Few rows take several panels at once, so that enough sums are in flight. A sum's order along K
// is the same in every tile: that is why rows may be cut in any way (I4). While a group of panels
// is multiplied, the next one is fetched into the second cache.
#pragma once

#include <algorithm>
#include <utility>

#include "kernels/dot.h"
#include "kernels/epilogue.h"

namespace tercet::TERCET_ISA {

inline constexpr int kPanelVectors = int(kPanel) / kWidth;
inline constexpr int64_t kStepBytes = kPanel * 4;

#if defined(__AVX512F__)
inline constexpr int kTileRows = 12;  // x 2 vectors: 24 of 32 registers
#else
inline constexpr int kTileRows = 4;   // x 2 vectors, each with parts of weights: 16 registers
#endif

// Activations of so many bytes stay in the second cache beside panels.
inline constexpr int64_t kBlockBytes = 384 << 10;

struct Tile {
  const uint8_t* weight;  // first vector of the first step
  int64_t panel_bytes;
  const uint8_t* x;
  int64_t x_stride;
  int64_t steps;
  const uint8_t* ahead;   // what is to be fetched meanwhile,
  int64_t ahead_bytes;    // so many bytes in each step
  uint8_t* sums;          // [rows][pitch]
  int64_t pitch;          // bytes
};

// The sums of a tile in registers, written to tile.sums at the end.
template <typename Kind, int kVectors, int kRows>
void multiply(const Tile& tile) {
  using Sum = typename Kind::Sum;
  constexpr int kBases = (kRows + 3) / 4;
  Sum sums[kRows][kVectors] = {};
  const uint8_t *weight = tile.weight, *ahead = tile.ahead;
  const int64_t stride = tile.x_stride;
  const uint8_t* x[kBases];
  for (int base = 0; base < kBases; ++base) x[base] = tile.x + base * 4 * stride;
  for (int64_t step = tile.steps; step > 0; --step, weight += kStepBytes) {
    Words weights[kVectors];
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      weights[v] = load_words(weight + v / kPanelVectors * tile.panel_bytes +
                              v % kPanelVectors * kWidth * 4);
      if (v * kWidth % kLanes == 0) __builtin_prefetch(ahead + v * kWidth * 4, 0, 2);
    }
    ahead += tile.ahead_bytes;
#pragma GCC unroll 16
    for (int row = 0; row < kRows; ++row) {
      const Words word = splat_word(x[row / 4] + row % 4 * stride);
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v)
        sums[row][v] = Kind::dot(sums[row][v], weights[v], word);
    }
    // Four rows share a pointer, and the compiler is kept from making one for each.
#pragma GCC unroll 4
    for (int base = 0; base < kBases; ++base) {
      x[base] += 4;
      __asm__("" : "+r"(x[base]));
    }
  }
#pragma GCC unroll 16
  for (int row = 0; row < kRows; ++row)
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v)
      store(tile.sums + row * tile.pitch + v * kWidth * 4, sums[row][v]);
}

using Multiply = void (*)(const Tile&);

// multiply for 1, 2, ... rows.
template <typename Kind, int kVectors, int... kRows>
inline Multiply choose(int64_t rows, std::integer_sequence<int, kRows...>) {
  static constexpr Multiply table[] = {multiply<Kind, kVectors, kRows + 1>...};
  return table[rows - 1];
}

// How a call is tiled: vectors of a tile, and the panels that a group of tiles spans.
struct Tiling {
  int vectors, panels;
};

inline Tiling tiling(int64_t rows, int64_t panels) {
  if constexpr (kWidth == 16) {
    if (rows <= 2 && panels >= 4) return {8, 4};
    if (rows <= 6 && panels >= 2) return {4, 2};
    return {2, 1};
  }
  return {rows <= 2 ? 4 : 2, 1};
}

template <typename Kind>
inline Multiply multiply_of(int vectors, int64_t rows) {
  if (vectors == 8) return choose<Kind, 8>(rows, std::make_integer_sequence<int, 2>{});
  constexpr int kMiddle = kWidth == 16 ? 6 : 2;
  if (vectors == 4) return choose<Kind, 4>(rows, std::make_integer_sequence<int, kMiddle>{});
  return choose<Kind, 2>(rows, std::make_integer_sequence<int, kTileRows>{});
}

// Multiply rows with a group of panels and finish them. Rows are cut into tiles of nearly equal
// height, so that none is left with few sums in flight. `fetch`: there is a group after this one.
template <typename Kind, Epilogue kind>
inline void multiply_group(const Linear& linear, int64_t panel, Tiling tiling, Range rows,
                           bool fetch) {
  alignas(64) uint8_t sums[kTileRows * kStepBytes];
  const int64_t tiles = (rows.size() + kTileRows - 1) / kTileRows;
  const int64_t height = rows.size() / tiles, higher = rows.size() % tiles;
  const int64_t panel_bytes = Kind::panel_bytes(linear.k), group_bytes = tiling.panels * panel_bytes;
  const uint8_t* weight = linear.weight + panel * panel_bytes;
  const int part_bytes = tiling.vectors * kWidth * 4;
  const int64_t parts = tiling.panels * kStepBytes / part_bytes;
  Tile tile = {.weight = weight,
               .panel_bytes = panel_bytes,
               .x = linear.x.row<uint8_t>(rows.begin),
               .x_stride = linear.x.stride,
               .steps = padded_k(linear.k) * Kind::kBytes / 4,
               .ahead = weight + (fetch ? group_bytes : 0),
               .ahead_bytes = fetch ? tiling.panels * kStepBytes / (tiles * parts) : 0,
               .sums = sums,
               .pitch = tiling.panels * kStepBytes};
  int64_t row = rows.begin;
  for (int64_t index = 0; index < tiles; ++index) {
    const int64_t count = height + (index < higher);
    const Multiply run = multiply_of<Kind>(tiling.vectors, count);
    for (int64_t part = 0; part < parts; ++part) {
      tile.weight = weight + part * part_bytes;
      tile.sums = sums + part * part_bytes;
      run(tile);
      tile.ahead += tile.steps * tile.ahead_bytes;
    }
    for (int p = 0; p < tiling.panels; ++p)
      Kind::template finish_tile<kind>(linear, panel + p, {row, row + count}, sums + p * kStepBytes,
                                       tile.pitch);
    row += count;
    tile.x += count * tile.x_stride;
  }
}

template <typename Kind, Epilogue kind>
inline void multiply_panels(const Linear& linear, Range panels, Range rows) {
  const int64_t fitting = kBlockBytes / linear.x.stride / kTileRows * kTileRows;
  const int64_t block = std::max<int64_t>(fitting, 2 * kTileRows);
  for (int64_t row = rows.begin; row < rows.end; row += block) {
    const Range some = {row, std::min(rows.end, row + block)};
    for (int64_t panel = panels.begin; panel < panels.end;) {
      const Tiling tiled = tiling(some.size(), panels.end - panel);
      multiply_group<Kind, kind>(linear, panel, tiled, some, panel + 2 * tiled.panels <= panels.end);
      panel += tiled.panels;
    }
  }
}

}  // namespace tercet::TERCET_ISA
