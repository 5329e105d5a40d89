// One head's numbers: to the grids in which attention multiplies them, and from its sums.
#pragma once

#include <cfloat>

#include "simd.h"

namespace tercet::TERCET_ISA {

// Sixteen numbers from `from` on, zeros from `count` on.
inline __attribute__((always_inline)) f32x16 load_head(const float* from, int64_t count) {
  if (count >= kLanes) return load<f32x16>(from);
  f32x16 value{};
  for (int64_t lane = 0; lane < count; ++lane) value[lane] = from[lane];
  return value;
}

// To bfloat16, nearest even; zeros up to `padded`, a multiple of 16.
inline __attribute__((always_inline)) void round_head(const float* from, int64_t dim,
                                                      int64_t padded, uint16_t* to) {
  for (int64_t d = 0; d < padded; d += kLanes) store(to + d, to_bf16(load_head(from + d, dim - d)));
}

// Numbers of [-128, 127] to bytes, in order.
inline __attribute__((always_inline)) void store_signed(int8_t* to, i32x16 numbers) {
#if defined(__AVX512F__)
  store(to, _mm512_maskz_cvtepi32_epi8(0xffff, __m512i(numbers)));
#else
  for (int lane = 0; lane < kLanes; ++lane) to[lane] = int8_t(numbers[lane]);
#endif
}

// To integers of [-127, 127] and their sum; returns the scale, absmax / 127.
inline __attribute__((always_inline)) float quantize_head(const float* from, int64_t dim,
                                                          int64_t padded, int8_t* to,
                                                          int32_t* total) {
  f32x16 most{};
  for (int64_t d = 0; d < padded; d += kLanes) most = max(most, abs(load_head(from + d, dim - d)));
  const float scale = max(most) / 127.0f;
  i32x16 sums{};
  for (int64_t d = 0; d < padded; d += kLanes) {
    i32x16 number{};
    if (scale > 0) {
      // A denormal scale is coarse: it may leave a quotient beyond 127.
      const f32x16 quotient = load_head(from + d, dim - d) / splat(scale);
      number = to_int(round_even(max(min(quotient, splat(127.0f)), splat(-127.0f))));
    }
    sums += number;
    store_signed(to + d, number);
  }
  *total = 0;
  for (int lane = 0; lane < kLanes; ++lane) *total += sums[lane];
  return scale;
}

// y = values / sum.
inline __attribute__((always_inline)) void divide(const float* values, float sum, int64_t dim,
                                                  float* y) {
  const f32x16 inverse = splat(1.0f / sum);
  for (int64_t d = 0; d < dim; d += kLanes) {
    const f32x16 result = load<f32x16>(values + d) * inverse;
    if (dim - d >= kLanes)
      store(y + d, result);
    else
      for (int64_t lane = 0; lane < dim - d; ++lane) y[d + lane] = result[lane];
  }
}

}  // namespace tercet::TERCET_ISA
