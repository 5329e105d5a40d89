// Products of a tile of query rows with keys and values by AMX tiles (tiles.h).
//
//              B0        B1          keys of two blocks, or values of 32 columns: 16 words deep
//   A0 0..15   C00       C01         A: queries, or probabilities; 16 words at a time
//   A1 16..31  C10       C11
//
// All tiles are 16 rows of 64 bytes whatever the number of rows: what lies after the last row
// makes results that nobody reads. BF16 uses tiles for one row too (I4); sums of INT8 are exact, so
// few rows take vectors. Words that do not fill a tile are completed with zeros in a copy.
#pragma once

#include "kernels/attend_dots.h"
#include "kernels/tiles.h"

namespace tercet::TERCET_ISA {

template <typename KvOf, typename Tiles>
class TileDots {
 public:
  using Kv = KvOf;
  static constexpr int64_t kRows = 32;
  static constexpr int64_t kUnitWords = 16;
  static constexpr int64_t kSpareRows = kTileHeight;

  TileDots() {
    TileShape shape;
    for (int tile = 0; tile < kTiles; ++tile) {
      shape.rows[tile] = kTileHeight;
      shape.row_bytes[tile] = kTileBytes;
    }
    tiles_.configure(shape);
  }

  // As VectorDots; `scores` has room for whole tiles of rows.
  void score(const Queries& q, const SpanBlocks& span, int64_t rows, uint32_t* scores) {
    if (few(rows)) return VectorDots<Kv>().score(q, span, rows, scores);
    for (int64_t row = 0; row < round_up(rows, kTileHeight); ++row)
      for (int64_t v = 0; v < kTileHeight; v += kWidth)
        store(start_ + row * kTileHeight + v, Kv::start(row < rows ? q.offsets[row] : 0));
    for (int64_t block = 0; block < span.count; block += 2) {
      for (int64_t line = 0; line < q.num_words; ++line)
        for (int64_t b = block; b < span.count && b < block + 2; ++b)
          fetch(span.values[b] + line * 64);
      with_shape(rows, span.count - block > 1, [&]<bool tall, bool wide>() {
        score_blocks<tall, wide>(q, span, block, scores + block * kBlockTokens);
      });
    }
  }

  template <typename Finish>
  void weigh(const uint32_t* p, const SpanBlocks& span, int64_t dim, int64_t rows,
             const Finish& finish) {
    if (few(rows)) return VectorDots<Kv>().weigh(p, span, dim, rows, finish);
    const int64_t depth = round_up(span.count * Kv::kBlockWords, kUnitWords);
    for (int64_t column = 0; column < dim; column += 2 * kTileHeight) {
      const bool two = dim - column > kTileHeight;
      gather(span, dim, column, two, depth);
      with_shape(rows, two, [&]<bool tall, bool wide>() {
        weigh_columns<tall, wide>(p, depth);
        constexpr int kVectors = (wide ? 2 : 1) * kLineVectors;
        for (int64_t row = 0; row < rows; ++row) {
          typename Kv::Sum sums[kVectors];
          std::memcpy(sums, sums_ + row * 2 * kTileHeight, sizeof(sums));
          finish(row, column, sums);
        }
      });
    }
  }

 private:
  enum Name : int { kC00, kC01, kC10, kC11, kA0, kA1, kB0, kB1 };
  static constexpr int64_t kPairBytes = 2 * kTileBytes;  // of a word of 32 columns

  static bool few(int64_t rows) { return Kv::kType == KvType::kInt8 && rows <= 6; }

  // body.operator()<more than one tile of rows, both B>().
  template <typename Body>
  static void with_shape(int64_t rows, bool wide, const Body& body) {
    if (rows > kTileHeight)
      wide ? body.template operator()<true, true>() : body.template operator()<true, false>();
    else
      wide ? body.template operator()<false, true>() : body.template operator()<false, false>();
  }

  template <bool tall, bool wide>
  void score_blocks(const Queries& q, const SpanBlocks& span, int64_t block, uint32_t* scores) {
    load_starts<tall, wide>();
    const uint8_t* x = reinterpret_cast<const uint8_t*>(q.words);
    const int64_t stride = q.stride * 4;
    for (int64_t word = 0; word < q.num_words; word += kUnitWords) {
      tiles_.template load<kA0>(x + word * 4, stride);
      if constexpr (tall) tiles_.template load<kA1>(x + word * 4 + kTileHeight * stride, stride);
      const int64_t left = q.num_words - word;
      tiles_.template load<kB0>(whole(span.keys[block], word, left, 0), kTileBytes);
      Kv::template score_tiles<kC00, kA0, kB0>(tiles_);
      if constexpr (tall) Kv::template score_tiles<kC10, kA1, kB0>(tiles_);
      if constexpr (wide) {
        tiles_.template load<kB1>(whole(span.keys[block + 1], word, left, 1), kTileBytes);
        Kv::template score_tiles<kC01, kA0, kB1>(tiles_);
        if constexpr (tall) Kv::template score_tiles<kC11, kA1, kB1>(tiles_);
      }
    }
    store_sums<tall, wide>(scores, kSpanTokens);
  }

