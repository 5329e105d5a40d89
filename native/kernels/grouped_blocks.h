// GGUF blocks as they lie in panels (grouped_packing.h), read kWidth outputs at a time.
//
// Each format says, for a block, one of its groups of 32 inputs and the first output of a vector:
//
//   codes    unsigned bytes of quads `pair` and 4 + `pair` of the group, a quad to each output
//   scales   factor of the codes, float32, exact
//   minima   what is added to codes times scale (kMinima only), float32, exact
//   parts    factors of the quads 0..3 and 4..7 apart (kParts only), small integers
//   value    one number in float32, as the `gguf` package computes it
//
// kOffset is what is to be taken from each code.
#pragma once

#include "kernels/dot.h"

namespace tercet::TERCET_ISA {

inline constexpr int64_t kHalves = kPanel * 2;        // bytes of one f16 for each output
inline constexpr int64_t kQuads = kPanel * 4;         // bytes of a quad of each output
inline constexpr int64_t kNibbles = 4 * kQuads;       // bytes of a group's nibbles

// f16 numbers of kWidth outputs.
TERCET_LEAF Floats halves(const uint8_t* from) {
#if defined(__AVX512F__)
  // With a mask, because GCC 12 takes what the plain intrinsic leaves open for uninitialized.
  return Floats(_mm512_maskz_cvtph_ps(0xffff, load<__m256i>(from)));
#elif defined(__F16C__)
  return Floats(_mm256_cvtph_ps(load<__m128i>(from)));
#else
  Floats result;
  for (int lane = 0; lane < kWidth; ++lane) {
    uint16_t half;
    std::memcpy(&half, from + 2 * lane, 2);
    result[lane] = from_f16(half);
  }
  return result;
#endif
}

// Signed bytes of kWidth outputs.
TERCET_LEAF Ints signed_bytes(const uint8_t* from) {
#if defined(__AVX512F__)
  return Ints(_mm512_maskz_cvtepi8_epi32(0xffff, load<__m128i>(from)));
#elif defined(__AVX2__)
  return Ints(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from))));
#else
  Ints result;
  for (int lane = 0; lane < kWidth; ++lane) result[lane] = int8_t(from[lane]);
  return result;
#endif
}

TERCET_LEAF float half_at(const uint8_t* from, int64_t output) {
  uint16_t half;
  std::memcpy(&half, from + 2 * output, 2);
  return from_f16(half);
}

TERCET_LEAF uint32_t word_at(const uint8_t* from, int64_t output) {
  uint32_t word;
  std::memcpy(&word, from + 4 * output, 4);
  return word;
}

TERCET_LEAF Floats to_floats(Ints a) { return __builtin_convertvector(a, Floats); }

