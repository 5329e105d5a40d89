// Products of rows with panels of GGUF block formats, by vectors: activations of one scale for 32
// numbers.
//
//   y = sum over groups g of 32 inputs, ascending, in float32:
//     y = fma(float(sum of (code - offset) x), d sx, y), then with minima y = fma(m, sx sum(x), y)
//
// d and m are the file's numbers, exact in float32, sx and sum(x) those of the row's group. The sum
// over a group's integers is exact (Q6_K: its halves times their integer factors too, < 2^24), so
// only this order of float operations counts, and it is the same for every number of rows (I4).
//
// A tile is a few rows by one or two vectors of outputs; its codes are unpacked once for all its
// rows. What depends on rows and groups alone is prepared for a stretch of groups and serves
// several panels.
#pragma once

#include "kernels/epilogue.h"
#include "kernels/grouped_blocks.h"

namespace tercet::TERCET_ISA {

inline constexpr int64_t kPanelsTogether = 8;
inline constexpr int64_t kStretch = 576;  // rows times groups that are prepared at once
inline constexpr int kColumns = kWidth == 16 ? 2 : 1;  // vectors of a tile

template <typename Blocks>
inline constexpr int kTileRows = kWidth == 16 ? (Blocks::kParts ? 4 : 6) : (Blocks::kParts ? 2 : 4);

// What a group of a row brings into the sums besides its numbers.
struct Term {
  float scale;
  union {
    float weighted_sum;   // kMinima: scale times the sum of the numbers
    int32_t start[2];     // otherwise: - kOffset times the sum, of each half where parts matter
  };
};

struct Stretch {
  int64_t first, count;  // groups
};

// Terms of rows [row, row + rows): those of a group side by side, `pitch` apart from the next's.
template <typename Blocks>
inline void prepare(const Matrix& x, int64_t row, int64_t rows, Stretch groups, int64_t pitch,
                    Term* terms) {
  for (int64_t g = 0; g < groups.count; ++g) {
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t index = (row + r) * x.groups + groups.first + g;
      Term& term = terms[g * pitch + r];
      term.scale = x.scales[index];
      if constexpr (Blocks::kMinima) {
        term.weighted_sum = x.scales[index] * float(x.sums[index]);
      } else if constexpr (Blocks::kParts) {
        const int8_t* numbers = x.row<int8_t>(row + r) + (groups.first + g) * kGroup;
        int32_t half = 0;
        for (int i = 0; i < kGroup / 2; ++i) half += numbers[i];
        term.start[0] = -Blocks::kOffset * half;
        term.start[1] = -Blocks::kOffset * (x.sums[index] - half);
      } else {
        term.start[0] = -Blocks::kOffset * x.sums[index];
      }
    }
  }
}

// Add a group's sums of integers (`low`; with kParts, of its halves) to y: for rows r, at
// r * pitch. The only place where floats are added up.
template <typename Blocks, int kRows>
TERCET_LEAF void add_group(const uint8_t* block, int64_t group, int64_t output, const Term* terms,
                           const Ints* low, const Ints* high, Floats* y, int pitch) {
  const Floats scales = Blocks::scales(block, group, output);
  for (int r = 0; r < kRows; ++r) {
    Floats sum = to_floats(low[r * pitch]);
    if constexpr (Blocks::kParts)
      sum = fused(sum, Blocks::parts(block, group, 0, output),
                  to_floats(high[r * pitch]) * Blocks::parts(block, group, 1, output));
    y[r * pitch] = fused(sum, scales * terms[r].scale, y[r * pitch]);
  }
  if constexpr (Blocks::kMinima) {
    const Floats minima = Blocks::minima(block, group, output);
    for (int r = 0; r < kRows; ++r)
      y[r * pitch] = fused(minima, Floats{} + terms[r].weighted_sum, y[r * pitch]);
  }
}

