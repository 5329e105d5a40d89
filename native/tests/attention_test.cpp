// Attention against plain loops in float64, and equality of bits however it is cut (I4).
#include <cmath>

#include "attention_steps.h"

namespace {

using namespace tercet;
using namespace tercet::tests;

World make_world(KvType type, int64_t head_dim, int64_t kv_heads, int64_t group) {
  World world;
  world.layout = {type, 2, kv_heads, head_dim};
  world.group = group;
  world.scale = 1.0f / std::sqrt(float(head_dim));
  return world;
}

// As the grid of KV holds it: BF16, or a multiple of absmax / 127.
std::vector<double> on_grid(const float* x, int64_t count, KvType type) {
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
std::vector<double> expected(const World& world, int32_t sequence, int32_t position, int64_t head) {
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
    for (int64_t d = 0; d < dim; ++d) result[size_t(d)] += scores[size_t(p)] / sum * value[size_t(d)];
  }
  return result;
}

void check_close(const Kernels& kernels, World& world, const std::vector<Rows>& parts) {
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

bool same(const float* a, const float* b, int64_t count) {
  return std::memcmp(a, b, size_t(count) * sizeof(float)) == 0;
}

const KvType kTypes[] = {KvType::kBF16, KvType::kInt8};

// Results of each row of one sequence when rows are computed one at a time and alone.
std::vector<float> one_at_a_time(const Kernels& kernels, const World& world, int32_t sequence,
                                 int32_t tokens) {
  std::vector<float> all;
  for (int32_t p = 0; p < tokens; ++p) {
    append_rows(kernels, world, {{sequence, p, p + 1}});
    const auto y = attend_rows(kernels, world, {{sequence, p, p + 1}});
    all.insert(all.end(), y.begin(), y.end());
  }
  return all;
}

}  // namespace

CASE(attention_is_that_of_plain_loops) {
  const int64_t kShapes[][3] = {{8, 1, 1}, {16, 2, 3}, {64, 3, 3}, {80, 1, 2}, {128, 1, 5}, {26, 1, 1}};
  for (const KvType type : kTypes)
    for (const auto& [dim, kv_heads, group] : kShapes) {
      World world = make_world(type, dim, kv_heads, group);
      world.open(3, 300, 5);
      check_close(kernels, world, {{0, 0, 1}, {1, 120, 150}, {2, 299, 300}});
    }
}

CASE(wide_heads_and_many_heads_of_one_key) {
  for (const KvType type : kTypes) {
    World wide = make_world(type, 512, 1, 3);
    wide.open(1, 40, 5);
    check_close(kernels, wide, {{0, 20, 40}});
    World widest = make_world(type, kMaxHeadDim, 1, 1);
    widest.open(1, 20, 5);
    check_close(kernels, widest, {{0, 18, 20}});
    World many = make_world(type, 16, 1, 71);
    many.open(1, 140, 5);
    check_close(kernels, many, {{0, 138, 140}});
  }
}

CASE(attention_is_exact_in_any_company) {
  std::mt19937 random(3);
  for (const KvType type : kTypes)
    for (const int64_t dim : {16, 64, 80}) {
      constexpr int32_t kTokens = 285, kSequences = 4;
      World world = make_world(type, dim, 2, 3);
      const int64_t width = world.heads() * dim;
      world.open(kSequences, kTokens, 1);
      std::vector<std::vector<float>> alone;
      for (int32_t s = 0; s < kSequences; ++s)
        alone.push_back(one_at_a_time(kernels, world, s, kTokens));
      for (int round = 0; round < 6; ++round) {
        world.open(kSequences, kTokens, 2 + uint32_t(round));
        int32_t done[kSequences] = {};
        while (done[0] < kTokens || done[1] < kTokens || done[2] < kTokens || done[3] < kTokens) {
          std::vector<Rows> parts;
          const uint32_t longest = random() % 2 ? 4 : 160;
          for (int32_t s = 0; s < kSequences; ++s) {
            const int32_t end = std::min(kTokens, done[s] + int32_t(random() % longest));
            if (end > done[s]) parts.push_back({s, done[s], end});
            done[s] = end;
          }
          std::shuffle(parts.begin(), parts.end(), random);
          append_rows(kernels, world, parts, 1 + int(random() % 3));
          Cut cut{1 + int(random() % 9), random() % 2 ? &random : nullptr};
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
}

CASE(append_writes_its_tokens_and_clears_the_rest_of_a_block) {
  for (const KvType type : kTypes)
    for (const int64_t dim : {6, 16, 80}) {
      World world = make_world(type, dim, 2, 1);
      world.open(1, 60, 9);
      append_rows(kernels, world, {{0, 0, 60}});
      const std::vector<uint8_t> whole(world.blocks, world.blocks + 7 * world.layout.block_bytes());
      for (const int threads : {1, 3, 7}) {
        std::memset(world.blocks, 0xff, whole.size());
        append_rows(kernels, world, {{0, 0, 37}}, threads);
        append_rows(kernels, world, {{0, 37, 38}});
        append_rows(kernels, world, {{0, 38, 60}}, threads);
        CHECK(std::memcmp(world.blocks, whole.data(), whole.size()) == 0);
      }
      // The 61st token and what follows it are zeros, in a block that was full of NaN.
      const uint8_t* last = world.blocks + world.tables[0][3] * world.layout.block_bytes();
      const uint8_t* keys = last + world.layout.offset(1, 0, 1);
      for (int64_t word = 0; word < world.layout.padded_dim() / 4; ++word)
        for (int64_t byte = 12 * 4; byte < 16 * 4; ++byte) CHECK(keys[word * 64 + byte] == 0);
    }
}

CASE(extreme_scores_and_values) {
  for (const KvType type : kTypes) {
    const float kSizes[][2] = {{1e4f, 1}, {1e-20f, 1}, {1, 1e-30f}, {0, 1}, {3, 0}, {1e-41f, 1e-41f}, {1, 1e30f}};
    for (const auto& [key_size, value_size] : kSizes) {
      World world = make_world(type, 16, 1, 3);
      world.key_size = key_size;
      world.value_size = value_size;
      world.open(1, 150, 4);
      append_rows(kernels, world, {{0, 0, 150}});
      const auto together = attend_rows(kernels, world, {{0, 0, 150}});
      for (const float y : together) CHECK(std::fabs(y) <= 6 * value_size);
      world.open(1, 150, 8);
      CHECK(same(one_at_a_time(kernels, world, 0, 150).data(), together.data(), int64_t(together.size())));
    }
  }
}
