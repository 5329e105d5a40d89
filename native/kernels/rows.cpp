// Row-wise operations. Each row is done by itself: sixteen lanes, then a fixed tree over them.
#include <limits>

#include "kernels/all.h"

namespace tercet::TERCET_ISA {
namespace {

using i32 = int32_t;

// The first `count` (fewer than sixteen) numbers, zeros beyond; nothing else is read.
inline f32x16 load_part(const float* from, int64_t count) {
#if defined(__AVX512F__)
  return f32x16(_mm512_maskz_loadu_ps(__mmask16((1u << count) - 1), from));
#else
  f32x16 value{};
  std::memcpy(&value, from, size_t(count) * sizeof(float));
  return value;
#endif
}

inline void store_part(float* to, f32x16 value, int64_t count) {
  std::memcpy(to, &value, size_t(count) * sizeof(float));
}

// What a row's numbers are before they are put on a grid: the columns as they are, or normed.
struct Plain {
  const float* x;
  f32x16 at(int64_t col) const { return load<f32x16>(x + col); }
  f32x16 part(int64_t col, int64_t count) const { return load_part(x + col, count); }
};

struct Normed {
  const float *x, *weight;
  f32x16 inverse;
  f32x16 at(int64_t col) const {
    return load<f32x16>(x + col) * inverse * load<f32x16>(weight + col);
  }
  f32x16 part(int64_t col, int64_t count) const {
    return load_part(x + col, count) * inverse * load_part(weight + col, count);
  }
};

// Calls take(col, vector) for all vectors of `cols` columns: the last one filled with zeros.
template <typename Source, typename Take>
inline void each(const Source& source, int64_t cols, Take&& take) {
  int64_t col = 0;
  for (; col + kLanes <= cols; col += kLanes) take(col, source.at(col));
  if (col < cols) take(col, source.part(col, cols - col));
}

inline i32x16 larger(i32x16 a, i32x16 b) { return a > b ? a : b; }

inline i32 largest_of(i32x16 a) {
#if defined(__AVX512F__)
  return _mm512_reduce_max_epi32(__m512i(a));
#else
  i32 most = a[0];
  for (int lane = 1; lane < kLanes; ++lane) most = a[lane] > most ? a[lane] : most;
  return most;
#endif
}

inline i32 sum_of(i32x16 a) {
#if defined(__AVX512F__)
  return _mm512_reduce_add_epi32(__m512i(a));
#else
  i32 total = 0;
  for (int lane = 0; lane < kLanes; ++lane) total += a[lane];
  return total;
#endif
}

// As simd.h's sum, the same tree without a way through memory.
inline float tree(f32x16 a) {
#if defined(__AVX512F__)
  const __m256 half = _mm256_add_ps(_mm512_castps512_ps256(__m512(a)),
                                    _mm512_extractf32x8_ps(__m512(a), 1));
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
#else
  return sum(a);
#endif
}

// Magnitudes as integers: they sort as the numbers do, infinity and NaN above all finite ones.
inline i32x16 magnitude(f32x16 a) { return bits<i32x16>(a) & splat(i32(0x7fffffff)); }
inline constexpr i32 kInfinity = 0x7f800000;

inline float mean_scale(const float* x, int64_t cols, float eps) {
  f32x16 sums[4] = {};
  int64_t col = 0;
  for (; col + 4 * kLanes <= cols; col += 4 * kLanes)
    for (int part = 0; part < 4; ++part) {
      const f32x16 value = load<f32x16>(x + col + part * kLanes);
      sums[part] = fma(value, value, sums[part]);
    }
  for (; col < cols; col += kLanes) {
    const f32x16 value = cols - col < kLanes ? load_part(x + col, cols - col)
                                             : load<f32x16>(x + col);
    sums[0] = fma(value, value, sums[0]);
  }
  const float total = tree((sums[0] + sums[1]) + (sums[2] + sums[3]));
  return 1.0f / std::sqrt(total * (1.0f / float(cols)) + eps);
}

// Scale of a largest magnitude: 0 where it vanishes, NaN where a number is not finite, so that
// whatever is computed with it shows.
inline float scale_of(i32 largest) {
  if (largest >= kInfinity) return std::numeric_limits<float>::quiet_NaN();
  return bits<float>(largest) / 127.0f;
}

#if defined(__FMA__) || defined(__aarch64__)
inline constexpr bool kFused = true;
#else
inline constexpr bool kFused = false;
#endif

// The quotient by way of the reciprocal: with a fused multiply-add it can be corrected to the very
// number that a division gives (Markstein, IBM J. Res. Dev. 34, 1990), where the divisor is tame:
// its mantissa not all ones, its magnitude far from the ends of the range.
inline f32x16 divide(f32x16 x, f32x16 by, f32x16 inverse) {
  const f32x16 quotient = x * inverse;
  return fma(fma(-quotient, by, x), inverse, quotient);
}

inline bool is_tame(float divisor) {
  const uint32_t mantissa = bits<uint32_t>(divisor) & 0x7fffffu;
  return kFused && divisor > 1e-20f && divisor < 1e20f && mantissa != 0x7fffffu;
}

inline i32x16 rounded(f32x16 value) {
#if defined(__AVX512F__)
  return i32x16(_mm512_cvtps_epi32(__m512(value)));
#else
  return to_int(round_even(value));
#endif
}

// Numbers over a scale, rounded to nearest even, as integers; all 0 for the scales 0 and NaN.
// The quotient is rounded to float32 before, as devices.reference has it.
class Quantizer {
 public:
  explicit Quantizer(float scale) : scale_(splat(scale > 0.0f ? scale : 1.0f)) {
    factor_ = scale > 0.0f ? 1.0f : 0.0f;
    exact_ = is_tame(scale);
    inverse_ = splat(exact_ ? 1.0f / scale : 0.0f);
  }

