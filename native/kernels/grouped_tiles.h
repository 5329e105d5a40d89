// Products of rows with panels of GGUF block formats by AMX tiles (tiles.h): the integers by tiles,
// the floats as grouped_panels.h has them, bit by bit.
//
// A block is up to 16 rows by 16 outputs. For each group of 32 inputs its codes are unpacked to
// bytes, a tile B [8 quads][16 outputs][4] times the rows' A [rows][32] gives C [rows][16], which
// goes through memory to the vectors that hold y. Tiles work on the next group meanwhile. With
// kParts, A, B and C are two each: the halves of the group.
#pragma once

#include <algorithm>

#include "kernels/grouped_panels.h"
#include "kernels/tiles.h"

namespace tercet::TERCET_ISA {

enum GroupTile : int { kSums0, kSums1, kNumbers0, kNumbers1, kCodes0, kCodes1 };

// From so many rows on tiles are faster than vectors.
inline constexpr int64_t kTileRowsLeast = 6;

template <typename Blocks>
inline constexpr int kHalvesOfGroup = Blocks::kParts ? 2 : 1;

template <typename Blocks>
inline TileShape group_shape(int64_t rows) {
  constexpr int kQuadsOfTile = 8 / kHalvesOfGroup<Blocks>;
  TileShape shape;
  const auto set = [&](int tile, int64_t height, int row_bytes) {
    shape.rows[tile] = uint8_t(height);
    shape.row_bytes[tile] = uint16_t(row_bytes);
  };
  for (int half = 0; half < kHalvesOfGroup<Blocks>; ++half) {
    set(kSums0 + half, rows, kTileBytes);
    set(kNumbers0 + half, rows, 4 * kQuadsOfTile);
    set(kCodes0 + half, kQuadsOfTile, kTileBytes);
  }
  return shape;
}

// A group on its way from tiles to vectors.
template <typename Blocks>
struct alignas(64) GroupSums {
  uint8_t codes[8][kTileBytes];
  int32_t sums[kHalvesOfGroup<Blocks>][kTileHeight][kLanes];
};

struct GroupBlock {
  const uint8_t* panel;
  const uint8_t* x;    // of the first row
  int64_t x_stride;
  int64_t output;      // first of 16 in the panel
};

template <typename Blocks, typename Tiles>
inline void multiply_group(Tiles& tiles, const GroupBlock& from, int64_t g, GroupSums<Blocks>& to) {
  const uint8_t* block = from.panel + g / Blocks::kGroups * Blocks::kBytes;
  for (int pair = 0; pair < 4; ++pair)
    for (int lane = 0; lane < kLanes; lane += kWidth) {
      const CodePair codes =
          Blocks::codes(block, g % Blocks::kGroups, pair, from.output + lane);
      store(to.codes[pair] + lane * 4, codes.low);
      store(to.codes[4 + pair] + lane * 4, codes.high);
    }
  const uint8_t* x = from.x + g * kGroup;
  tiles.template zero<kSums0>();
  tiles.template load<kNumbers0>(x, from.x_stride);
  tiles.template load<kCodes0>(to.codes[0], kTileBytes);
  tiles.template dot_s8u8<kSums0, kNumbers0, kCodes0>();
  tiles.template store<kSums0>(reinterpret_cast<uint8_t*>(to.sums[0]), kTileBytes);
  if constexpr (Blocks::kParts) {
    tiles.template zero<kSums1>();
    tiles.template load<kNumbers1>(x + kGroup / 2, from.x_stride);
    tiles.template load<kCodes1>(to.codes[4], kTileBytes);
    tiles.template dot_s8u8<kSums1, kNumbers1, kCodes1>();
    tiles.template store<kSums1>(reinterpret_cast<uint8_t*>(to.sums[1]), kTileBytes);
  }
}

// Add a stretch of groups to the sums [kRows][32] of a block, whose tiles have up to kRows rows.
template <typename Blocks, int kRows, typename Tiles>
inline void add_stretch(Tiles& tiles, const GroupBlock& from, Stretch groups, const Term* terms,
                        float* sums) {
  constexpr int kVectors = kLanes / kWidth;
  constexpr int64_t kGroupBytes = Blocks::kBytes / Blocks::kGroups, kAhead = 4096;
  GroupSums<Blocks> passing[2] = {};
  Floats y[kVectors][kRows];
  for (int v = 0; v < kVectors; ++v)
    for (int r = 0; r < kRows; ++r)
      y[v][r] = load<Floats>(sums + r * kPanel + from.output + v * kWidth);
  const int64_t end = groups.first + groups.count;
  multiply_group<Blocks>(tiles, from, groups.first, passing[groups.first % 2]);
  for (int64_t g = groups.first; g < end; ++g, terms += kRows) {
    if (from.output == 0)
      for (int64_t line = 0; line < kGroupBytes; line += 64)
        __builtin_prefetch(from.panel + g * kGroupBytes + kAhead + line);
    if (g + 1 < end) multiply_group<Blocks>(tiles, from, g + 1, passing[(g + 1) % 2]);
    const auto& sums_of = passing[g % 2].sums;
    const uint8_t* block = from.panel + g / Blocks::kGroups * Blocks::kBytes;
    for (int v = 0; v < kVectors; ++v) {
      Ints low[kRows], high[kRows];
      for (int r = 0; r < kRows; ++r) {
        low[r] = load<Ints>(&sums_of[0][r][v * kWidth]);
        if constexpr (!Blocks::kMinima) low[r] += terms[r].start[0];
        if constexpr (Blocks::kParts)
          high[r] = load<Ints>(&sums_of[1][r][v * kWidth]) + terms[r].start[1];
      }
      add_group<Blocks, kRows>(block, g % Blocks::kGroups, from.output + v * kWidth, terms, low,
                               high, y[v], 1);
    }
  }
  for (int v = 0; v < kVectors; ++v)
    for (int r = 0; r < kRows; ++r)
      store(sums + r * kPanel + from.output + v * kWidth, y[v][r]);
}

// Rows [row, row + height) of up to kPanelsTogether panels; those from `fresh` on are written.
template <typename Blocks, int kRows, typename Tiles>
inline void tile_rows_of(Tiles& tiles, const Linear& linear, Range panels, Range rows,
                         int64_t fresh) {
  constexpr int64_t kUnit = kStretch / kRows / Blocks::kGroups * Blocks::kGroups;
  alignas(64) float sums[kPanelsTogether][kRows * kPanel] = {};
  Term terms[kUnit * kRows] = {};
  const int64_t groups = linear.k / kGroup;
  const int64_t panel_bytes = groups / Blocks::kGroups * Blocks::kBytes;
  for (int64_t first = 0; first < groups; first += kUnit) {
    const Stretch stretch{first, std::min(groups - first, kUnit)};
    prepare<Blocks>(linear.x, rows.begin, rows.size(), stretch, kRows, terms);
    for (int64_t panel = panels.begin; panel < panels.end; ++panel)
      for (int64_t output = 0; output < kPanel; output += kLanes) {
        const GroupBlock block{linear.weight + panel * panel_bytes,
                               linear.x.row<uint8_t>(rows.begin), linear.x.stride, output};
        add_stretch<Blocks, kRows>(tiles, block, stretch, terms, sums[panel - panels.begin]);
      }
  }
  for (int64_t panel = panels.begin; panel < panels.end; ++panel)
    finish_rows(linear, panel, {fresh, rows.end},
                sums[panel - panels.begin] + (fresh - rows.begin) * kPanel);
}

// All blocks of a call are equally high, so that one shape of tiles serves the call: the last one
// overlaps the one before it.
template <typename Blocks, typename Tiles>
inline void multiply_grouped_tiles(Tiles& tiles, const Linear& linear, Range panels, Range rows) {
  if (rows.size() <= 0) return;
  const int64_t blocks = (rows.size() + kTileHeight - 1) / kTileHeight;
  const int64_t height = (rows.size() + blocks - 1) / blocks;
  tiles.configure(group_shape<Blocks>(height));
  for (int64_t begin = panels.begin; begin < panels.end; begin += kPanelsTogether) {
    const Range together{begin, std::min(panels.end, begin + kPanelsTogether)};
    for (int64_t index = 0; index < blocks; ++index) {
      const int64_t fresh = rows.begin + index * height;
      const int64_t first = std::min(fresh, rows.end - height);
      const Range block{first, first + height};
      if (height <= kTileHeight / 2)
        tile_rows_of<Blocks, kTileHeight / 2>(tiles, linear, together, block, fresh);
      else
        tile_rows_of<Blocks, kTileHeight>(tiles, linear, together, block, fresh);
    }
  }
}

}  // namespace tercet::TERCET_ISA
