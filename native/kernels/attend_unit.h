// One unit of attention, and merging of spans that several units took.
//
// A tile is up to kRows pairs of a row and a query head of the unit's kv head. For each span of the
// context: scores of all tile rows, softmax of the span alone, weighted values; then the span is
// merged into what the spans before it gave, or kept as a partial, in the same operations.
#pragma once

#include "kernels/attend_softmax.h"
#include "kernels/heads.h"

namespace tercet::TERCET_ISA {

inline constexpr float kLog2E = 1.44269504088896341f;

// One number for each row of a tile, in whole vectors.
template <int64_t rows, typename T = float>
using PerRow = T[round_up(rows, 16)];

template <typename Dots>
class AttendTile {
  using Kv = typename Dots::Kv;
  static constexpr int64_t kRows = Dots::kRows;
  static constexpr bool kInt8 = Kv::kType == KvType::kInt8;

 public:
  AttendTile(const Attend& attend, const AttendUnit& unit)
      : attend_(attend),
        unit_(unit),
        step_(*attend.step),
        group_(attend.heads / attend.layout.kv_heads),
        dim_(attend.layout.padded_dim()),
        words_(round_up(dim_ / Kv::kPerWord, Dots::kUnitWords)),
        spans_(step_.positions[unit.row_end - 1] / kSpanTokens + 1) {}

  void run() {
    const int64_t all = (unit_.row_end - unit_.row_begin) * group_;
    const int64_t most = dim_ <= kUsualDim ? kRows : kRows * kUsualDim / dim_;
    for (first_ = 0; first_ < all; first_ += most) {
      rows_ = all - first_ < most ? all - first_ : most;
      for (int64_t i = 0; i < rows_; ++i) prepare(i);
      const int64_t last = positions_[rows_ - 1];
      const int64_t seen = last / kSpanTokens + 1;
      const int64_t end = unit_.span_end < seen ? unit_.span_end : seen;
      find_blocks(unit_.span_begin, last, blocks_.next);
      for (int64_t span = unit_.span_begin; span < end; ++span)
        attend_span(span, last, span + 1 < end);
      if (unit_.partial < 0) finish();
    }
  }

 private:
  static constexpr int64_t kUsualDim = 256;  // scratch is for so many columns of all rows

  int64_t row(int64_t i) const { return unit_.row_begin + (first_ + i) / group_; }
  int64_t head(int64_t i) const { return unit_.kv_head * group_ + (first_ + i) % group_; }

  void prepare(int64_t i) {
    const int64_t head_dim = attend_.layout.head_dim;
    const float* q = attend_.q + row(i) * attend_.q_stride + head(i) * head_dim;
    uint32_t* to = q_ + i * words_;
    positions_[i] = step_.positions[row(i)];
    factor_[i] = attend_.scale * kLog2E;
    if constexpr (kInt8) {
      int32_t total = 0;
      const float scale =
          quantize_head(q, head_dim, words_ * 4, reinterpret_cast<int8_t*>(to), &total);
      factor_[i] *= scale;
      offset_[i] = 128 * total;
    } else {
      round_head(q, head_dim, words_ * 2, reinterpret_cast<uint16_t*>(to));
    }
    maximum_[i] = kNoMaximum;
    sum_[i] = 0;
    std::memset(values_ + i * dim_, 0, size_t(dim_) * sizeof(float));
  }

  // Where the keys of a span's blocks begin; only blocks that hold a visible token are looked up.
  int64_t find_blocks(int64_t span, int64_t last, const uint8_t** keys) const {
    const int32_t* table = step_.tables + step_.table_begin[unit_.sequence] + span * kSpanBlocks;
    const int64_t blocks = (last - span * kSpanTokens) / kBlockTokens + 1;
    const int64_t count = blocks < kSpanBlocks ? blocks : kSpanBlocks;
    const uint8_t* first =
        attend_.blocks + attend_.layout.offset(attend_.layer, 0, unit_.kv_head);
    for (int64_t b = 0; b < count; ++b) keys[b] = first + table[b] * attend_.layout.block_bytes();
    return count;
  }

