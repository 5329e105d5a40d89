// Products of rows of activations with panels of weights in which one step along K is four bytes
// of each output (BF16 pairs, INT8 quads): written once for both and for all sets with vectors.
//
// A tile is some rows times some vectors of a panel's outputs, its sums in registers for all of K:
//
//            panel: step 0 | v0 v1 | step 1 | v0 v1 | ...
//   row 0    s00 s01         the four bytes of a row's step are the same for all lanes
//   row 1    s10 s11
//
// A sum's order along K is the same in every tile: that is why rows may be cut in any way (I4).
// While one panel is multiplied, the next one is fetched.
#pragma once

#include <algorithm>
#include <utility>

#include "kernels/dot.h"
#include "kernels/epilogue.h"

namespace tercet::TERCET_ISA {

inline constexpr int kPanelVectors = int(kPanel) / kWidth;
inline constexpr int64_t kStepBytes = kPanel * 4;

#if defined(__AVX512F__)
inline constexpr int kTileRows = 12;   // x 2 vectors: 24 of 32 registers
inline constexpr int kFewVectors = 2;  // vectors of a tile of one or two rows
#else
inline constexpr int kTileRows = 4;    // x 2 vectors, each with parts of weights: 16 registers
inline constexpr int kFewVectors = 4;
#endif

// Activations of so many bytes stay in the second cache beside panels.
inline constexpr int64_t kBlockBytes = 384 << 10;

// How the next panel is fetched (measured on Zen 4, with pages of 4 KiB and of 2 MiB). Up to six
// rows are bound by memory: the hardware's own fetching does most, and one line in a KiB keeps it
// ahead over the ends of pages. More rows miss too seldom for it, so that every line is asked for;
// and into the first cache where a panel takes so long that this never waits.
enum class Fetch { kSparse, kSecondCache, kFirstCache };

struct Tile {
  const uint8_t* weight;  // first vector of the first step
  const uint8_t* x;
  int64_t x_stride;
  int64_t steps;          // even
  const uint8_t* ahead;   // what is to be fetched meanwhile,
  int64_t ahead_bytes;    // so many bytes in two steps
  uint8_t* sums;          // [rows][kStepBytes]
};

// For two steps, of which `left` are to come with these.
template <Fetch fetch>
TERCET_LEAF void fetch_ahead(const uint8_t* from, int64_t left) {
  if constexpr (fetch == Fetch::kSparse) {
    if (left % 8 == 2) __builtin_prefetch(from, 0, 2);
  } else {
    constexpr int kLevel = fetch == Fetch::kFirstCache ? 3 : 2;
    for (int line = 0; line < 2 * kStepBytes; line += 64)
      __builtin_prefetch(from + line, 0, kLevel);
  }
}

// The sums of a tile in registers, written to tile.sums at the end.
template <typename Kind, int kVectors, Fetch fetch, int kRows>
void multiply_tile(const Tile& tile) {
  using Sum = typename Kind::Sum;
  constexpr int kBases = (kRows + 3) / 4;
  Sum sums[kRows][kVectors] = {};
  const uint8_t *weight = tile.weight, *ahead = tile.ahead;
  const int64_t stride = tile.x_stride;
  const uint8_t* x[kBases];
  for (int base = 0; base < kBases; ++base) x[base] = tile.x + base * 4 * stride;
  const auto step = [&](int64_t index) __attribute__((always_inline)) {
    Words weights[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v)
      weights[v] = load_words(weight + index * kStepBytes + v * kWidth * 4);
#pragma GCC unroll 16
    for (int row = 0; row < kRows; ++row) {
      const Words word = splat_word(x[row / 4] + row % 4 * stride + index * 4);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v)
        sums[row][v] = Kind::dot(sums[row][v], weights[v], word);
    }
  };
  for (int64_t left = tile.steps; left > 0; left -= 2) {
    fetch_ahead<fetch>(ahead, left);
    step(0);
    step(1);
    weight += 2 * kStepBytes;
    ahead += tile.ahead_bytes;
    // Four rows share a pointer, and the compiler is kept from making one for each.
#pragma GCC unroll 4
    for (int base = 0; base < kBases; ++base) {
      x[base] += 8;
      __asm__("" : "+r"(x[base]));
    }
  }
#pragma GCC unroll 16
  for (int row = 0; row < kRows; ++row)
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v)
      store(tile.sums + row * kStepBytes + v * kWidth * 4, sums[row][v]);
}

