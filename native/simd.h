// Vectors of sixteen lanes, whatever the machine: the compiler's vector extension splits them
// where registers are shorter. Kernels are written once over these and compiled once for each
// instruction set, in a namespace of its own (TERCET_ISA), so that no symbol is shared.
//
// Nothing here may round differently for different numbers of rows: contraction is off
// (-ffp-contract=off), and a multiply-add is fused only where `fma` says so.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#ifndef TERCET_ISA
#error "compile kernels with -DTERCET_ISA=<name>"
#endif

namespace tercet::TERCET_ISA {

inline constexpr int kLanes = 16;

using f32x16 = float __attribute__((vector_size(64)));
using i32x16 = int32_t __attribute__((vector_size(64)));
using u32x16 = uint32_t __attribute__((vector_size(64)));
using i8x64 = int8_t __attribute__((vector_size(64)));
using u8x64 = uint8_t __attribute__((vector_size(64)));
using u16x16 = uint16_t __attribute__((vector_size(32)));
using i8x16 = int8_t __attribute__((vector_size(16)));
using u8x16 = uint8_t __attribute__((vector_size(16)));

template <typename V, typename T>
inline V load(const T* from) {
  V value;
  std::memcpy(&value, from, sizeof(V));
  return value;
}

template <typename V, typename T>
inline void store(T* to, V value) {
  std::memcpy(to, &value, sizeof(V));
}

inline f32x16 splat(float value) { return f32x16{} + value; }
inline i32x16 splat(int32_t value) { return i32x16{} + value; }
inline u32x16 splat(uint32_t value) { return u32x16{} + value; }

template <typename To, typename From>
inline To bits(From value) {
  static_assert(sizeof(To) == sizeof(From));
  To result;
  std::memcpy(&result, &value, sizeof(To));
  return result;
}

// a * b + c; one rounding where the instruction set has it, two where it does not.
inline f32x16 fma(f32x16 a, f32x16 b, f32x16 c) {
#if defined(__AVX512F__)
  return f32x16(_mm512_fmadd_ps(__m512(a), __m512(b), __m512(c)));
#elif defined(__FMA__)
  f32x16 result;
  __m256 halves[2];
  __m256 x[2], y[2], z[2];
  std::memcpy(x, &a, 64), std::memcpy(y, &b, 64), std::memcpy(z, &c, 64);
  halves[0] = _mm256_fmadd_ps(x[0], y[0], z[0]);
  halves[1] = _mm256_fmadd_ps(x[1], y[1], z[1]);
  std::memcpy(&result, halves, 64);
  return result;
#elif defined(__aarch64__)
  f32x16 result;
  for (int lane = 0; lane < kLanes; ++lane) result[lane] = __builtin_fmaf(a[lane], b[lane], c[lane]);
  return result;
#else
  return a * b + c;
#endif
}

inline float fma(float a, float b, float c) {
#if defined(__FMA__) || defined(__aarch64__)
  return __builtin_fmaf(a, b, c);
#else
  return a * b + c;
#endif
}

inline f32x16 max(f32x16 a, f32x16 b) {
#if defined(__AVX512F__)
  return f32x16(_mm512_max_ps(__m512(a), __m512(b)));
#else
  return a > b ? a : b;
#endif
}

inline f32x16 min(f32x16 a, f32x16 b) { return a < b ? a : b; }

inline f32x16 abs(f32x16 a) { return bits<f32x16>(bits<u32x16>(a) & splat(0x7fffffffu)); }

// Round to nearest even, for |a| < 2^22.
inline f32x16 round_even(f32x16 a) {
#if defined(__AVX512F__)
  return f32x16(_mm512_roundscale_ps(__m512(a), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
#else
  const f32x16 big = splat(12582912.0f);  // 1.5 x 2^23: adding it leaves no fraction
  return (a + big) - big;
#endif
}

inline i32x16 to_int(f32x16 a) { return __builtin_convertvector(a, i32x16); }
inline f32x16 to_float(i32x16 a) { return __builtin_convertvector(a, f32x16); }

// Sums and maxima over the lanes in one fixed order: halves, quarters, ...
inline float sum(f32x16 a) {
  float lanes[16];
  std::memcpy(lanes, &a, 64);
  for (int half = 8; half > 0; half /= 2)
    for (int lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
  return lanes[0];
}

inline float max(f32x16 a) {
  float lanes[16];
  std::memcpy(lanes, &a, 64);
  for (int half = 8; half > 0; half /= 2)
    for (int lane = 0; lane < half; ++lane)
      lanes[lane] = lanes[lane] > lanes[lane + half] ? lanes[lane] : lanes[lane + half];
  return lanes[0];
}

// bfloat16 by its bits; rounding to nearest even, NaN stays NaN.
inline float from_bf16(uint16_t value) { return bits<float>(uint32_t(value) << 16); }

inline uint16_t to_bf16(float value) {
  uint32_t raw = bits<uint32_t>(value);
  if ((raw & 0x7fffffffu) > 0x7f800000u) return uint16_t(raw >> 16 | 0x40);
  return uint16_t((raw + 0x7fffu + (raw >> 16 & 1)) >> 16);
}

inline f32x16 from_bf16(u16x16 value) {
  return bits<f32x16>(__builtin_convertvector(value, u32x16) << 16);
}

inline u16x16 to_bf16(f32x16 value) {
  const u32x16 raw = bits<u32x16>(value);
  const u32x16 rounded = (raw + 0x7fffu + (raw >> 16 & 1)) >> 16;
  const auto nan = (raw & 0x7fffffffu) > 0x7f800000u;
  const u32x16 kept = nan ? (raw >> 16 | 0x40) : rounded;
  return __builtin_convertvector(kept, u16x16);
}

inline float from_f16(uint16_t value) {
#if defined(__F16C__)
  return _cvtsh_ss(value);
#else
  const uint32_t sign = uint32_t(value & 0x8000) << 16, rest = value & 0x7fff;
  if (rest >= 0x7c00) return bits<float>(sign | 0x7f800000u | (rest & 0x3ff) << 13);
  // Shift exponent and mantissa into place and let a multiplication normalise denormals.
  return bits<float>(sign | bits<uint32_t>(bits<float>(rest << 13) * 0x1p112f));
#endif
}

// e^x: exact to about 1 ulp for the range that softmax and silu use; -inf and x < -87 give 0.
// x = n ln2 + r, |r| <= ln2 / 2; e^r by a polynomial of degree 6 (Cephes' expf, Moshier 1992).
inline f32x16 exp(f32x16 x) {
  const auto tiny = x < splat(-87.0f);
  x = min(x, splat(88.0f));
  x = tiny ? splat(0.0f) : x;
  const f32x16 n = round_even(x * splat(1.44269504088896341f));
  f32x16 r = fma(n, splat(-0.693359375f), x);
  r = fma(n, splat(2.12194440e-4f), r);
  f32x16 p = splat(1.9875691500e-4f);
  p = fma(p, r, splat(1.3981999507e-3f));
  p = fma(p, r, splat(8.3334519073e-3f));
  p = fma(p, r, splat(4.1665795894e-2f));
  p = fma(p, r, splat(1.6666665459e-1f));
  p = fma(p, r, splat(5.0000001201e-1f));
  p = fma(p, r * r, r) + splat(1.0f);
  const i32x16 exponent = (to_int(n) + 127) << 23;
  const f32x16 result = p * bits<f32x16>(exponent);
  return tiny ? splat(0.0f) : result;
}

inline f32x16 silu(f32x16 x) { return x / (splat(1.0f) + exp(-x)); }

}  // namespace tercet::TERCET_ISA
