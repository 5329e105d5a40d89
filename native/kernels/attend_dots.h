// Products of a tile of query rows with keys and values by dot instructions.
//
// Keys and values of BF16 and INT8 look alike: words of four bytes hold two or four neighbouring
// numbers of the contracted axis, sixteen words side by side are sixteen tokens (keys) or sixteen
// columns (values). A kernel holds R rows times C such cache lines in registers; each row's sum
// runs over the contracted axis in ascending order whatever R and C are (I4).
#pragma once

#include "attention.h"
#include "kernels/dot.h"

namespace tercet::TERCET_ISA {

// Rows and cache lines that the registers hold at once.
#if defined(__AVX512F__)
inline constexpr int kDotRows = 6, kDotLines = 4;
#elif defined(__AVX2__)
inline constexpr int kDotRows = 4, kDotLines = 1;
#else
inline constexpr int kDotRows = 2, kDotLines = 1;
#endif
inline constexpr int kLineVectors = 16 / kWidth;
inline constexpr int64_t kSpanBlocks = kSpanTokens / kBlockTokens;

struct Bf16Kv {
  using Sum = Floats;
  static constexpr KvType kType = KvType::kBF16;
  static constexpr int kPerWord = 2;
  static constexpr int64_t kSpanWords = kSpanTokens / kPerWord;
  static constexpr int64_t kBlockWords = kBlockTokens / kPerWord;
  TERCET_LEAF static Sum score(Sum sum, Words keys, Words q) { return dot_bf16(sum, keys, q); }
  TERCET_LEAF static Sum weigh(Sum sum, Words p, Words values) { return dot_bf16(sum, values, p); }
};

struct Int8Kv {
  using Sum = Ints;
  static constexpr KvType kType = KvType::kInt8;
  static constexpr int kPerWord = 4;
  static constexpr int64_t kSpanWords = kSpanTokens / kPerWord;
  static constexpr int64_t kBlockWords = kBlockTokens / kPerWord;
  TERCET_LEAF static Sum score(Sum sum, Words keys, Words q) { return dot_u8s8(sum, keys, q); }
  TERCET_LEAF static Sum weigh(Sum sum, Words p, Words values) { return dot_u8s8(sum, p, values); }
};

// The blocks of one span for one kv head: where keys and values begin.
struct SpanBlocks {
  int64_t count;  // blocks that hold a token which some row of the tile sees
  const uint8_t* keys[kSpanBlocks];
  const uint8_t* values[kSpanBlocks];
};

// scores[r][b * 16 + token] = q[r] . keys[b][token] for R rows and C blocks.
template <typename Kv, int R, int C>
TERCET_LEAF void score_tile(const uint32_t* q, int64_t words, const uint8_t* const* keys,
                            uint32_t* scores) {
  typename Kv::Sum sums[R][C * kLineVectors];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 16
    for (int v = 0; v < C * kLineVectors; ++v) sums[r][v] = typename Kv::Sum{};
  for (int64_t word = 0; word < words; ++word) {
    Words lines[C * kLineVectors];
    for (int c = 0; c < C; ++c)
      for (int v = 0; v < kLineVectors; ++v)
        lines[c * kLineVectors + v] = load_words(keys[c] + word * 64 + v * kWidth * 4);
    for (int r = 0; r < R; ++r) {
      const Words x = Words{} + q[r * words + word];
      for (int v = 0; v < C * kLineVectors; ++v) sums[r][v] = Kv::score(sums[r][v], lines[v], x);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 16
    for (int v = 0; v < C * kLineVectors; ++v)
      store(scores + r * kSpanTokens + v * kWidth, sums[r][v]);
}

// Weighted values of R rows in C cache lines of columns: finish(row, column, sum) takes the sum
// over the span's tokens for kWidth columns from `column` on.
template <typename Kv, int R, int C, typename Finish>
TERCET_LEAF void weigh_tile(const uint32_t* p, const SpanBlocks& span, int64_t dim, int64_t column,
                            const Finish& finish) {
  typename Kv::Sum sums[R][C * kLineVectors];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 16
    for (int v = 0; v < C * kLineVectors; ++v) sums[r][v] = typename Kv::Sum{};
  for (int64_t block = 0; block < span.count; ++block) {
    const uint8_t* values = span.values[block] + column * 4;
    const uint32_t* weights = p + block * Kv::kBlockWords;
    for (int64_t word = 0; word < Kv::kBlockWords; ++word) {
      Words lines[C * kLineVectors];
      for (int v = 0; v < C * kLineVectors; ++v)
        lines[v] = load_words(values + word * dim * 4 + v * kWidth * 4);
      for (int r = 0; r < R; ++r) {
        const Words x = Words{} + weights[r * Kv::kSpanWords + word];
        for (int v = 0; v < C * kLineVectors; ++v) sums[r][v] = Kv::weigh(sums[r][v], x, lines[v]);
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 16
    for (int v = 0; v < C * kLineVectors; ++v) finish(r, column + v * kWidth, sums[r][v]);
}

// body.template operator()<n>() for the n of 1 .. most.
template <int most, typename Body>
TERCET_LEAF void with_constant(int64_t n, const Body& body) {
  if constexpr (most > 1) {
    if (n < most) return with_constant<most - 1>(n, body);
  }
  body.template operator()<most>();
}

// The dots of vector registers; kernels/attend_tiles.h has those of AMX tiles.
template <typename KvOf>
struct VectorDots {
  using Kv = KvOf;
  static constexpr int64_t kRows = 24;  // of a tile

  void begin(int64_t) {}

  // scores[rows][128]: words of Kv::Sum.
  void score(const uint32_t* q, int64_t words, const SpanBlocks& span, int64_t rows,
             uint32_t* scores) const {
    for (int64_t block = 0; block < span.count; block += kDotLines)
      for (int64_t row = 0; row < rows; row += kDotRows)
        with_constant<kDotLines>(span.count - block, [&]<int C>() {
          with_constant<kDotRows>(rows - row, [&]<int R>() {
            score_tile<Kv, R, C>(q + row * words, words, span.keys + block,
                                 scores + row * kSpanTokens + block * kBlockTokens);
          });
        });
  }

  // finish(row, column, sum of kWidth columns) for all rows and columns.
  template <typename Finish>
  void weigh(const uint32_t* p, const SpanBlocks& span, int64_t dim, int64_t rows,
             const Finish& finish) const {
    for (int64_t column = 0; column < dim; column += 16 * kDotLines)
      for (int64_t row = 0; row < rows; row += kDotRows)
        with_constant<kDotLines>((dim - column) / 16, [&]<int C>() {
          with_constant<kDotRows>(rows - row, [&]<int R>() {
            weigh_tile<Kv, R, C>(p + row * Kv::kSpanWords, span, dim, column,
                                 [&](int64_t r, int64_t at, typename Kv::Sum sum)
                                     __attribute__((always_inline)) { finish(row + r, at, sum); });
          });
        });
  }
};

}  // namespace tercet::TERCET_ISA
