// Passes over a row of scores, for the sampler.
#include <algorithm>
#include <limits>

#include "kernels/all.h"

namespace tercet::TERCET_ISA {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kMost = std::numeric_limits<float>::max();
constexpr int kWays = 4;  // vectors side by side, so that none waits for the one before

using f32x8 = float __attribute__((vector_size(32)));
using f64x8 = double __attribute__((vector_size(64)));

// The scores [at, end), sixteen at most, filled up with -inf.
inline f32x16 load_some(const float* x, int64_t at, int64_t end) {
  if (end - at >= kLanes) return load<f32x16>(x + at);
  f32x16 value = splat(-kInfinity);
  std::memcpy(&value, x + at, size_t(end - at) * sizeof(float));
  return value;
}

// One bit for each lane.
inline uint32_t mask_of(i32x16 flags) {
#if defined(__AVX512F__)
  return _mm512_movepi32_mask(__m512i(flags));
#elif defined(__AVX2__)
  __m256 halves[2];
  std::memcpy(halves, &flags, 64);
  return uint32_t(_mm256_movemask_ps(halves[0])) | uint32_t(_mm256_movemask_ps(halves[1])) << 8;
#else
  uint32_t mask = 0;
  for (int lane = 0; lane < kLanes; ++lane) mask |= uint32_t(flags[lane] & 1) << lane;
  return mask;
#endif
}

inline uint32_t mask_at_least(f32x16 a, f32x16 b) {
#if defined(__AVX512F__)
  return _mm512_cmp_ps_mask(__m512(a), __m512(b), _CMP_GE_OQ);
#else
  return mask_of(a >= b);
#endif
}

// first + (lanes of the mask), ascending; writes up to sixteen numbers, returns how many count.
inline int64_t list(uint32_t mask, int64_t first, int32_t* to) {
#if defined(__AVX512F__)
  const __m512i lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  const __m512i ids = _mm512_add_epi32(lanes, _mm512_set1_epi32(int32_t(first)));
  _mm512_storeu_si512(to, _mm512_maskz_compress_epi32(__mmask16(mask), ids));
  return __builtin_popcount(mask);
#else
  int64_t count = 0;
  for (; mask; mask &= mask - 1) to[count++] = int32_t(first) + __builtin_ctz(mask);
  return count;
#endif
}

// The lanes of the mask side by side; writes up to sixteen numbers.
inline void squeeze(uint32_t mask, f32x16 values, float* to) {
#if defined(__AVX512F__)
  _mm512_storeu_ps(to, _mm512_maskz_compress_ps(__mmask16(mask), __m512(values)));
#else
  for (; mask; mask &= mask - 1) *to++ = values[__builtin_ctz(mask)];
#endif
}

// Sums of float32 numbers in float64.
inline void add_wide(f32x16 values, f64x8& low, f64x8& high) {
  f32x8 halves[2];
  std::memcpy(halves, &values, sizeof(values));
  low += __builtin_convertvector(halves[0], f64x8);
  high += __builtin_convertvector(halves[1], f64x8);
}

inline double sum_of(f64x8 sum) {
  return ((sum[0] + sum[4]) + (sum[2] + sum[6])) + ((sum[1] + sum[5]) + (sum[3] + sum[7]));
}

inline int64_t total(i32x16 counts) {
  int64_t all = 0;
  for (int lane = 0; lane < kLanes; ++lane) all += counts[lane];
  return all;
}

// e^x for x <= 0; -inf gives 0.
inline f32x16 exp_down(f32x16 x) {
#if defined(__AVX512F__)
  // As simd.h has it, but for its ends: e^-104 is rounded to 0.
  x = max(x, splat(-104.0f));
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
  return f32x16(_mm512_scalef_ps(__m512(p), __m512(n)));
#else
  return exp(x);
#endif
}

// Where the two best scores are: the first that is the best, the first other that is the second.
void find_two(const float* x, int64_t n, TopTwo& top) {
  const float least = top.second > -kInfinity ? top.second : top.best;
  top.best_id = top.second_id = -1;
  for (int64_t at = 0; at < n; at += kLanes) {
    if (at + kWays * kLanes <= n) {
      uint32_t any = 0;
      for (int way = 0; way < kWays; ++way)
        any |= mask_at_least(load<f32x16>(x + at + way * kLanes), splat(least));
      if (!any) {
        at += (kWays - 1) * kLanes;
        continue;
      }
    }
    uint32_t mask = mask_at_least(load_some(x, at, n), splat(least));
    for (; mask; mask &= mask - 1) {
      const int64_t id = at + __builtin_ctz(mask);
      if (id >= n) break;
      if (top.best_id < 0 && x[id] == top.best) top.best_id = id;
      else if (top.second_id < 0 && x[id] == top.second) top.second_id = id;
      if (top.best_id >= 0 && (top.second_id >= 0 || top.second == -kInfinity)) return;
    }
  }
}

// The two best so far of each lane.
struct Lanes {
  f32x16 best = splat(-kInfinity), second = splat(-kInfinity);
  i32x16 whole = splat(int32_t(-1));  // all numbers so far are below +inf

