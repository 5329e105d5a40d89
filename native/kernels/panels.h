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
// is the same in every tile: that is why rows may be cut in any way (I4).
#pragma once

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

struct Tile {
  const uint8_t* weight;  // first vector of the first step
  int64_t panel_bytes;
  const uint8_t* x;
  int64_t x_stride;
  int64_t steps;
  uint8_t* sums;          // [rows][pitch] words
  int64_t pitch;
};

template <typename Kind, int kVectors, int kRows>
void multiply(const Tile& tile) {
  using Sum = typename Kind::Sum;
  Sum sums[kRows][kVectors] = {};
  const uint8_t* weight = tile.weight;
  const uint8_t* x = tile.x;
  for (int64_t step = 0; step < tile.steps; ++step, weight += kStepBytes, x += 4) {
    Words weights[kVectors];
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v)
      weights[v] = load_words(weight + v / kPanelVectors * tile.panel_bytes +
                              v % kPanelVectors * kWidth * 4);
#pragma GCC unroll 16
    for (int row = 0; row < kRows; ++row) {
      const Words word = splat_word(x + row * tile.x_stride);
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v)
        sums[row][v] = Kind::dot(sums[row][v], weights[v], word);
    }
  }
#pragma GCC unroll 16
  for (int row = 0; row < kRows; ++row)
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v)
      store(tile.sums + (row * tile.pitch + v * kWidth) * 4, sums[row][v]);
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

// Multiply `count` rows (at most kTileRows) with a group of panels and finish them.
template <typename Kind, Epilogue kind>
inline void group_of_panels(const Linear& linear, int64_t panel, Tiling tiling, int64_t row,
                            int64_t count) {
  alignas(64) uint8_t sums[kTileRows * kPanel * 4];
  const int64_t panel_bytes = Kind::panel_bytes(linear.k);
  Tile tile = {
      .weight = linear.weight + panel * panel_bytes,
      .panel_bytes = panel_bytes,
      .x = linear.x.row<uint8_t>(row),
      .x_stride = linear.x.stride,
      .steps = padded_k(linear.k) * Kind::kBytes / 4,
      .sums = sums,
      .pitch = tiling.panels * kPanel,
  };
  const Multiply run = multiply_of<Kind>(tiling.vectors, count);
  const int bytes = tiling.vectors * kWidth * 4;
  for (int part = 0; part < tiling.panels * kPanel * 4 / bytes; ++part) {
    run(tile);
    tile.weight += bytes, tile.sums += bytes;
  }
  for (int64_t index = 0; index < count; ++index)
    for (int64_t p = 0; p < tiling.panels; ++p)
      Kind::template finish_sums<kind>(linear, panel + p, row + index,
                                       sums + (index * tiling.panels + p) * kStepBytes);
}

// Rows are cut into tiles of nearly equal height, so that none is left with few sums in flight.
template <typename Kind, Epilogue kind>
inline void multiply_panels(const Linear& linear, Range panels, Range rows) {
  const int64_t tiles = (rows.size() + kTileRows - 1) / kTileRows;
  if (tiles <= 0) return;
  const int64_t height = rows.size() / tiles, higher = rows.size() % tiles;
  for (int64_t panel = panels.begin; panel < panels.end;) {
    const Tiling tiled = tiling(height + (higher > 0), panels.end - panel);
    int64_t row = rows.begin;
    for (int64_t tile = 0; tile < tiles; ++tile) {
      const int64_t count = height + (tile < higher);
      group_of_panels<Kind, kind>(linear, panel, tiled, row, count);
      row += count;
    }
    panel += tiled.panels;
  }
}

}  // namespace tercet::TERCET_ISA
