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

// Over the lanes, in one fixed order: halves, quarters, ...
TERCET_LEAF float largest(Floats a) {
#if defined(__AVX512F__)
  const __m512 x = __m512(a);
  __m512 y = _mm512_mask_max_ps(x, 0xffff, x, _mm512_maskz_shuffle_f32x4(0xffff, x, x, 0x4e));
  y = _mm512_mask_max_ps(y, 0xffff, y, _mm512_maskz_shuffle_f32x4(0xffff, y, y, 0xb1));
  __m128 z = _mm512_castps512_ps128(y);
  z = _mm_max_ps(z, _mm_movehl_ps(z, z));
  return _mm_cvtss_f32(_mm_max_ss(z, _mm_movehdup_ps(z)));
#else
  float result = a[0];
  for (int lane = 1; lane < kWidth; ++lane) result = a[lane] > result ? a[lane] : result;
  return result;
#endif
}

TERCET_LEAF float total(Floats a) {
#if defined(__AVX512F__)
  const __m512 x = __m512(a);
  __m512 y = _mm512_add_ps(x, _mm512_maskz_shuffle_f32x4(0xffff, x, x, 0x4e));
  y = _mm512_add_ps(y, _mm512_maskz_shuffle_f32x4(0xffff, y, y, 0xb1));
  __m128 z = _mm512_castps512_ps128(y);
  z = _mm_add_ps(z, _mm_movehl_ps(z, z));
  return _mm_cvtss_f32(_mm_add_ss(z, _mm_movehdup_ps(z)));
#else
  float lanes[kWidth];
  store(lanes, a);
  for (int half = kWidth / 2; half > 0; half /= 2)
    for (int lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
  return lanes[0];
#endif
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

// Softmax of rows that see the same `tokens` of a span: so many are done at once that one's waiting
// is another's work.
inline constexpr int kSoftRows = 4;

// What softmax gives of R neighbouring rows, besides the probabilities.
struct Soft {
  float* maximum;  // of scores times log2(e)
  float* sum;      // of the probabilities
  float* unit;     // INT8: what one step of a quantised probability (times value scale) means
};

// Numbers of [0, 255] to bytes, in order.
TERCET_LEAF void store_bytes(uint8_t* to, Words numbers) {
#if defined(__AVX512F__)
  store(to, _mm512_maskz_cvtepi32_epi8(0xffff, __m512i(numbers)));
#else
  using Bytes = uint8_t __attribute__((vector_size(kWidth)));
  store(to, __builtin_convertvector(numbers, Bytes));
#endif
}

// Lanes from `from` on that are below `end`.
TERCET_LEAF auto lanes_below(int64_t end, int64_t from) { return lane_numbers() < int(end - from); }

// BF16: scores are floats; scales[R] include log2(e). Probabilities of the visible tokens, zeros
// after them up to `width`. The sum is that of the rounded probabilities: they add up to one.
template <int R>
TERCET_LEAF void softmax_bf16(const float* scores, int64_t tokens, int64_t width,
                              const float* scales, uint32_t* p, Soft to) {
  constexpr int64_t kStep = 2 * kWidth, kWords = Bf16Kv::kSpanWords;
  const int64_t whole = tokens / kStep * kStep;
  Floats most[R], sum[R] = {}, factor[R], bias[R];
  for (int r = 0; r < R; ++r) most[r] = floats(-FLT_MAX);
  for (int64_t t = 0; t < whole; t += kWidth)
    for (int r = 0; r < R; ++r)
      most[r] = larger(most[r], load<Floats>(scores + r * kSpanTokens + t));
  for (int64_t t = whole; t < tokens; t += kWidth)
    for (int r = 0; r < R; ++r) {
      const Floats score = load<Floats>(scores + r * kSpanTokens + t);
      most[r] = lanes_below(tokens, t) ? larger(most[r], score) : most[r];
    }
  for (int r = 0; r < R; ++r) {
    to.maximum[r] = largest(most[r]) * scales[r];
    factor[r] = floats(scales[r]), bias[r] = floats(-to.maximum[r]);
  }
  const Words ones = Words{} + 0x3f803f80u;
  const auto weight = [&](int r, int64_t t) __attribute__((always_inline)) {
    return power_of_two(fused(load<Floats>(scores + r * kSpanTokens + t), factor[r], bias[r]));
  };
  const auto put = [&](int r, int64_t t, Floats low, Floats high) __attribute__((always_inline)) {
    const Words packed = pack_bf16(low, high);
    store(p + r * kWords + t / 2, packed);
    sum[r] = dot_bf16(sum[r], packed, ones);
  };
  for (int64_t t = 0; t < whole; t += kStep)
    for (int r = 0; r < R; ++r) put(r, t, weight(r, t), weight(r, t + kWidth));
  if (whole < tokens)
    for (int r = 0; r < R; ++r)
      put(r, whole, lanes_below(tokens, whole) ? weight(r, whole) : Floats{},
          lanes_below(tokens, whole + kWidth) ? weight(r, whole + kWidth) : Floats{});
  for (int r = 0; r < R; ++r) {
    to.sum[r] = total(sum[r]);
    for (int64_t t = whole + (whole < tokens ? kStep : 0); t < width; t += kStep)
      store(p + r * kWords + t / 2, Words{});
  }
}

// INT8: scores are integers; kv_scales[2][128] of the span's keys and values. Probabilities times
// the values' scales become u8 with one unit for the row.
template <int R>
TERCET_LEAF void softmax_int8(const int32_t* scores, int64_t tokens, int64_t width,
                              const float* scales, const float* kv_scales, uint32_t* p,
                              Soft to) {
  constexpr int64_t kBytes = Int8Kv::kSpanWords * 4;
  const int64_t whole = tokens / kWidth * kWidth, end = round_up(tokens, kWidth);
  Floats raw[R][kSpanTokens / kWidth];
  Floats most[R], sum[R] = {}, heaviest[R] = {}, factor[R], bias[R], steps[R];
  for (int r = 0; r < R; ++r) most[r] = floats(-FLT_MAX);
  const auto score = [&](int r, int64_t t) __attribute__((always_inline)) {
    const Ints number = load<Ints>(scores + r * kSpanTokens + t);
    return __builtin_convertvector(number, Floats) * load<Floats>(kv_scales + t);
  };
  for (int64_t t = 0; t < whole; t += kWidth)
    for (int r = 0; r < R; ++r) {
      raw[r][t / kWidth] = score(r, t);
      most[r] = larger(most[r], raw[r][t / kWidth]);
    }
  if (whole < tokens)
    for (int r = 0; r < R; ++r) {
      raw[r][whole / kWidth] = score(r, whole);
      most[r] = lanes_below(tokens, whole) ? larger(most[r], raw[r][whole / kWidth]) : most[r];
    }
  for (int r = 0; r < R; ++r) {
    to.maximum[r] = largest(most[r]) * scales[r];
    factor[r] = floats(scales[r]), bias[r] = floats(-to.maximum[r]);
  }
  const auto weigh = [&](int r, int64_t t, Floats weight) __attribute__((always_inline)) {
    sum[r] += weight;
    raw[r][t / kWidth] = weight * load<Floats>(kv_scales + kSpanTokens + t);
    heaviest[r] = larger(heaviest[r], raw[r][t / kWidth]);
  };
  for (int64_t t = 0; t < whole; t += kWidth)
    for (int r = 0; r < R; ++r)
      weigh(r, t, power_of_two(fused(raw[r][t / kWidth], factor[r], bias[r])));
  if (whole < tokens)
    for (int r = 0; r < R; ++r) {
      const Floats weight = power_of_two(fused(raw[r][whole / kWidth], factor[r], bias[r]));
      weigh(r, whole, lanes_below(tokens, whole) ? weight : Floats{});
    }
  for (int r = 0; r < R; ++r) {
    const float top = largest(heaviest[r]);
    to.sum[r] = total(sum[r]);
    to.unit[r] = top * (1.0f / 255.0f);
    steps[r] = floats(top > FLT_MIN * 256 ? 255.0f / top : 0.0f);
  }
  uint8_t* bytes = reinterpret_cast<uint8_t*>(p);
  for (int64_t t = 0; t < end; t += kWidth)
    for (int r = 0; r < R; ++r) {
      // Adding 2^23 leaves the nearest integer in the low bits.
      const Words number = bits<Words>(raw[r][t / kWidth] * steps[r] + floats(8388608.0f));
      store_bytes(bytes + r * kBytes + t, number);
    }
  for (int r = 0; r < R; ++r)
    if (end < width) std::memset(bytes + r * kBytes + end, 0, size_t(width - end));
}

}  // namespace tercet::TERCET_ISA