  void take(f32x16 value) {
    second = max(second, min(best, value));
    best = max(best, value);
    whole &= value < splat(kInfinity);
  }
};

// MurmurHash3's finalizer, as noise.h has it.
inline u32x16 mix32(u32x16 values) {
  values ^= values >> 16;
  values *= 0x85ebca6bu;
  values ^= values >> 13;
  values *= 0xc2b2ae35u;
  return values ^ values >> 16;
}

}  // namespace

TopTwo top_two(const float* x, int64_t n) {
  Lanes ways[kWays];
  int64_t at = 0;
  for (; at + kWays * kLanes <= n; at += kWays * kLanes)
    for (int way = 0; way < kWays; ++way) ways[way].take(load<f32x16>(x + at + way * kLanes));
  for (; at < n; at += kLanes) ways[0].take(load_some(x, at, n));
  TopTwo top{-kInfinity, -kInfinity, 0, -1, false};
  for (const Lanes& way : ways)
    for (int lane = 0; lane < kLanes; ++lane) {
      top.broken |= way.whole[lane] == 0;
      for (const float value : {way.best[lane], way.second[lane]}) {
        top.second = std::max(top.second, std::min(top.best, value));
        top.best = std::max(top.best, value);
      }
    }
  if (top.broken) return top;
  find_two(x, n, top);
  return top;
}

double masses(const float* x, int64_t n, float top, float heat, float* to) {
  const float inverse = std::min(1.0f / heat, kMost);
  f64x8 sums[kWays] = {};
  int64_t at = 0;
  const auto take = [&](f32x16 value, f64x8& low, f64x8& high) {
    const f32x16 mass = exp_down((value - splat(top)) * splat(inverse));
    add_wide(mass, low, high);
    return mass;
  };
  for (; at + 2 * kLanes <= n; at += 2 * kLanes) {
    const f32x16 first = take(load<f32x16>(x + at), sums[0], sums[1]);
    const f32x16 second = take(load<f32x16>(x + at + kLanes), sums[2], sums[3]);
    if (to) store(to + at, first), store(to + at + kLanes, second);
  }
  for (; at < n; at += kLanes) {
    const f32x16 mass = take(load_some(x, at, n), sums[0], sums[1]);
    if (to) std::memcpy(to + at, &mass, size_t(std::min<int64_t>(kLanes, n - at)) * sizeof(float));
  }
  return sum_of((sums[0] + sums[1]) + (sums[2] + sums[3]));
}

int64_t within(const float* x, int64_t n, float low, float high, int32_t* ids) {
  int64_t count = 0;
  for (int64_t at = 0; at < n; at += kLanes) {
    const f32x16 value = load_some(x, at, n);
    uint32_t mask = mask_at_least(value, splat(low));
    if (mask) mask &= ~mask_at_least(value, splat(high));
    if (mask) count += list(mask, at, ids + count);
  }
  return count;
}

int64_t count_at_least(const float* x, int64_t n, float least) {
  i32x16 counts[kWays] = {};
  int64_t at = 0;
  for (; at + kWays * kLanes <= n; at += kWays * kLanes)
    for (int way = 0; way < kWays; ++way)
      counts[way] -= load<f32x16>(x + at + way * kLanes) >= splat(least);
  for (; at < n; at += kLanes) counts[0] -= load_some(x, at, n) >= splat(least);
  return total((counts[0] + counts[1]) + (counts[2] + counts[3]));
}