  // The span whose keys were the next one's becomes the present one.
  void enter_span(int64_t span, int64_t last, bool more) {
    const KvLayout& layout = attend_.layout;
    const int64_t apart = layout.offset(0, 1, 0) - layout.offset(0, 0, 0);
    const int64_t blocks = (last - span * kSpanTokens) / kBlockTokens + 1;
    blocks_.count = blocks < kSpanBlocks ? blocks : kSpanBlocks;
    for (int64_t b = 0; b < blocks_.count; ++b) {
      blocks_.keys[b] = blocks_.next[b];
      blocks_.values[b] = blocks_.keys[b] + apart;
      if constexpr (kInt8) {
        constexpr size_t kBytes = kBlockTokens * sizeof(float);
        const int64_t numbers = dim_ * kBlockTokens;
        std::memcpy(scales_ + b * kBlockTokens, blocks_.keys[b] + numbers, kBytes);
        std::memcpy(scales_ + kSpanTokens + b * kBlockTokens, blocks_.values[b] + numbers, kBytes);
      }
    }
    if (!more) return;
    const int64_t count = find_blocks(span + 1, last, blocks_.next);
    if constexpr (kInt8)
      for (int64_t b = 0; b < count; ++b) {
        fetch(blocks_.next[b] + dim_ * kBlockTokens);
        fetch(blocks_.next[b] + apart + dim_ * kBlockTokens);
      }
  }

  void attend_span(int64_t span, int64_t last, bool more) {
    const int64_t start = span * kSpanTokens;
    int64_t begin = 0;  // rows before it see nothing of the span
    while (positions_[begin] < start) ++begin;
    enter_span(span, last, more);
    const int64_t count = rows_ - begin, seen = blocks_.count * kBlockTokens;
    const int64_t width = round_up(seen, Dots::kUnitWords * Kv::kPerWord);
    const Queries queries{q_, offset_, words_, dim_ / Kv::kPerWord};
    dots_.score(queries.from(begin), blocks_, count, scores_);
    for (int64_t i = begin; i < rows_;) {
      const int64_t visible = positions_[i] - start + 1;
      const int64_t tokens = visible < seen ? visible : seen;
      int64_t same = 1;  // rows that see as much
      while (same < kSoftRows && i + same < rows_ &&
             (visible >= seen || positions_[i + same] == positions_[i]))
        ++same;
      with_constant<kSoftRows>(same, [&]<int R>() { soften<R>(begin, i, tokens, width); });
      i += same;
    }
    if (unit_.partial < 0)
      merge_span(begin, count);
    else
      keep_span(span, begin, count);
  }

  template <int R>
  void soften(int64_t begin, int64_t i, int64_t tokens, int64_t width) {
    const uint32_t* scores = scores_ + (i - begin) * kSpanTokens;
    uint32_t* p = p_ + (i - begin) * Kv::kSpanWords;
    const Soft to{next_maximum_ + i, next_sum_ + i, unit_of_ + i};
    if constexpr (kInt8)
      softmax_int8<R>(reinterpret_cast<const int32_t*>(scores), tokens, width, factor_ + i,
                      scales_, p, to);
    else
      softmax_bf16<R>(reinterpret_cast<const float*>(scores), tokens, width, factor_ + i, p, to);
  }

  // The sum of kWidth columns of a row's weighted values as numbers.
  TERCET_LEAF static Floats weighted(typename Kv::Sum sum, Floats unit) {
    if constexpr (kInt8)
      return __builtin_convertvector(sum, Floats) * unit;
    else
      return sum + 0.0f;  // never -0, as blocks with zero probabilities would make it
  }