// Add a stretch of groups to the sums [kRows][32] of a panel, outputs from `output` on.
template <typename Blocks, int kRows>
TERCET_LEAF void tile(const uint8_t* panel, const Matrix& x, int64_t row, Stretch groups,
                      const Term* terms, int64_t output, float* sums) {
  constexpr int64_t kGroupBytes = Blocks::kBytes / Blocks::kGroups;
  // Where reading takes longer than computing, all lines of the group are asked for at once;
  // otherwise they come while those before them are used.
  constexpr int64_t kAhead = kRows * 256 <= kGroupBytes ? 0 : 4096;
  constexpr bool kTwo = Blocks::kParts || kRows <= 2;  // accumulators for the halves of a group
  Floats y[kRows][kColumns];
  for (int r = 0; r < kRows; ++r)
    for (int c = 0; c < kColumns; ++c)
      y[r][c] = load<Floats>(sums + r * kPanel + output + c * kWidth);
  const uint8_t* numbers[kRows];
  for (int r = 0; r < kRows; ++r) numbers[r] = x.row<uint8_t>(row + r) + groups.first * kGroup;
  for (int64_t g = groups.first; g < groups.first + groups.count; ++g, terms += kRows) {
    const uint8_t* block = panel + g / Blocks::kGroups * Blocks::kBytes;
    const int64_t group = g % Blocks::kGroups;
    const uint8_t* piece = panel + g * kGroupBytes + kAhead;
    if (output == 0)
      for (int64_t line = 0; line < kGroupBytes; line += 64) __builtin_prefetch(piece + line);
    Ints low[kRows][kColumns], high[kRows][kColumns];
    for (int r = 0; r < kRows; ++r) {
      for (int c = 0; c < kColumns; ++c) {
        low[r][c] = Ints{} + (Blocks::kMinima ? 0 : terms[r].start[0]);
        high[r][c] = Ints{} + (Blocks::kParts ? terms[r].start[1] : 0);
      }
    }
#pragma GCC unroll 4
    for (int pair = 0; pair < 4; ++pair) {
      CodePair codes[kColumns];
      for (int c = 0; c < kColumns; ++c)
        codes[c] = Blocks::codes(block, group, pair, output + c * kWidth);
      for (int r = 0; r < kRows; ++r) {
        const Words x_low = splat_word(numbers[r] + 4 * pair);
        const Words x_high = splat_word(numbers[r] + 16 + 4 * pair);
        for (int c = 0; c < kColumns; ++c) {
          low[r][c] = Blocks::dot(low[r][c], codes[c].low, x_low);
          Ints& sum = kTwo ? high[r][c] : low[r][c];
          sum = Blocks::dot(sum, codes[c].high, x_high);
        }
      }
    }
    if constexpr (kTwo && !Blocks::kParts)
      for (int r = 0; r < kRows; ++r)
        for (int c = 0; c < kColumns; ++c) low[r][c] += high[r][c];
    for (int c = 0; c < kColumns; ++c)
      add_group<Blocks, kRows>(block, group, output + c * kWidth, terms, &low[0][c], &high[0][c],
                               &y[0][c], kColumns);
    for (int r = 0; r < kRows; ++r) numbers[r] += kGroup;
  }
  for (int r = 0; r < kRows; ++r)
    for (int c = 0; c < kColumns; ++c) store(sums + r * kPanel + output + c * kWidth, y[r][c]);
}

inline void finish_rows(const Linear& linear, int64_t panel, Range rows, const float* sums) {
  with_epilogue(linear.epilogue, [&]<Epilogue kind>() {
    for (int64_t row = rows.begin; row < rows.end; ++row, sums += kPanel)
      finish<kind>(linear, panel, row, load<f32x16>(sums), load<f32x16>(sums + kLanes));
  });
}

// Rows [row, row + kRows) of up to kPanelsTogether panels.
template <typename Blocks, int kRows>
void rows_of(const Linear& linear, Range panels, int64_t row) {
  constexpr int64_t kUnit = kStretch / kRows / Blocks::kGroups * Blocks::kGroups;
  alignas(64) float sums[kPanelsTogether][kRows * kPanel];
  Term terms[kUnit * kRows];
  std::memset(sums, 0, sizeof(sums));
  const int64_t groups = linear.k / kGroup;
  const int64_t panel_bytes = groups / Blocks::kGroups * Blocks::kBytes;
  for (int64_t first = 0; first < groups; first += kUnit) {
    const Stretch stretch{first, groups - first < kUnit ? groups - first : kUnit};
    prepare<Blocks>(linear.x, row, kRows, stretch, kRows, terms);
    for (int64_t panel = panels.begin; panel < panels.end; ++panel)
      for (int64_t output = 0; output < kPanel; output += kColumns * kWidth)
        tile<Blocks, kRows>(linear.weight + panel * panel_bytes, linear.x, row, stretch, terms,
                            output, sums[panel - panels.begin]);
  }
  for (int64_t panel = panels.begin; panel < panels.end; ++panel)
    finish_rows(linear, panel, {row, row + kRows}, sums[panel - panels.begin]);
}

template <typename Blocks, int kRows = kTileRows<Blocks>>
void rows_of(const Linear& linear, Range panels, int64_t row, int64_t count) {
  if (count == kRows) return rows_of<Blocks, kRows>(linear, panels, row);
  if constexpr (kRows > 1) rows_of<Blocks, kRows - 1>(linear, panels, row, count);
}

template <typename Blocks>
void multiply_grouped(const Linear& linear, Range panels, Range rows) {
  for (int64_t begin = panels.begin; begin < panels.end; begin += kPanelsTogether) {
    const int64_t end = panels.end < begin + kPanelsTogether ? panels.end : begin + kPanelsTogether;
    for (int64_t row = rows.begin; row < rows.end;) {
      // Tiles of about the same height: 8 rows as 4 and 4, not 6 and 2.
      const int64_t tiles = (rows.end - row + kTileRows<Blocks> - 1) / kTileRows<Blocks>;
      const int64_t count = (rows.end - row + tiles - 1) / tiles;
      rows_of<Blocks>(linear, {begin, end}, row, count);
      row += count;
    }
  }
}

}  // namespace tercet::TERCET_ISA