  // Sixteen words of a block's keys from `word` on; a copy where only `left` are left.
  const uint8_t* whole(const uint8_t* keys, int64_t word, int64_t left, int which) {
    const uint8_t* from = keys + word * kTileBytes;
    if (left >= kUnitWords) return from;
    uint8_t* copy = rest_ + which * kTileHeight * kTileBytes;
    std::memcpy(copy, from, size_t(left * kTileBytes));
    std::memset(copy + left * kTileBytes, 0, size_t((kUnitWords - left) * kTileBytes));
    return copy;
  }

  // 32 columns of the span's values, word by word; zeros after its last block.
  void gather(const SpanBlocks& span, int64_t dim, int64_t column, bool wide, int64_t depth) {
    const size_t bytes = size_t(wide ? kPairBytes : kTileBytes);
    uint8_t* to = values_;
    for (int64_t block = 0; block < span.count; ++block)
      for (int64_t word = 0; word < Kv::kBlockWords; ++word, to += kPairBytes) {
        const int64_t offset = (word * dim + column) * 4;
        fetch(span.next[block] + offset);
        if (wide) fetch(span.next[block] + offset + kTileBytes);
        std::memcpy(to, span.values[block] + offset, bytes);
      }
    for (; to < values_ + depth * kPairBytes; to += kPairBytes) std::memset(to, 0, bytes);
  }

  template <bool tall, bool wide>
  void weigh_columns(const uint32_t* p, int64_t depth) {
    zero_sums<tall, wide>();
    constexpr int64_t kStride = Kv::kSpanWords * 4;
    const uint8_t* x = reinterpret_cast<const uint8_t*>(p);
    const uint8_t* values = values_;
    for (int64_t word = 0; word < depth; word += kUnitWords, values += kUnitWords * kPairBytes) {
      tiles_.template load<kA0>(x + word * 4, kStride);
      if constexpr (tall) tiles_.template load<kA1>(x + word * 4 + kTileHeight * kStride, kStride);
      tiles_.template load<kB0>(values, kPairBytes);
      Kv::template weigh_tiles<kC00, kA0, kB0>(tiles_);
      if constexpr (tall) Kv::template weigh_tiles<kC10, kA1, kB0>(tiles_);
      if constexpr (wide) {
        tiles_.template load<kB1>(values + kTileBytes, kPairBytes);
        Kv::template weigh_tiles<kC01, kA0, kB1>(tiles_);
        if constexpr (tall) Kv::template weigh_tiles<kC11, kA1, kB1>(tiles_);
      }
    }
    store_sums<tall, wide>(sums_, 2 * kTileHeight);
  }

  template <bool tall, bool wide>
  void load_starts() {
    const uint8_t* upper = reinterpret_cast<const uint8_t*>(start_);
    const uint8_t* lower = upper + kTileHeight * kTileBytes;
    tiles_.template load<kC00>(upper, kTileBytes);
    if constexpr (wide) tiles_.template load<kC01>(upper, kTileBytes);
    if constexpr (tall) tiles_.template load<kC10>(lower, kTileBytes);
    if constexpr (tall && wide) tiles_.template load<kC11>(lower, kTileBytes);
  }

  template <bool tall, bool wide>
  void zero_sums() {
    tiles_.template zero<kC00>();
    if constexpr (wide) tiles_.template zero<kC01>();
    if constexpr (tall) tiles_.template zero<kC10>();
    if constexpr (tall && wide) tiles_.template zero<kC11>();
  }

  // To rows `stride` words apart, C01 and C11 beside the others.
  template <bool tall, bool wide>
  void store_sums(uint32_t* to, int64_t stride) {
    uint8_t* upper = reinterpret_cast<uint8_t*>(to);
    uint8_t* lower = upper + kTileHeight * stride * 4;
    tiles_.template store<kC00>(upper, stride * 4);
    if constexpr (wide) tiles_.template store<kC01>(upper + kTileBytes, stride * 4);
    if constexpr (tall) tiles_.template store<kC10>(lower, stride * 4);
    if constexpr (tall && wide) tiles_.template store<kC11>(lower + kTileBytes, stride * 4);
  }

  Tiles tiles_;
  alignas(64) uint32_t start_[kRows * kTileHeight];
  alignas(64) uint32_t sums_[kRows * 2 * kTileHeight];
  alignas(64) uint8_t values_[Kv::kSpanWords * kPairBytes];
  alignas(64) uint8_t rest_[2 * kTileHeight * kTileBytes];
};

}  // namespace tercet::TERCET_ISA