int64_t count_before(const float* x, int64_t n, int64_t id) {
  const float value = x[id];
  // Above it everywhere, its equals before it: -inf equals what fills up the last vector, so that
  // ranges end where they end.
  i32x16 counts{};
  int64_t at = 0, equal = 0;
  for (; at + kLanes <= id; at += kLanes) counts -= load<f32x16>(x + at) >= splat(value);
  for (; at < id; ++at) equal += x[at] >= value;
  for (; at < n; at += kLanes) counts -= load_some(x, at, n) > splat(value);
  return total(counts) + equal;
}

int64_t group_maxima(const float* x, int64_t n, int64_t members, float* to) {
  const int64_t groups = n / members / kLanes * kLanes;
  for (int64_t first = 0; first < groups; first += kLanes) {
    const float* from = x + first * members;
    f32x16 most = load<f32x16>(from);
    for (int64_t member = 1; member < members; ++member)
      most = max(most, load<f32x16>(from + member * kLanes));
    store(to + first, most);
  }
  return groups;
}

int64_t keep(const float* x, const float* masses, int64_t n, float least, const Kept& to) {
  int64_t count = 0;
  for (int64_t at = 0; at < n; at += kLanes) {
    const f32x16 mass = load_some(masses, at, n);
    const uint32_t mask = mask_at_least(mass, splat(least));
    if (!mask) continue;
    squeeze(mask, load_some(x, at, n), to.scores + count);
    squeeze(mask, mass, to.masses + count);
    count += list(mask, at, to.ids + count);
  }
  return count;
}

Above above(const float* x, const float* masses, int64_t n, float least) {
  f64x8 sums[2] = {};
  i32x16 counts{};
  for (int64_t at = 0; at < n; at += kLanes) {
    const auto reached = load_some(x, at, n) >= splat(least);
    const f32x16 mass = reached ? load_some(masses, at, n) : splat(0.0f);
    add_wide(mass, sums[0], sums[1]);
    counts -= reached;
  }
  return {sum_of(sums[0] + sums[1]), total(counts)};
}

// A Gumbel number is -log(-log u). It reaches bound - s where -log u <= e^(s - bound), which needs
// 1 - u <= e^(s - bound). The power is bounded from above: 2^(i + f) <= 2^i (1 + f), which is what
// the bits of a float say when i + f is put there as a fixed-point number; and a little slack
// covers what all roundings can do.
int64_t contenders(const Contest& contest, Range ids, int32_t* to) {
  constexpr float kLog2E = 1.44269504f, kBit = 0x1p23f, kBits = 31.0f;
  const float bound = contest.bound;
  const bool all = !(bound > -1e30f);
  const float slack = 1e-3f + 1e-6f * std::fabs(bound);
  const float offset = (127.0f + kBits + slack - bound * kLog2E) * kBit;
  const float slope = std::min(contest.inverse_heat * kLog2E * kBit, kMost);
  const u32x16 lanes = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  const u32x16 high = splat(uint32_t(contest.key >> 32));
  u32x16 low = (lanes + uint32_t(ids.begin)) * 0x9e3779b1u + uint32_t(contest.key);
  int64_t count = 0;
  for (int64_t at = ids.begin; at < ids.end; at += kLanes, low += kLanes * 0x9e3779b1u) {
    const f32x16 score = load_some(contest.scores, at, ids.end);
    uint32_t mask = mask_at_least(score, splat(contest.least));
    if (!mask) continue;
    if (!all) {
      const u32x16 noise = mix32(mix32(low) ^ high);
      const f32x16 rest = to_float(bits<i32x16>(noise >> 1 ^ 0x7fffffffu));
      f32x16 power = fma(score - splat(contest.top), splat(slope), splat(offset));
      power = max(min(power, splat(253.0f * kBit)), splat(0.0f));
      mask &= mask_at_least(bits<f32x16>(to_int(power)), rest);
      if (!mask) continue;
    }
    count += list(mask, at, to + count);
  }
  return count;
}

}  // namespace tercet::TERCET_ISA
