// Softmax of one span: scores of a tile's rows to probabilities as the dot instructions take them,
// with maximum and sum; and how two spans are merged. Exponents are of base 2: log2(e) is folded
// into the scale.
#pragma once

#include <cfloat>

#include "kernels/attend_dots.h"

namespace tercet::TERCET_ISA {

TERCET_LEAF Floats floats(float value) { return Floats{} + value; }

TERCET_LEAF Floats larger(Floats a, Floats b) {
#if defined(__AVX512F__)
  return Floats(_mm512_mask_max_ps(__m512(a), 0xffff, __m512(a), __m512(b)));
#elif defined(__AVX2__)
  return Floats(_mm256_max_ps(__m256(a), __m256(b)));
#else
  return a > b ? a : b;
#endif
}

// Over the lanes, in one fixed order.
TERCET_LEAF float largest(Floats a) {
#if defined(__AVX512F__)
  return _mm512_reduce_max_ps(__m512(a));
#else
  float result = a[0];
  for (int lane = 1; lane < kWidth; ++lane) result = a[lane] > result ? a[lane] : result;
  return result;
#endif
}

TERCET_LEAF float total(Floats a) {
  float lanes[kWidth];
  store(lanes, a);
  for (int half = kWidth / 2; half > 0; half /= 2)
    for (int lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
  return lanes[0];
}

TERCET_LEAF Ints lane_numbers() {
  Ints lanes;
  for (int lane = 0; lane < kWidth; ++lane) lanes[lane] = lane;
  return lanes;
}

// 2^x for x <= 1 to about 1 ulp; what is below 2^-126 gives about that. 2^x = 2^n 2^r, |r| <= 1/2;
// 2^r by a minimax polynomial of degree 5 (relative error 1.1e-7).
TERCET_LEAF Floats power_of_two(Floats x) {
  x = larger(x, floats(-126.0f));
  const Floats big = floats(12582912.0f);  // 1.5 x 2^23: adding it rounds to an integer
  const Floats shifted = x + big;
  const Floats r = x - (shifted - big);
  Floats p = floats(1.32647273e-3f);
  p = fused(p, r, floats(9.67151299e-3f));
  p = fused(p, r, floats(5.55073358e-2f));
  p = fused(p, r, floats(2.40222424e-1f));
  p = fused(p, r, floats(6.93147004e-1f));
  p = fused(p, r, floats(1.0f));
  return bits<Floats>(bits<Words>(p) + (bits<Words>(shifted) << 23));
}

// Maximum and sum of a row over the spans so far, and the factors with which its weighted values
// so far and those of the next span go into the merged ones.
struct Merged {
  Floats maximum, sum, keep, take;
};

TERCET_LEAF Merged merged(Floats maximum, Floats sum, Floats next_maximum, Floats next_sum) {
  const Floats most = larger(maximum, next_maximum);
  const Floats keep = power_of_two(maximum - most), take = power_of_two(next_maximum - most);
  return {most, fused(sum, keep, next_sum * take), keep, take};
}

inline constexpr float kNoMaximum = -1e30f;  // before the first span

// What softmax gives of a row and span, besides the probabilities.
struct Soft {
  float maximum;  // of scores times log2(e)
  float sum;      // of the probabilities
  float unit;     // INT8: what one step of a quantised probability (times value scale) means
};

// Two vectors of probabilities as bfloat16, rounded to nearest even, in the order of tokens.
TERCET_LEAF Words pack_bf16(Floats low, Floats high) {
#if defined(__AVX512BF16__)
  return Words(_mm512_cvtne2ps_pbh(__m512(high), __m512(low)));
#else
  using Half = uint16_t __attribute__((vector_size(kWidth * 2)));
  const auto rounded = [](Floats value) {
    const Words raw = bits<Words>(value);
    return __builtin_convertvector((raw + 0x7fffu + (raw >> 16 & 1)) >> 16, Half);
  };
  const Half halves[2] = {rounded(low), rounded(high)};
  return load<Words>(halves);
#endif
}

// BF16: scores are floats; `scale` includes log2(e). Probabilities [64] words for `tokens` visible
// ones, zeros up to `width` tokens. The sum is that of the rounded probabilities, so that they
// add up to one.
TERCET_LEAF Soft softmax_bf16(const float* scores, int64_t tokens, int64_t width, float scale,
                              uint32_t* p) {
  constexpr int64_t kStep = 2 * kWidth;
  const int64_t whole = tokens / kStep * kStep;
  const int rest = int(tokens - whole);
  const Ints lanes = lane_numbers();
  const auto low_seen = lanes < rest, high_seen = lanes + kWidth < rest;
  Floats most = floats(-FLT_MAX);
  for (int64_t t = 0; t < whole; t += kWidth) most = larger(most, load<Floats>(scores + t));
  if (rest > 0) {
    most = larger(most, low_seen ? load<Floats>(scores + whole) : most);
    most = larger(most, high_seen ? load<Floats>(scores + whole + kWidth) : most);
  }
  const float maximum = largest(most) * scale;
  const Floats factor = floats(scale), bias = floats(-maximum);
  const auto weight = [&](int64_t t) __attribute__((always_inline)) {
    return power_of_two(fused(load<Floats>(scores + t), factor, bias));
  };
  const Words ones = Words{} + 0x3f803f80u;
  Floats sum{};
  for (int64_t t = 0; t < whole; t += kStep) {
    const Words packed = pack_bf16(weight(t), weight(t + kWidth));
    store(p + t / 2, packed);
    sum = dot_bf16(sum, packed, ones);
  }
  if (rest > 0) {
    const Words packed = pack_bf16(low_seen ? weight(whole) : floats(0.0f),
                                   high_seen ? weight(whole + kWidth) : floats(0.0f));
    store(p + whole / 2, packed);
    sum = dot_bf16(sum, packed, ones);
  }
  for (int64_t t = whole + (rest > 0 ? kStep : 0); t < width; t += kStep) store(p + t / 2, Words{});
  return {maximum, total(sum), 1.0f};
}

// INT8: scores are integers, products of u8 keys (+128) with s8 queries, `offset` of which is due to
// the 128; scales[2][128] of the span's keys and values. Probabilities times the values' scales
// become u8 with one unit for the row: [32] words.
TERCET_LEAF Soft softmax_int8(const int32_t* scores, int64_t tokens, int64_t width, float scale,
                              int32_t offset, const float* scales, uint32_t* p) {
  const Ints lanes = lane_numbers();
  const int64_t vectors = (tokens + kWidth - 1) / kWidth;
  Floats raw[kSpanTokens / kWidth];
  Floats most = floats(-FLT_MAX);
  for (int64_t v = 0; v < vectors; ++v) {
    const Floats number = __builtin_convertvector(load<Ints>(scores + v * kWidth) - offset, Floats);
    raw[v] = number * load<Floats>(scales + v * kWidth);
    const auto seen = lanes < int(tokens - v * kWidth);
    raw[v] = seen ? raw[v] : floats(-FLT_MAX);
    most = larger(most, raw[v]);
  }
  const float maximum = largest(most) * scale;
  const Floats factor = floats(scale), bias = floats(-maximum);
  Floats sum{}, heaviest{};
  for (int64_t v = 0; v < vectors; ++v) {
    const auto seen = lanes < int(tokens - v * kWidth);
    Floats weight = power_of_two(fused(raw[v], factor, bias));
    weight = seen ? weight : floats(0.0f);
    sum += weight;
    raw[v] = weight * (seen ? load<Floats>(scales + kSpanTokens + v * kWidth) : floats(0.0f));
    heaviest = larger(heaviest, raw[v]);
  }
  const float top = largest(heaviest);
  const Floats steps = floats(top > FLT_MIN * 256 ? 255.0f / top : 0.0f);
  uint8_t* to = reinterpret_cast<uint8_t*>(p);
  for (int64_t v = 0; v < vectors; ++v) {
    // Adding 2^23 leaves the nearest integer in the low bits.
    const Words number = bits<Words>(raw[v] * steps + floats(8388608.0f));
    using Bytes = uint8_t __attribute__((vector_size(kWidth)));
    store(to + v * kWidth, __builtin_convertvector(number, Bytes));
  }
  for (int64_t t = vectors * kWidth; t < width; t += kWidth)
    std::memset(to + t, 0, size_t(kWidth));
  return {maximum, total(sum), top * (1.0f / 255.0f)};
}

}  // namespace tercet::TERCET_ISA