using Multiply = void (*)(const Tile&);

// multiply_tile for so many rows, out of kFirst, kFirst + 1, ...
template <typename Kind, int kVectors, Fetch fetch, int kFirst, int... kMore>
inline Multiply choose(int64_t rows, std::integer_sequence<int, kMore...>) {
  static constexpr Multiply table[] = {multiply_tile<Kind, kVectors, fetch, kFirst + kMore>...};
  return table[rows - kFirst];
}

// For tiles of so many rows, out of `all` rows of the call.
template <typename Kind>
inline Multiply multiply_of(int64_t rows, int64_t all) {
  constexpr int kSparseRows = std::min(6, kTileRows);
  constexpr int kNear = std::max(1, kTileRows - 4);
  if (all > 16 && rows >= kNear)
    return choose<Kind, 2, Fetch::kFirstCache, kNear>(
        rows, std::make_integer_sequence<int, kTileRows - kNear + 1>{});
  if constexpr (kTileRows > kSparseRows)
    if (rows > kSparseRows)
      return choose<Kind, 2, Fetch::kSecondCache, kSparseRows + 1>(
          rows, std::make_integer_sequence<int, kTileRows - kSparseRows>{});
  if (rows > 2)
    return choose<Kind, 2, Fetch::kSparse, 3>(
        rows, std::make_integer_sequence<int, kSparseRows - 2>{});
  return choose<Kind, kFewVectors, Fetch::kSparse, 1>(rows, std::make_integer_sequence<int, 2>{});
}

// Multiply rows with one panel and finish them. Rows are cut into tiles of nearly equal height, so
// that none is left with few sums in flight. `more`: there is a panel after this one.
template <typename Kind, Epilogue kind>
inline void multiply_panel(const Linear& linear, int64_t panel, Range rows, bool more) {
  alignas(64) uint8_t sums[kTileRows * kStepBytes];
  const int64_t tiles = (rows.size() + kTileRows - 1) / kTileRows;
  const int64_t height = rows.size() / tiles, higher = rows.size() % tiles;
  const int64_t panel_bytes = Kind::panel_bytes(linear.k);
  const uint8_t* weight = linear.weight + panel * panel_bytes;
  Tile tile = {.weight = weight,
               .x = linear.x.row<uint8_t>(rows.begin),
               .x_stride = linear.x.stride,
               .steps = padded_k(linear.k) * Kind::kBytes / 4,
               .ahead = weight + (more ? panel_bytes : 0),
               .ahead_bytes = 0,
               .sums = sums};
  const int64_t ahead_bytes = 2 * kStepBytes / tiles;
  int64_t row = rows.begin;
  for (int64_t index = 0; index < tiles; ++index) {
    const int64_t count = height + (index < higher);
    const int vectors = count <= 2 ? kFewVectors : 2;
    const Multiply run = multiply_of<Kind>(count, rows.size());
    if (more) tile.ahead_bytes = ahead_bytes * vectors / kPanelVectors;
    for (int v = 0; v < kPanelVectors; v += vectors) {
      tile.weight = weight + v * kWidth * 4;
      tile.sums = sums + v * kWidth * 4;
      run(tile);
      tile.ahead += tile.steps / 2 * tile.ahead_bytes;
    }
    Kind::template finish_rows<kind>(linear, panel, {row, row + count}, sums);
    row += count;
    tile.x += count * tile.x_stride;
  }
}

template <typename Kind, Epilogue kind>
inline void multiply_panels(const Linear& linear, Range panels, Range rows) {
  const int64_t fitting = kBlockBytes / linear.x.stride / kTileRows * kTileRows;
  const int64_t block = std::max<int64_t>(fitting, 2 * kTileRows);
  for (int64_t row = rows.begin; row < rows.end; row += block)
    for (int64_t panel = panels.begin; panel < panels.end; ++panel)
      multiply_panel<Kind, kind>(linear, panel, {row, std::min(rows.end, row + block)},
                                 panel + 1 < panels.end);
}

}  // namespace tercet::TERCET_ISA
