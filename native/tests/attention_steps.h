// Sequences with made-up keys, values and queries, and steps over any rows of them: what the cases
// of attention are made of.
#pragma once

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>
#include <thread>

#include "attention.h"
#include "check.h"

namespace tercet::tests {

struct Rows {
  int32_t sequence;
  int32_t begin, end;  // positions
};

// The arrays of a step over these rows.
class Step {
 public:
  Step(const std::vector<Rows>& parts, const std::vector<std::vector<int32_t>>& tables) {
    row_begin_.push_back(0);
    table_begin_.push_back(0);
    for (const Rows& part : parts) {
      const int32_t slot = int32_t(contexts_.size());
      for (int32_t p = part.begin; p < part.end; ++p) {
        positions_.push_back(p);
        sequence_.push_back(slot);
      }
      row_begin_.push_back(int32_t(positions_.size()));
      contexts_.push_back(part.end);
      // No more entries than the context has blocks: a kernel that looks further reads another's.
      const auto& table = tables[size_t(part.sequence)];
      tables_.insert(tables_.end(), table.begin(), table.begin() + (part.end + 15) / 16);
      table_begin_.push_back(int64_t(tables_.size()));
    }
    tables_.push_back(1 << 30);
    shape_ = {int64_t(positions_.size()), int64_t(parts.size()), positions_.data(),
              sequence_.data(),           row_begin_.data(),     contexts_.data(),
              tables_.data(),             table_begin_.data()};
  }
  Step(const Step&) = delete;
  Step& operator=(const Step&) = delete;

  const StepShape& shape() const { return shape_; }

 private:
  std::vector<int32_t> positions_, sequence_, row_begin_, contexts_, tables_;
  std::vector<int64_t> table_begin_;
  StepShape shape_;
};

struct World {
  KvLayout layout;
  int64_t group;  // query heads of a kv head
  float scale;
  float key_size = 1, value_size = 1;
  uint32_t seed = 1;
  std::vector<std::vector<int32_t>> tables;
  std::vector<uint8_t> memory;
  uint8_t* blocks = nullptr;

  int64_t heads() const { return layout.kv_heads * group; }

  // Memory for sequences of so many tokens, full of bytes that mean NaN, and shuffled tables.
  void open(int64_t sequences, int64_t tokens, uint32_t order) {
    const int64_t each = (tokens + 15) / 16, count = sequences * each + 3;
    memory.assign(size_t(count * layout.block_bytes() + 64), 0xff);
    blocks = memory.data() + (64 - reinterpret_cast<uintptr_t>(memory.data()) % 64);
    std::vector<int32_t> ids(static_cast<size_t>(count));
    std::iota(ids.begin(), ids.end(), 0);
    std::shuffle(ids.begin(), ids.end(), std::mt19937(order));
    tables.clear();
    for (int64_t s = 0; s < sequences; ++s)
      tables.emplace_back(ids.begin() + s * each, ids.begin() + (s + 1) * each);
  }

  // Numbers of one row: kind 0 keys, 1 values, 2 queries.
  std::vector<float> numbers(int32_t sequence, int32_t position, uint32_t kind) const {
    std::mt19937 random(seed + uint32_t(sequence) * 7919u + uint32_t(position) * 104729u + kind);
    std::normal_distribution<float> normal;
    const int64_t count = (kind == 2 ? heads() : layout.kv_heads) * layout.head_dim;
    std::vector<float> all(static_cast<size_t>(count));
    for (float& x : all) x = normal(random) * (kind == 0 ? key_size : kind == 1 ? value_size : 1);
    return all;
  }

  std::vector<float> matrix(const std::vector<Rows>& parts, uint32_t kind) const {
    std::vector<float> all;
    for (const Rows& part : parts)
      for (int32_t p = part.begin; p < part.end; ++p) {
        const auto row = numbers(part.sequence, p, kind);
        all.insert(all.end(), row.begin(), row.end());
      }
    return all;
  }
};

// Append the rows' keys and values, by so many threads at once.
inline void append_rows(const Kernels& kernels, const World& world, const std::vector<Rows>& parts,
                        int threads = 1) {
  const Step step(parts, world.tables);
  for (int64_t layer = 0; layer < world.layout.layers; ++layer) {
    const auto keys = world.matrix(parts, 0), values = world.matrix(parts, 1);
    const int64_t width = world.layout.kv_heads * world.layout.head_dim;
    const Append args{&step.shape(), world.layout, layer, world.blocks,
                      keys.data(),   values.data(), width, width};
    const int64_t rows = step.shape().rows;
    std::vector<std::thread> team;
    for (int t = 1; t < threads; ++t)
      team.emplace_back([&, t] {
        kernels.append(args, {rows * t / threads, rows * (t + 1) / threads});
      });
    kernels.append(args, {0, rows / threads});
    for (std::thread& one : team) one.join();
  }
}

// How a step's attention is cut: by the planner, or by a generator in any way.
struct Cut {
  int threads = 1;
  std::mt19937* random = nullptr;
};

inline AttendPlan random_plan(const StepShape& step, int64_t kv_heads, int64_t group,
                              std::mt19937& random) {
  AttendPlan plan;
  for (int32_t s = 0; s < step.sequences; ++s)
    for (int32_t head = 0; head < kv_heads; ++head)
      for (int32_t row = step.row_begin[s]; row < step.row_begin[s + 1];) {
        const int32_t end = std::min(step.row_begin[s + 1], row + 1 + int32_t(random() % 40));
        const int32_t spans = step.positions[end - 1] / int32_t(kSpanTokens) + 1;
        if (random() % 2) {
          plan.units.push_back({s, head, row, end, 0, spans, -1});
        } else {
          for (int32_t span = 0; span < spans;) {
            const int32_t last = std::min<int32_t>(spans, span + 1 + int32_t(random() % 3));
            plan.units.push_back({s, head, row, end, span, last, plan.num_partials});
            span = last;
          }
          for (int32_t r = row; r < end; ++r)
            plan.merges.push_back({r, head, step.positions[r] / int32_t(kSpanTokens) + 1,
                                   plan.num_partials + (r - row) * spans * group});
          plan.num_partials += (end - row) * spans * group;
        }
        row = end;
      }
  std::shuffle(plan.units.begin(), plan.units.end(), random);
  return plan;
}

// Results [rows][heads * head_dim] of attention over what has been appended.
inline std::vector<float> attend_rows(const Kernels& kernels, const World& world,
                                      const std::vector<Rows>& parts, Cut cut = {}) {
  const Step step(parts, world.tables);
  AttendPlan plan;
  if (cut.random != nullptr)
    plan = random_plan(step.shape(), world.layout.kv_heads, world.group, *cut.random);
  else
    plan_attention(step.shape(), world.layout, world.heads(), cut.threads, plan);
  const auto q = world.matrix(parts, 2);
  const int64_t stride = world.heads() * world.layout.head_dim;
  const float untouched = std::numeric_limits<float>::quiet_NaN();
  std::vector<float> y(size_t(step.shape().rows * stride), untouched);
  const int64_t entry = world.layout.padded_dim() + 2;
  std::vector<float> partials(size_t(plan.num_partials * entry), untouched);
  const Attend args{&step.shape(), world.layout, world.layout.layers - 1, world.blocks,
                    world.heads(), world.scale,  q.data(),                stride,
                    y.data(),      stride,       partials.data()};
  for (const AttendUnit& unit : plan.units) kernels.attend(args, unit);
  for (const MergeUnit& unit : plan.merges) kernels.merge(args, unit);
  return y;
}

}  // namespace tercet::tests