  bool is_zero() const { return factor_ == 0.0f; }
  bool is_exact() const { return exact_; }

  template <bool kExact>
  i32x16 of(f32x16 x) const {
    f32x16 quotient;
    if constexpr (kExact) {
      quotient = divide(x, scale_, inverse_);
    } else {
      quotient = min(max(x / scale_, splat(-127.0f)), splat(127.0f));
    }
    return rounded(quotient);
  }

 private:
  f32x16 scale_, inverse_;
  float factor_;
  bool exact_;
};

inline void store_bytes(int8_t* to, i32x16 value) {
  store(to, __builtin_convertvector(value, i8x16));
}

inline void zero(int8_t* to, int64_t count) { std::memset(to, 0, size_t(count)); }

template <bool kExact, typename Source>
inline i32 quantize(const Source& source, int64_t cols, const Quantizer& quantizer, int8_t* to) {
  i32x16 total{};
  each(source, cols, [&](int64_t col, f32x16 value) {
    const i32x16 code = quantizer.of<kExact>(value);
    store_bytes(to + col, code);
    total += code;
  });
  return sum_of(total);
}

template <typename Source>
inline i32 quantize(const Source& source, int64_t cols, float scale, int8_t* to) {
  const Quantizer quantizer(scale);
  if (quantizer.is_zero()) {
    zero(to, round_up(cols, kLanes));
    return 0;
  }
  if (quantizer.is_exact()) return quantize<true>(source, cols, quantizer, to);
  return quantize<false>(source, cols, quantizer, to);
}

template <typename Source>
inline void to_token(const Source& source, const Matrix& to, int64_t row) {
  i32x16 largest{};
  const auto take = [&](int64_t, f32x16 value) { largest = larger(largest, magnitude(value)); };
  each(source, to.cols, take);
  const float scale = scale_of(largest_of(largest));
  int8_t* codes = to.row<int8_t>(row);
  to.scales[row] = scale;
  to.sums[row] = quantize(source, to.cols, scale, codes);
  const int64_t done = round_up(to.cols, kLanes);
  zero(codes + done, padded_k(to.cols) - done);
}

struct GroupRow {
  int8_t* codes;
  float* scales;
  int32_t* sums;
};

// The columns of one group: a view of the source from `first` on.
template <typename Source>
struct Shifted {
  const Source& source;
  int64_t first;
  f32x16 at(int64_t col) const { return source.at(first + col); }
  f32x16 part(int64_t col, int64_t count) const { return source.part(first + col, count); }
};

// One group of up to 32 columns by itself.
template <typename Source>
inline void to_group(const Source& source, int64_t cols, int64_t group, const GroupRow& to) {
  const int64_t first = group * kGroup;
  const int64_t count = cols - first < kGroup ? cols - first : kGroup;
  const Shifted<Source> part{source, first};
  i32x16 largest{};
  each(part, count, [&](int64_t, f32x16 value) { largest = larger(largest, magnitude(value)); });
  to.scales[group] = scale_of(largest_of(largest));
  to.sums[group] = quantize(part, count, to.scales[group], to.codes + first);
}

// Sixteen whole groups from `group` on: their scales are divided side by side.
template <typename Source>
inline void to_sixteen(const Source& source, int64_t group, const GroupRow& to) {
  i32 largest[kLanes];
  for (int one = 0; one < kLanes; ++one) {
    const int64_t col = (group + one) * kGroup;
    largest[one] = largest_of(larger(magnitude(source.at(col)),
                                     magnitude(source.at(col + kLanes))));
  }
  const f32x16 scales = load<f32x16>(largest) / splat(127.0f);
  float inverses[kLanes];
  store(to.scales + group, scales);
  store(inverses, splat(1.0f) / scales);
  for (int one = 0; one < kLanes; ++one) {
    const float scale = to.scales[group + one];
    const int64_t col = (group + one) * kGroup;
    if (!is_tame(scale)) {
      to_group(source, col + kGroup, group + one, to);
      continue;
    }
    const f32x16 by = splat(scale), inverse = splat(inverses[one]);
    const i32x16 low = rounded(divide(source.at(col), by, inverse));
    const i32x16 high = rounded(divide(source.at(col + kLanes), by, inverse));
    store_bytes(to.codes + col, low);
    store_bytes(to.codes + col + kLanes, high);
    to.sums[group + one] = sum_of(low + high);
  }
}

template <typename Source>
inline void to_groups(const Source& source, const Matrix& to, int64_t row) {
  const GroupRow at{to.row<int8_t>(row), to.scales + row * to.groups, to.sums + row * to.groups};
  const int64_t whole = to.cols / kGroup;
  zero(at.codes + whole * kGroup, padded_k(to.cols) - whole * kGroup);
  int64_t group = 0;
  if constexpr (kFused)
    for (; group + kLanes <= whole; group += kLanes) to_sixteen(source, group, at);
  for (; group * kGroup < to.cols; ++group) to_group(source, to.cols, group, at);
  for (; group < to.groups; ++group) {
    at.scales[group] = 0.0f;
    at.sums[group] = 0;
  }
}

template <typename Source>
inline void to_bf16_row(const Source& source, const Matrix& to, int64_t row) {
  uint16_t* y = to.row<uint16_t>(row);
  each(source, to.cols, [&](int64_t col, f32x16 value) { store(y + col, to_bf16(value)); });
  for (int64_t col = round_up(to.cols, kLanes); col < padded_k(to.cols); col += kLanes)
    store(y + col, u16x16{});
}

template <typename Source>
inline void to_float_row(const Source& source, const Matrix& to, int64_t row) {
  float* y = to.row<float>(row);
  each(source, to.cols, [&](int64_t col, f32x16 value) {
    if (to.cols - col >= kLanes) store(y + col, value);
    else store_part(y + col, value, to.cols - col);
  });
}

template <typename Source>
inline void to_grid(const Source& source, const Matrix& to, int64_t row) {
  switch (to.grid) {
    case Grid::kF32: return to_float_row(source, to, row);
    case Grid::kBF16: return to_bf16_row(source, to, row);
    case Grid::kToken: return to_token(source, to, row);
    case Grid::kGroup: return to_groups(source, to, row);
  }
}

// y = f(a, b) column by column.
template <typename Of>
inline void binary(const Binary& call, Range rows, Of&& of) {
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    const float* a = call.a + row * call.a_stride;
    const float* b = call.b + row * call.b_stride;
    float* y = call.y + row * call.y_stride;
    int64_t col = 0;
    for (; col + kLanes <= call.cols; col += kLanes)
      store(y + col, of(load<f32x16>(a + col), load<f32x16>(b + col)));
    const int64_t rest = call.cols - col;
    if (rest > 0) store_part(y + col, of(load_part(a + col, rest), load_part(b + col, rest)), rest);
  }
}

}  // namespace

