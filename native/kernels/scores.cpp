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

inline int64_t total(i32x16 counts) {
  int64_t all = 0;
  for (int lane = 0; lane < kLanes; ++lane) all += counts[lane];
  return all;
}

// The first id from `from` on with this score; n where there is none.
int64_t find(const float* x, int64_t n, float value, int64_t from) {
  for (int64_t at = from; at < n; at += kLanes) {
    const uint32_t mask = mask_of(load_some(x, at, n) == splat(value));
    if (mask) return std::min<int64_t>(n, at + __builtin_ctz(mask));
  }
  return n;
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
  top.best_id = find(x, n, top.best, 0);
  if (top.second > -kInfinity) {
    top.second_id = find(x, n, top.second, 0);
    if (top.second_id == top.best_id) top.second_id = find(x, n, top.second, top.best_id + 1);
  }
  return top;
}

double masses(const float* x, int64_t n, float top, float heat, float* to) {
  f64x8 sums[kWays] = {};
  int64_t at = 0;
  const auto take = [&](f32x16 value, f64x8& low, f64x8& high) {
    const f32x16 mass = exp((value - splat(top)) / splat(heat));
    f32x8 halves[2];
    std::memcpy(halves, &mass, sizeof(mass));
    low += __builtin_convertvector(halves[0], f64x8);
    high += __builtin_convertvector(halves[1], f64x8);
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
  const f64x8 sum = (sums[0] + sums[1]) + (sums[2] + sums[3]);
  return ((sum[0] + sum[4]) + (sum[2] + sum[6])) + ((sum[1] + sum[5]) + (sum[3] + sum[7]));
}

int64_t at_least(const float* x, int64_t n, float least, int32_t* ids) {
  int64_t count = 0;
  for (int64_t at = 0; at < n; at += kLanes) {
    const uint32_t mask = mask_at_least(load_some(x, at, n), splat(least));
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

// A Gumbel number is -log(-log u). It reaches bound - s where -log u <= e^(s - bound), which needs
// 1 - u <= e^(s - bound). The power is bounded from above: 2^(i + f) <= 2^i (1 + f), which is what
// the bits of a float say when i + f is put there as a fixed-point number; and a little slack
// covers what all roundings can do.
int64_t contenders(const Contest& contest, Range ids, int32_t* to) {
  constexpr float kLog2E = 1.44269504f, kSlack = 1e-3f, kShrink = 1.0f - 1e-6f;
  const u32x16 lanes = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  const u32x16 low = splat(uint32_t(contest.key)), high = splat(uint32_t(contest.key >> 32));
  int64_t count = 0;
  for (int64_t at = ids.begin; at < ids.end; at += kLanes) {
    const f32x16 score = load_some(contest.scores, at, ids.end);
    uint32_t mask = mask_at_least(score, splat(contest.least));
    if (!mask) continue;
    const u32x16 noise =
        mix32(mix32((lanes + uint32_t(at)) * 0x9e3779b1u + low) ^ high);
    const f32x16 rest = to_float(bits<i32x16>(~noise >> 1)) * (0x1p-31f * kShrink);
    f32x16 sum = max(score - splat(contest.top), splat(-kMost)) * (contest.inverse_heat * kShrink);
    sum = max(sum, splat(-kMost)) - splat(contest.bound);
    f32x16 power = min(sum * kLog2E + kSlack, splat(126.0f));
    power = max(power, splat(-126.0f)) + 127.0f;
    const f32x16 reach = bits<f32x16>(to_int(power * 0x1p23f));
    mask &= mask_at_least(reach, rest);
    if (mask) count += list(mask, at, to + count);
  }
  return count;
}

}  // namespace tercet::TERCET_ISA
