// Checks of attention against plain loops in float64, and of equal bits however it is cut (I4).
#pragma once

#include <cmath>

#include "attention_steps.h"

namespace tercet::tests {

inline constexpr KvType kKvTypes[] = {KvType::kBF16, KvType::kInt8};

inline World make_world(KvType type, int64_t head_dim, int64_t kv_heads, int64_t group) {
  World world;
  world.layout = {type, 2, kv_heads, head_dim};
  world.group = group;
  world.scale = 1.0f / std::sqrt(float(head_dim));
  return world;
}

// As the grid of KV holds it: BF16, or a multiple of absmax / 127.
inline std::vector<double> on_grid(const float* x, int64_t count, KvType type) {
  std::vector<double> result(static_cast<size_t>(count));
  float most = 0;
  for (int64_t i = 0; i < count; ++i) most = std::max(most, std::fabs(x[i]));
  const float scale = most / 127.0f;
  for (int64_t i = 0; i < count; ++i) {
    uint32_t raw;
    std::memcpy(&raw, &x[i], 4);
    raw = (raw + 0x7fffu + (raw >> 16 & 1)) & 0xffff0000u;
    float rounded;
    std::memcpy(&rounded, &raw, 4);
    const double integer = scale > 0 ? std::nearbyint(x[i] / scale) * scale : 0;
    result[size_t(i)] = type == KvType::kBF16 ? double(rounded) : integer;
  }
  return result;
}

// One row's result of one head over keys 0 .. position.
inline std::vector<double> expected(const World& world, int32_t sequence, int32_t position,
                                    int64_t head) {
  const int64_t dim = world.layout.head_dim, kv_head = head / world.group;
  const KvType type = world.layout.type;
  const auto q_row = world.numbers(sequence, position, 2);
  const auto q = on_grid(q_row.data() + head * dim, dim, type);
  std::vector<double> scores, result(static_cast<size_t>(dim));
  double most = -1e300, sum = 0;
  for (int32_t p = 0; p <= position; ++p) {
    const auto row = world.numbers(sequence, p, 0);
    const auto key = on_grid(row.data() + kv_head * dim, dim, type);
    double score = 0;
    for (int64_t d = 0; d < dim; ++d) score += q[size_t(d)] * key[size_t(d)];
    scores.push_back(score * double(world.scale));
    most = std::max(most, scores.back());
  }
  for (double& score : scores) sum += score = std::exp(score - most);
  for (int32_t p = 0; p <= position; ++p) {
    const auto row = world.numbers(sequence, p, 1);
    const auto value = on_grid(row.data() + kv_head * dim, dim, type);
    const double weight = scores[size_t(p)] / sum;
    for (int64_t d = 0; d < dim; ++d) result[size_t(d)] += weight * value[size_t(d)];
  }
  return result;
}

inline void check_close(const Kernels& kernels, World& world, const std::vector<Rows>& parts) {
  for (const Rows& part : parts)
    append_rows(kernels, world, {{part.sequence, 0, part.end}});
  const auto y = attend_rows(kernels, world, parts);
  const double tolerance = (world.layout.type == KvType::kBF16 ? 0.006 : 0.02) * world.value_size;
  const int64_t dim = world.layout.head_dim;
  const float* at = y.data();
  for (const Rows& part : parts)
    for (int32_t p = part.begin; p < part.end; ++p)
      for (int64_t head = 0; head < world.heads(); ++head, at += dim) {
        if ((p + head) % 7 != 0 && p + 1 != part.end) continue;  // float64 loops are slow
        const auto want = expected(world, part.sequence, p, head);
        for (int64_t d = 0; d < dim; ++d) CHECK(std::fabs(at[d] - want[size_t(d)]) <= tolerance);
      }
}

inline bool same(const float* a, const float* b, int64_t count) {
  return std::memcmp(a, b, size_t(count) * sizeof(float)) == 0;
}

// Results of each row of one sequence when rows are computed one at a time and alone.
inline std::vector<float> one_at_a_time(const Kernels& kernels, const World& world,
                                        int32_t sequence, int32_t tokens) {
  std::vector<float> all;
  for (int32_t p = 0; p < tokens; ++p) {
    append_rows(kernels, world, {{sequence, p, p + 1}});
    const auto y = attend_rows(kernels, world, {{sequence, p, p + 1}});
    all.insert(all.end(), y.begin(), y.end());
  }
  return all;
}

// Rows have the bits that they have one at a time and alone, whatever the company, the chunks, the
// order of blocks, the threads and the cuts.
inline void check_company(const Kernels& kernels, World world, int32_t tokens, int rounds) {
  constexpr int32_t kSequences = 4;
  std::mt19937 random(3);
  const int64_t width = world.heads() * world.layout.head_dim;
  world.open(kSequences, tokens, 1);
  std::vector<std::vector<float>> alone;
  for (int32_t s = 0; s < kSequences; ++s)
    alone.push_back(one_at_a_time(kernels, world, s, tokens));
  for (int round = 0; round < rounds; ++round) {
    world.open(kSequences, tokens, 2 + uint32_t(round));
    std::vector<int32_t> done(kSequences, 0);
    while (*std::min_element(done.begin(), done.end()) < tokens) {
      std::vector<Rows> parts;
      const uint32_t longest = random() % 2 ? 4 : 160;
      for (int32_t s = 0; s < kSequences; ++s) {
        int32_t& at = done[size_t(s)];
        const int32_t end = std::min(tokens, at + int32_t(random() % longest));
        if (end > at) parts.push_back({s, at, end});
        at = end;
      }
      std::shuffle(parts.begin(), parts.end(), random);
      append_rows(kernels, world, parts, 1 + int(random() % 3));
      const Cut cut{1 + int(random() % 9), random() % 2 ? &random : nullptr};
      const auto y = attend_rows(kernels, world, parts, cut);
      const float* at = y.data();
      for (const Rows& part : parts) {
        const int64_t count = (part.end - part.begin) * width;
        CHECK(same(at, alone[size_t(part.sequence)].data() + part.begin * width, count));
        at += count;
      }
    }
  }
}

}  // namespace tercet::tests
