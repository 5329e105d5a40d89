#include "leading.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <limits>

namespace tercet {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kLeast = std::numeric_limits<float>::lowest();
constexpr int64_t kGroupsMin = 1024;
constexpr int64_t kGroupsPerWanted = 4;  // more make the bound tighter and its search dearer

// Bits of a float as an integer that sorts as the float does.
int64_t rank_of(float value) {
  int32_t raw;
  std::memcpy(&raw, &value, 4);
  return raw >= 0 ? raw : -int64_t(raw & 0x7fffffff);
}

float of_rank(int64_t rank) {
  const int32_t raw = rank >= 0 ? int32_t(rank) : int32_t(0x80000000u | uint32_t(-rank));
  float value;
  std::memcpy(&value, &raw, 4);
  return value;
}

// A score that at least `count` of the values reach, and not many more; the least finite number
// where fewer are finite.
float bound_of(const ScoreKernels& kernels, const float* values, int64_t n, int64_t count,
               float best) {
  int64_t low = rank_of(kLeast), high = rank_of(best) + 1;  // reached by enough, by too few
  if (kernels.count_at_least(values, n, kLeast) <= count) return kLeast;
  while (high - low > 1) {
    const int64_t middle = low + (high - low) / 2;
    const int64_t reached = kernels.count_at_least(values, n, of_rank(middle));
    (reached >= count ? low : high) = middle;
    if (reached >= count && reached <= count + count / 4) break;
  }
  return of_rank(low);
}

}  // namespace

uint64_t order_key(float score, int32_t id) {
  score += 0.0f;
  uint32_t raw;
  std::memcpy(&raw, &score, 4);
  raw ^= raw >> 31 ? 0xffffffffu : 0x80000000u;
  return uint64_t(raw) << 32 | ~uint32_t(id);
}

float key_score(uint64_t key) {
  uint32_t raw = uint32_t(key >> 32);
  raw ^= raw >> 31 ? 0x80000000u : 0xffffffffu;
  float score;
  std::memcpy(&score, &raw, 4);
  return score;
}

void leading(const ScoreKernels& kernels, const float* scores, int64_t n, int64_t count, float best,
             LeadingScratch& scratch, std::vector<uint64_t>& keys) {
  keys.clear();
  if (count <= 0 || !(best > -kInfinity)) return;
  float bound = kLeast;
  if (count < n) {
    const int64_t members = n / std::max(kGroupsMin, kGroupsPerWanted * count);
    if (members >= 2) {
      scratch.maxima.resize(size_t(n));
      const int64_t groups = kernels.group_maxima(scores, n, members, scratch.maxima.data());
      bound = bound_of(kernels, scratch.maxima.data(), groups, count, best);
    } else {
      bound = bound_of(kernels, scores, n, count, best);
    }
  }
  scratch.ids.resize(size_t(n) + 16);
  const int64_t found = kernels.within(scores, n, bound, kInfinity, scratch.ids.data());
  for (int64_t i = 0; i < found; ++i)
    keys.push_back(order_key(scores[scratch.ids[size_t(i)]], scratch.ids[size_t(i)]));
  if (found > count) {
    std::nth_element(keys.begin(), keys.begin() + count, keys.end(), std::greater<>());
    keys.resize(size_t(count));
  }
  std::sort(keys.begin(), keys.end(), std::greater<>());
}

}  // namespace tercet