void norm(const Norm& call, Range rows) {
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    const float* x = call.x + row * call.x_stride;
    const float inverse = mean_scale(x, call.cols, call.eps);
    to_grid(Normed{x, call.weight, splat(inverse)}, call.to, row);
  }
}

void convert(const Convert& call, Range rows) {
  for (int64_t row = rows.begin; row < rows.end; ++row)
    to_grid(Plain{call.x + row * call.x_stride}, call.to, row);
}

void head_norm(const HeadNorm& call, Range rows) {
  for (int64_t row = rows.begin; row < rows.end; ++row)
    for (int64_t head = 0; head < call.heads; ++head) {
      float* x = call.x + row * call.x_stride + head * call.head_dim;
      const Normed source{x, call.weight, splat(mean_scale(x, call.head_dim, call.eps))};
      Matrix to{Grid::kF32, call.head_dim, 0, reinterpret_cast<uint8_t*>(x), nullptr, nullptr, 0};
      to_float_row(source, to, 0);
    }
}

// Turns are rounded to float32, as the models' own code has it; the functions are exact.
void angles(const Angles& call, Range rows) {
  const int64_t half = call.head_dim / 2;
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    float* cosines = call.to + row * call.to_stride;
    float* sines = cosines + call.head_dim;
    const float position = float(call.positions[row]);
    for (int64_t i = 0; i < half; ++i) {
      const double turn = double(position * float(call.frequencies[i]));
      const float sine = float(std::sin(turn));
      cosines[i] = cosines[i + half] = float(std::cos(turn));
      sines[i] = -sine;
      sines[i + half] = sine;
    }
  }
}

