// Products of rows with panels by AMX tiles (tiles.h), for BF16 and INT8.
//
// A block is up to 32 rows by one panel of 32 outputs; tiles C stay for all of K:
//
//               B0 (outputs 0..15)  B1 (16..31)      of a panel: 16 steps, 128 bytes apart
//   A0 rows 0..15        C00           C01
//   A1 rows 16..31       C10           C11
//
// A block of fewer rows has lower tiles A and C. All blocks of a call are equally high, so that
// one shape serves the call: the last one overlaps the one before it and finishes only what that
// has not. One instruction, in one order along K, makes every sum (I4).
#pragma once

#include <algorithm>

#include "kernels/panels.h"
#include "kernels/tiles.h"

namespace tercet::TERCET_ISA {

inline constexpr int64_t kBlockRows = 2 * kTileHeight;
inline constexpr int64_t kSlabBytes = kTileHeight * kStepBytes;  // of a panel: what B0 and B1 hold
inline constexpr int64_t kAheadBytes = 8 << 10;

enum TileName : int { kC00, kC01, kC10, kC11, kA0, kA1, kB0, kB1 };

inline TileShape shape_of(int64_t rows) {
  TileShape shape;
  const auto set = [&](int tile, int64_t height) {
    shape.rows[tile] = uint8_t(height);
    shape.row_bytes[tile] = height > 0 ? kTileBytes : 0;
  };
  const int64_t upper = std::min<int64_t>(rows, kTileHeight), lower = rows - upper;
  for (const int tile : {kC00, kC01, kA0}) set(tile, upper);
  for (const int tile : {kC10, kC11, kA1}) set(tile, lower);
  for (const int tile : {kB0, kB1}) set(tile, kTileHeight);
  return shape;
}

struct TileBlock {
  const uint8_t* weight;
  const uint8_t* x;
  int64_t x_stride;
  int64_t slabs;         // along K
  int64_t ahead_bytes;   // how far ahead weights are fetched; 0: they are at hand
};

// Sums [rows][32] of a block; `tall`: it has a lower half.
template <typename Kind, bool tall, typename Tiles>
inline void multiply_block(Tiles& tiles, const TileBlock& block, uint8_t* sums) {
  tiles.template zero<kC00>();
  tiles.template zero<kC01>();
  if constexpr (tall) {
    tiles.template zero<kC10>();
    tiles.template zero<kC11>();
  }
  const uint8_t *weight = block.weight, *x = block.x;
  for (int64_t slab = 0; slab < block.slabs; ++slab, weight += kSlabBytes, x += kTileBytes) {
    // Every fourth line is enough to keep the hardware's own fetching ahead.
    if (block.ahead_bytes > 0)
      for (int64_t line = 0; line < kSlabBytes; line += 4 * 64)
        __builtin_prefetch(weight + block.ahead_bytes + line, 0, 2);
    tiles.template load<kA0>(x, block.x_stride);
    tiles.template load<kB0>(weight, kStepBytes);
    Kind::template dot_tiles<kC00, kA0, kB0>(tiles);
    tiles.template load<kB1>(weight + kTileBytes, kStepBytes);
    Kind::template dot_tiles<kC01, kA0, kB1>(tiles);
    if constexpr (tall) {
      tiles.template load<kA1>(x + kTileHeight * block.x_stride, block.x_stride);
      Kind::template dot_tiles<kC10, kA1, kB0>(tiles);
      Kind::template dot_tiles<kC11, kA1, kB1>(tiles);
    }
  }
  tiles.template store<kC00>(sums, kStepBytes);
  tiles.template store<kC01>(sums + kTileBytes, kStepBytes);
  if constexpr (tall) {
    tiles.template store<kC10>(sums + kSlabBytes, kStepBytes);
    tiles.template store<kC11>(sums + kSlabBytes + kTileBytes, kStepBytes);
  }
}

template <typename Kind, Epilogue kind, typename Tiles>
inline void multiply_tiles(Tiles& tiles, const Linear& linear, Range panels, Range rows) {
  if (rows.size() <= 0 || panels.size() <= 0) return;
  const int64_t blocks = (rows.size() + kBlockRows - 1) / kBlockRows;
  const int64_t height = (rows.size() + blocks - 1) / blocks;
  tiles.configure(shape_of(height));
  alignas(64) uint8_t sums[kBlockRows * kStepBytes];
  for (int64_t panel = panels.begin; panel < panels.end; ++panel)
    for (int64_t index = 0; index < blocks; ++index) {
      const int64_t fresh = rows.begin + index * height;
      const int64_t first = std::min(fresh, rows.end - height);
      const TileBlock block = {.weight = linear.weight + panel * Kind::panel_bytes(linear.k),
                               .x = linear.x.row<uint8_t>(first),
                               .x_stride = linear.x.stride,
                               .slabs = padded_k(linear.k) * Kind::kBytes / kTileBytes,
                               .ahead_bytes = index == 0 ? kAheadBytes : 0};
      if (height > kTileHeight)
        multiply_block<Kind, true>(tiles, block, sums);
      else
        multiply_block<Kind, false>(tiles, block, sums);
      Kind::template finish_rows<kind>(linear, panel, {fresh, first + height},
                                       sums + (fresh - first) * kStepBytes);
    }
}

// By the best means of this instruction set.
template <typename Kind, Epilogue kind>
inline void multiply(const Linear& linear, Range panels, Range rows) {
  if constexpr (kHasTiles) {
    BestTiles tiles;
    multiply_tiles<Kind, kind>(tiles, linear, panels, rows);
  } else {
    multiply_panels<Kind, kind>(linear, panels, rows);
  }
}

}  // namespace tercet::TERCET_ISA
