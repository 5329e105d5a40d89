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
  TERCET_LEAF static Sum start(int32_t) { return Sum{}; }
  TERCET_LEAF static Sum score(Sum sum, Words keys, Words q) { return dot_bf16(sum, keys, q); }
  TERCET_LEAF static Sum weigh(Sum sum, Words p, Words values) { return dot_bf16(sum, values, p); }
  template <int c, int a, int b, typename Tiles>
  TERCET_LEAF static void score_tiles(Tiles& tiles) {
    tiles.template dot_bf16<c, a, b>();
  }
  template <int c, int a, int b, typename Tiles>
  TERCET_LEAF static void weigh_tiles(Tiles& tiles) {
    tiles.template dot_bf16<c, a, b>();
  }
};

struct Int8Kv {
  using Sum = Ints;
  static constexpr KvType kType = KvType::kInt8;
  static constexpr int kPerWord = 4;
  static constexpr int64_t kSpanWords = kSpanTokens / kPerWord;
  static constexpr int64_t kBlockWords = kBlockTokens / kPerWord;
  TERCET_LEAF static Sum start(int32_t offset) { return Sum{} - offset; }
  TERCET_LEAF static Sum score(Sum sum, Words keys, Words q) { return dot_u8s8(sum, keys, q); }
  TERCET_LEAF static Sum weigh(Sum sum, Words p, Words values) { return dot_u8s8(sum, p, values); }
  template <int c, int a, int b, typename Tiles>
  TERCET_LEAF static void score_tiles(Tiles& tiles) {
    tiles.template dot_s8u8<c, a, b>();
  }
  template <int c, int a, int b, typename Tiles>
  TERCET_LEAF static void weigh_tiles(Tiles& tiles) {
    tiles.template dot_u8s8<c, a, b>();
  }
};

// The blocks of one span for one kv head: where keys and values begin.
struct SpanBlocks {
  int64_t count;  // blocks that hold a token which some row of the tile sees
  const uint8_t* keys[kSpanBlocks];
  const uint8_t* values[kSpanBlocks];
  const uint8_t* next[kSpanBlocks];  // keys of the blocks after these, to be fetched ahead
};

// Bring a cache line near: into the second cache, whose misses can be more at a time.
TERCET_LEAF void fetch(const uint8_t* from) { __builtin_prefetch(from, 0, 2); }

// Queries of a tile's rows: words side by side, and what their scores begin with (INT8: keys are
// stored as q + 128; minus the sum of 128 times the query's numbers).
struct Queries {
  const uint32_t* words;
  const int32_t* offsets;
  int64_t stride;     // words of a row, zeros from num_words on
  int64_t num_words;  // of a row that keys have as well

  Queries from(int64_t row) const {
    return {words + row * stride, offsets + row, stride, num_words};
  }
};

// scores[r][b * 16 + token] = q[r] . keys[b][token] for R rows and C blocks; meanwhile the blocks'
// values are fetched (`ahead`).
template <typename Kv, int R, int C, bool ahead>
TERCET_LEAF void score_tile(const Queries& q, const SpanBlocks& span, int64_t block,
                            uint32_t* scores) {
  typename Kv::Sum sums[R][C * kLineVectors];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 16
    for (int v = 0; v < C * kLineVectors; ++v) sums[r][v] = Kv::start(q.offsets[r]);
  for (int64_t word = 0; word < q.num_words; ++word) {
    Words lines[C * kLineVectors];
    for (int c = 0; c < C; ++c) {
      if (ahead) fetch(span.values[block + c] + word * 64);
      for (int v = 0; v < kLineVectors; ++v)
        lines[c * kLineVectors + v] =
            load_words(span.keys[block + c] + word * 64 + v * kWidth * 4);
    }
    for (int r = 0; r < R; ++r) {
      const Words x = Words{} + q.words[r * q.stride + word];
      for (int v = 0; v < C * kLineVectors; ++v) sums[r][v] = Kv::score(sums[r][v], lines[v], x);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 16
    for (int v = 0; v < C * kLineVectors; ++v)
      store(scores + r * kSpanTokens + v * kWidth, sums[r][v]);
}

// Weighted values of R rows in C cache lines of columns: finish(r, column, sums) takes a row's sums
// over the span's tokens for kWidth columns each from `column` on. Meanwhile the next span's keys
// are fetched (`ahead`).
template <typename Kv, int R, int C, bool ahead, typename Finish>
TERCET_LEAF void weigh_tile(const uint32_t* p, const SpanBlocks& span, int64_t dim, int64_t column,
                            const Finish& finish) {
  typename Kv::Sum sums[R][C * kLineVectors];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 16
    for (int v = 0; v < C * kLineVectors; ++v) sums[r][v] = typename Kv::Sum{};
  for (int64_t block = 0; block < span.count; ++block) {
    const uint8_t* values = span.values[block] + column * 4;
    const uint8_t* next = span.next[block] + column * 4;
    const uint32_t* weights = p + block * Kv::kBlockWords;
    for (int64_t word = 0; word < Kv::kBlockWords; ++word) {
      Words lines[C * kLineVectors];
      for (int c = 0; c < C; ++c)
        if (ahead) fetch(next + word * dim * 4 + c * 64);
      for (int v = 0; v < C * kLineVectors; ++v)
        lines[v] = load_words(values + word * dim * 4 + v * kWidth * 4);
      for (int r = 0; r < R; ++r) {
        const Words x = Words{} + weights[r * Kv::kSpanWords + word];
        for (int v = 0; v < C * kLineVectors; ++v) sums[r][v] = Kv::weigh(sums[r][v], x, lines[v]);
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) finish(r, column, sums[r]);
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
  static constexpr int64_t kRows = 24;      // of a tile
  static constexpr int64_t kUnitWords = 1;  // rows of queries and probabilities are whole units
  static constexpr int64_t kSpareRows = 0;  // after a tile's, which may be read

  // scores[rows][128]: words of Kv::Sum.
  void score(const Queries& q, const SpanBlocks& span, int64_t rows, uint32_t* scores) const {
    for (int64_t block = 0; block < span.count; block += kDotLines)
      for (int64_t row = 0; row < rows; row += kDotRows) {
        uint32_t* to = scores + row * kSpanTokens + block * kBlockTokens;
        with_constant<kDotLines>(span.count - block, [&]<int C>() {
          with_constant<kDotRows>(rows - row, [&]<int R>() {
            if (row == 0)
              score_tile<Kv, R, C, true>(q.from(row), span, block, to);
            else
              score_tile<Kv, R, C, false>(q.from(row), span, block, to);
          });
        });
      }
  }

  // finish(row, column, sums of kWidth columns each from `column` on) for all rows and columns.
  template <typename Finish>
  void weigh(const uint32_t* p, const SpanBlocks& span, int64_t dim, int64_t rows,
             const Finish& finish) const {
    for (int64_t column = 0; column < dim; column += 16 * kDotLines)
      for (int64_t row = 0; row < rows; row += kDotRows) {
        const auto put = [&](int64_t r, int64_t at, const auto& sums)
                             __attribute__((always_inline)) { finish(row + r, at, sums); };
        const uint32_t* weights = p + row * Kv::kSpanWords;
        with_constant<kDotLines>((dim - column) / 16, [&]<int C>() {
          with_constant<kDotRows>(rows - row, [&]<int R>() {
            if (row == 0)
              weigh_tile<Kv, R, C, true>(weights, span, dim, column, put);
            else
              weigh_tile<Kv, R, C, false>(weights, span, dim, column, put);
          });
        });
      }
  }
};

}  // namespace tercet::TERCET_ISA