void rope(const Rope& call, Range rows) {
  const int64_t half = call.head_dim / 2;
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    const float* cosines = call.angles + row * call.angles_stride;
    const float* sines = cosines + call.head_dim;
    for (int64_t head = 0; head < call.heads; ++head) {
      float* low = call.x + row * call.x_stride + head * call.head_dim;
      float* high = low + half;
      for (int64_t i = 0; i < half; i += kLanes) {
        const int64_t count = half - i;
        const bool whole = count >= kLanes;
        const auto get = [&](const float* from) {
          return whole ? load<f32x16>(from) : load_part(from, count);
        };
        const f32x16 a = get(low + i), b = get(high + i);
        const f32x16 first = a * get(cosines + i) + b * get(sines + i);
        const f32x16 second = b * get(cosines + half + i) + a * get(sines + half + i);
        store_part(low + i, first, whole ? kLanes : count);
        store_part(high + i, second, whole ? kLanes : count);
      }
    }
  }
}

void add(const Binary& call, Range rows) {
  binary(call, rows, [](f32x16 a, f32x16 b) { return a + b; });
}

void glu(const Binary& call, Range rows) {
  binary(call, rows, [](f32x16 a, f32x16 b) { return silu(a) * b; });
}

}  // namespace tercet::TERCET_ISA