// sum + products of unsigned bytes up to 63 and signed bytes: pairs of products fit in 16 bits.
TERCET_LEAF Ints dot_u6s8(Ints sum, Words codes, Words x) {
#if defined(__AVX2__) && !defined(__AVX512VNNI__)
  const __m256i pairs = _mm256_maddubs_epi16(__m256i(codes), __m256i(x));
  return sum + Ints(_mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
#else
  return dot_u8s8(sum, codes, x);
#endif
}

struct CodePair {
  Words low, high;
};

TERCET_LEAF CodePair nibble_pair(const uint8_t* nibbles, int pair, int64_t output) {
  const Words both = load_words(nibbles + pair * kQuads + output * 4);
  return {both & 0x0f0f0f0fu, both >> 4 & 0x0f0f0f0fu};
}

TERCET_LEAF int nibble_at(const uint8_t* nibbles, int number, int64_t output) {
  return nibbles[number % 16 / 4 * kQuads + output * 4 + number % 4] >> number / 16 * 4 & 15;
}

template <bool with_minima>
struct Q4 {
  static constexpr int64_t kGroups = 1, kBytes = kNibbles + (with_minima ? 2 : 1) * kHalves;
  static constexpr int kOffset = with_minima ? 0 : 8;
  static constexpr bool kMinima = with_minima, kParts = false;

  TERCET_LEAF static CodePair codes(const uint8_t* block, int64_t, int pair, int64_t output) {
    return nibble_pair(block, pair, output);
  }
  TERCET_LEAF static Ints dot(Ints sum, Words codes, Words x) { return dot_u6s8(sum, codes, x); }
  TERCET_LEAF static Floats scales(const uint8_t* block, int64_t, int64_t output) {
    return halves(block + kNibbles + output * 2);
  }
  TERCET_LEAF static Floats minima(const uint8_t* block, int64_t, int64_t output) {
    return halves(block + kNibbles + kHalves + output * 2);
  }
  TERCET_LEAF static float value(const uint8_t* block, int64_t, int number, int64_t output) {
    const float scale = half_at(block + kNibbles, output);
    const float scaled = scale * float(nibble_at(block, number, output) - kOffset);
    if constexpr (!with_minima) return scaled;
    return scaled + half_at(block + kNibbles + kHalves, output);
  }
};

struct Q8_0 {
  static constexpr int64_t kGroups = 1, kBytes = 8 * kQuads + kHalves;
  static constexpr int kStored = 128;  // is in the panel's bytes
#if defined(__AVX2__) && !defined(__AVX512VNNI__)
  // Magnitudes by numbers that carry the sign: pairs of products fit in 16 bits.
  static constexpr int kOffset = 0;
  TERCET_LEAF static Words code(const uint8_t* from) { return load_words(from) ^ 0x80808080u; }
  TERCET_LEAF static Ints dot(Ints sum, Words codes, Words x) {
    const __m256i signs = __m256i(codes);
    const __m256i pairs =
        _mm256_maddubs_epi16(_mm256_abs_epi8(signs), _mm256_sign_epi8(__m256i(x), signs));
    return sum + Ints(_mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
  }
#else
  static constexpr int kOffset = kStored;
  TERCET_LEAF static Words code(const uint8_t* from) { return load_words(from); }
  TERCET_LEAF static Ints dot(Ints sum, Words codes, Words x) { return dot_u8s8(sum, codes, x); }
#endif
  static constexpr bool kMinima = false, kParts = false;

  TERCET_LEAF static CodePair codes(const uint8_t* block, int64_t, int pair, int64_t output) {
    return {code(block + pair * kQuads + output * 4),
            code(block + (4 + pair) * kQuads + output * 4)};
  }
  TERCET_LEAF static Floats scales(const uint8_t* block, int64_t, int64_t output) {
    return halves(block + 8 * kQuads + output * 2);
  }
  TERCET_LEAF static float value(const uint8_t* block, int64_t, int number, int64_t output) {
    const int stored = block[number / 4 * kQuads + output * 4 + number % 4];
    return float(stored - kStored) * half_at(block + 8 * kQuads, output);
  }
};

struct Q4_K {
  static constexpr int64_t kGroups = 8, kScales = 2 * kHalves, kCodes = kScales + 3 * kQuads,
                           kBytes = kCodes + 8 * kNibbles;
  static constexpr int kOffset = 0;
  static constexpr bool kMinima = true, kParts = false;

  TERCET_LEAF static CodePair codes(const uint8_t* block, int64_t group, int pair, int64_t output) {
    return nibble_pair(block + kCodes + group * kNibbles, pair, output);
  }
  TERCET_LEAF static Ints dot(Ints sum, Words codes, Words x) { return dot_u6s8(sum, codes, x); }

  // Six bits of group 0..7 of the file's 12 bytes: `which` 0 the scale, 1 the minimum. Groups 0..3
  // have them in the lower bits of word `which`; of groups 4..7, word 2 holds four (scales low,
  // minima high) and the upper bits of word `which` two.
  template <typename T>
  TERCET_LEAF static T six(T word, T shared, int64_t group, int which) {
    if (group < 4) return word >> uint32_t(8 * group) & 63u;
    const uint32_t byte = uint32_t(8 * (group - 4));
    return (shared >> (byte + uint32_t(4 * which)) & 15u) | (word >> (byte + 2u) & 0x30u);
  }
  TERCET_LEAF static Floats factor(const uint8_t* block, int64_t group, int which, int64_t output) {
    const uint8_t* words = block + kScales + output * 4;
    const Words bits = six(load_words(words + which * kQuads), load_words(words + 2 * kQuads),
                           group, which);
    return to_floats(Ints(bits)) * halves(block + which * kHalves + output * 2);
  }
  TERCET_LEAF static Floats scales(const uint8_t* block, int64_t group, int64_t output) {
    return factor(block, group, 0, output);
  }
  TERCET_LEAF static Floats minima(const uint8_t* block, int64_t group, int64_t output) {
    return -factor(block, group, 1, output);
  }
  TERCET_LEAF static float value(const uint8_t* block, int64_t group, int number, int64_t output) {
    const uint8_t* words = block + kScales;
    const uint32_t shared = word_at(words + 2 * kQuads, output);
    const uint32_t scale = six(word_at(words, output), shared, group, 0);
    const uint32_t least = six(word_at(words + kQuads, output), shared, group, 1);
    const int code = nibble_at(block + kCodes + group * kNibbles, number, output);
    return half_at(block, output) * float(scale) * float(code) -
           half_at(block + kHalves, output) * float(least);
  }
};

struct Q6_K {
  static constexpr int64_t kGroups = 8, kUpper = kNibbles, kFactors = kUpper + 2 * kQuads,
                           kGroupBytes = kFactors + 2 * kPanel,
                           kBytes = kHalves + 8 * kGroupBytes;
  static constexpr int kOffset = 32;
  static constexpr bool kMinima = false, kParts = true;

  TERCET_LEAF static const uint8_t* piece(const uint8_t* block, int64_t group) {
    return block + kHalves + group * kGroupBytes;
  }
  TERCET_LEAF static CodePair codes(const uint8_t* block, int64_t group, int pair, int64_t output) {
    const uint8_t* from = piece(block, group);
    const CodePair low = nibble_pair(from, pair, output);
    const Words upper = load_words(from + kUpper + pair / 2 * kQuads + output * 4);
    if (pair % 2 == 0)
      return {low.low | (upper << 4 & 0x30303030u), low.high | (upper << 2 & 0x30303030u)};
    return {low.low | (upper & 0x30303030u), low.high | (upper >> 2 & 0x30303030u)};
  }
  TERCET_LEAF static Ints dot(Ints sum, Words codes, Words x) { return dot_u6s8(sum, codes, x); }
  TERCET_LEAF static Floats scales(const uint8_t* block, int64_t, int64_t output) {
    return halves(block + output * 2);
  }
  TERCET_LEAF static Floats parts(const uint8_t* block, int64_t group, int part, int64_t output) {
    return to_floats(signed_bytes(piece(block, group) + kFactors + part * kPanel + output));
  }
  TERCET_LEAF static float value(const uint8_t* block, int64_t group, int number, int64_t output) {
    const uint8_t* from = piece(block, group);
    const int quad = number / 4, pair = quad % 4, field = pair % 2 * 2 + quad / 4;
    const int upper =
        from[kUpper + pair / 2 * kQuads + output * 4 + number % 4] >> 2 * field & 3;
    const int code = nibble_at(from, number, output) | upper << 4;
    const auto factor = int8_t(from[kFactors + number / 16 * kPanel + output]);
    return half_at(block, output) * float(factor) * float(code - kOffset);
  }
};

// Call `body.template operator()<Blocks>()` with the format as a type.
template <typename Body>
TERCET_LEAF void with_blocks(Format format, const Body& body) {
  switch (format) {
    case Format::kQ4_0:
      return body.template operator()<Q4<false>>();
    case Format::kQ4_1:
      return body.template operator()<Q4<true>>();
    case Format::kQ4_K:
      return body.template operator()<Q4_K>();
    case Format::kQ6_K:
      return body.template operator()<Q6_K>();
    case Format::kQ8_0:
      return body.template operator()<Q8_0>();
    default:
      return;
  }
}

}  // namespace tercet::TERCET_ISA