  void merge_span(int64_t begin, int64_t count) {
    for (int64_t i = 0; i < begin; ++i) next_maximum_[i] = kNoMaximum, next_sum_[i] = 0;
    for (int64_t i = 0; i < rows_; i += kWidth) {
      const Merged now = merged(load<Floats>(maximum_ + i), load<Floats>(sum_ + i),
                                load<Floats>(next_maximum_ + i), load<Floats>(next_sum_ + i));
      store(maximum_ + i, now.maximum);
      store(sum_ + i, now.sum);
      store(keep_ + i, now.keep);
      store(take_ + i, now.take);
    }
    dots_.weigh(p_, blocks_, dim_, count,
                [&](int64_t r, int64_t column, const auto& sums) __attribute__((always_inline)) {
                  const int64_t i = begin + r;
                  const Floats keep = floats(keep_[i]), take = floats(take_[i]);
                  const Floats unit = floats(unit_of_[i]);
                  float* to = values_ + i * dim_ + column;
                  for (const auto& sum : sums) {
                    store(to, fused(load<Floats>(to), keep, weighted(sum, unit) * take));
                    to += kWidth;
                  }
                });
  }

  void keep_span(int64_t span, int64_t begin, int64_t count) {
    const int64_t size = dim_ + 2;
    const auto entry = [&](int64_t i) __attribute__((always_inline)) {
      const int64_t at = (row(i) - unit_.row_begin) * spans_ + span;
      return attend_.partials + (unit_.partial + at * group_ + (first_ + i) % group_) * size;
    };
    for (int64_t i = begin; i < rows_; ++i) {
      entry(i)[dim_] = next_maximum_[i];
      entry(i)[dim_ + 1] = next_sum_[i];
    }
    dots_.weigh(p_, blocks_, dim_, count,
                [&](int64_t r, int64_t column, const auto& sums) __attribute__((always_inline)) {
                  float* to = entry(begin + r) + column;
                  const Floats unit = floats(unit_of_[begin + r]);
                  for (const auto& sum : sums) {
                    store(to, weighted(sum, unit));
                    to += kWidth;
                  }
                });
  }

  void finish() {
    const int64_t head_dim = attend_.layout.head_dim;
    for (int64_t i = 0; i < rows_; ++i)
      divide(values_ + i * dim_, sum_[i], head_dim,
             attend_.y + row(i) * attend_.y_stride + head(i) * head_dim);
  }

  const Attend& attend_;
  const AttendUnit& unit_;
  const StepShape& step_;
  const int64_t group_, dim_, words_;
  const int64_t spans_;  // of the unit's last row: partials of all its rows are so far apart
  int64_t first_ = 0, rows_ = 0;
  Dots dots_;
  SpanBlocks blocks_;
  PerRow<kRows> maximum_ = {}, sum_ = {}, next_maximum_ = {}, next_sum_ = {};
  PerRow<kRows> factor_, unit_of_, keep_, take_;
  PerRow<kRows, int32_t> positions_, offset_ = {};
  alignas(64) float scales_[2 * kSpanTokens];
  alignas(64) uint32_t q_[(kRows * kUsualDim + Dots::kSpareRows * kMaxHeadDim) / Kv::kPerWord];
  alignas(64) uint32_t scores_[kRows * kSpanTokens];
  alignas(64) uint32_t p_[kRows * Kv::kSpanWords];
  alignas(64) float values_[kRows * kUsualDim];
};

inline void merge_spans(const Attend& attend, const MergeUnit& unit) {
  const int64_t head_dim = attend.layout.head_dim, dim = attend.layout.padded_dim();
  const int64_t group = attend.heads / attend.layout.kv_heads, size = dim + 2;
  alignas(64) float values[kMaxHeadDim];
  for (int64_t g = 0; g < group; ++g) {
    Floats maximum = floats(kNoMaximum), sum{};
    std::memset(values, 0, size_t(dim) * sizeof(float));
    for (int64_t span = 0; span < unit.spans; ++span) {
      const float* entry = attend.partials + (unit.partial + span * group + g) * size;
      const Merged now = merged(maximum, sum, floats(entry[dim]), floats(entry[dim + 1]));
      maximum = now.maximum;
      sum = now.sum;
      for (int64_t c = 0; c < dim; c += kWidth) {
        const Floats next = load<Floats>(entry + c) * now.take;
        store(values + c, fused(load<Floats>(values + c), now.keep, next));
      }
    }
    divide(values, sum[0], head_dim,
           attend.y + unit.row * attend.y_stride + (unit.kv_head * group + g) * head_dim);
  }
}

}  // namespace tercet::TERCET_ISA
