// Dot products of neighbouring numbers, lane by lane, by the best instruction of the set. The only
// place besides simd.h where linear kernels look at the instruction set.
//
// A vector here is as wide as the machine's registers (kWidth lanes of four bytes), so that
// accumulators stay in registers: the sixteen lanes of simd.h would lie in memory on short ones.
#pragma once

#include "simd.h"

#if defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace tercet::TERCET_ISA {

#if defined(__AVX512F__)
inline constexpr int kWidth = 16;
#elif defined(__AVX2__)
inline constexpr int kWidth = 8;
#else
inline constexpr int kWidth = 4;
#endif

using Floats = float __attribute__((vector_size(kWidth * 4)));
using Ints = int32_t __attribute__((vector_size(kWidth * 4)));
using Words = uint32_t __attribute__((vector_size(kWidth * 4)));
using Shorts = int16_t __attribute__((vector_size(kWidth * 4)));

#define TERCET_LEAF inline __attribute__((always_inline))

TERCET_LEAF Words load_words(const uint8_t* from) { return load<Words>(from); }

// The same four bytes in all lanes.
TERCET_LEAF Words splat_word(const uint8_t* from) {
  uint32_t word;
  std::memcpy(&word, from, sizeof(word));
  return Words{} + word;
}

// Sums of two neighbouring products of 16-bit integers.
TERCET_LEAF Ints madd(Shorts a, Shorts b) {
#if defined(__AVX512BW__)
  return Ints(_mm512_madd_epi16(__m512i(a), __m512i(b)));
#elif defined(__AVX2__)
  return Ints(_mm256_madd_epi16(__m256i(a), __m256i(b)));
#elif defined(__SSE2__)
  return Ints(_mm_madd_epi16(__m128i(a), __m128i(b)));
#else
  const Ints x = Ints(a), y = Ints(b);
  return (x << 16 >> 16) * (y << 16 >> 16) + (x >> 16) * (y >> 16);
#endif
}

// sum + the four products of unsigned bytes of `weights` and signed bytes of `x`, exact (modulo
// 2^32).
TERCET_LEAF Ints dot_u8s8(Ints sum, Words weights, Words x) {
#if defined(__AVX512VNNI__)
  return Ints(_mm512_dpbusd_epi32(__m512i(sum), __m512i(weights), __m512i(x)));
#else
  // Products of bytes in 16 bits would saturate (VPMADDUBSW), so bytes are widened: even and odd
  // ones of each word apart.
  const Shorts even = Shorts(weights & 0x00ff00ffu), odd = Shorts(weights >> 8 & 0x00ff00ffu);
  const Shorts x_even = Shorts(x << 8 & 0xff00ff00u) >> 8, x_odd = Shorts(x) >> 8;
  return Ints(Words(sum) + Words(madd(even, x_even)) + Words(madd(odd, x_odd)));
#endif
}

// a * b + c, rounded as `fma` of simd.h does.
TERCET_LEAF Floats fused(Floats a, Floats b, Floats c) {
#if defined(__AVX512F__)
  return Floats(_mm512_fmadd_ps(__m512(a), __m512(b), __m512(c)));
#elif defined(__FMA__)
  return Floats(_mm256_fmadd_ps(__m256(a), __m256(b), __m256(c)));
#elif defined(__aarch64__)
  return Floats(vfmaq_f32(float32x4_t(c), float32x4_t(a), float32x4_t(b)));
#else
  return a * b + c;
#endif
}

// sum + the two products of bfloat16 pairs: by VDPBF16PS, or the first and then the second by fma.
TERCET_LEAF Floats dot_bf16(Floats sum, Words weights, Words x) {
#if defined(__AVX512BF16__)
  return Floats(_mm512_dpbf16_ps(__m512(sum), __m512bh(weights), __m512bh(x)));
#else
  sum = fused(Floats(weights << 16), Floats(x << 16), sum);
  return fused(Floats(weights & 0xffff0000u), Floats(x & 0xffff0000u), sum);
#endif
}

}  // namespace tercet::TERCET_ISA
