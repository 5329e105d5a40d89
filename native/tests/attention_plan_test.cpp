// Plans of attention: every row, kv head and span exactly once, no thread left waiting.
#include <map>
#include <tuple>

#include "attention_steps.h"

namespace {

using namespace tercet;
using namespace tercet::tests;

constexpr KvLayout kLayout{KvType::kBF16, 1, 3, 64};
constexpr int64_t kHeads = 9, kGroup = kHeads / kLayout.kv_heads;

std::vector<std::vector<int32_t>> tables_for(const std::vector<Rows>& parts) {
  std::vector<std::vector<int32_t>> tables;
  for (const Rows& part : parts) tables.emplace_back((part.end + 15) / 16, 0);
  return tables;
}

int64_t blocks_of(const StepShape& step, const AttendUnit& unit) {
  const int64_t seen = step.positions[unit.row_end - 1] / kBlockTokens + 1;
  return std::min<int64_t>(unit.span_end * 8, seen) - unit.span_begin * 8;
}

// Every (row, kv head, span up to the row's own) is in exactly one unit, whose result is used once.
void check_cover(const StepShape& step, const AttendPlan& plan) {
  std::map<std::tuple<int32_t, int32_t, int32_t>, int> seen;
  std::map<std::tuple<int32_t, int32_t>, int64_t> merged;
  std::map<int64_t, int> entries;
  for (const MergeUnit& unit : plan.merges) {
    CHECK(merged.emplace(std::tuple{unit.row, unit.kv_head}, unit.partial).second);
    CHECK(unit.spans == step.positions[unit.row] / kSpanTokens + 1);
    for (int64_t e = 0; e < unit.spans * kGroup; ++e) CHECK(++entries[unit.partial + e] == 1);
    CHECK(unit.partial >= 0 && unit.partial + unit.spans * kGroup <= plan.num_partials);
  }
  for (const AttendUnit& unit : plan.units) {
    CHECK(unit.row_begin < unit.row_end && unit.span_begin < unit.span_end);
    CHECK(step.row_begin[unit.sequence] <= unit.row_begin);
    CHECK(unit.row_end <= step.row_begin[unit.sequence + 1]);
    const int64_t spans = step.positions[unit.row_end - 1] / kSpanTokens + 1;
    if (unit.partial < 0) CHECK(unit.span_begin == 0 && unit.span_end == spans);
    for (int32_t row = unit.row_begin; row < unit.row_end; ++row) {
      const auto found = merged.find({row, unit.kv_head});
      CHECK((found != merged.end()) == (unit.partial >= 0));
      if (unit.partial >= 0)
        CHECK(found->second == unit.partial + (row - unit.row_begin) * spans * kGroup);
      for (int32_t span = unit.span_begin; span < unit.span_end; ++span)
        if (span * kSpanTokens <= step.positions[row])
          CHECK((++seen[{row, unit.kv_head, span}] == 1));
    }
  }
  size_t all = 0;
  for (int64_t row = 0; row < step.rows; ++row)
    all += size_t(kLayout.kv_heads * (step.positions[row] / kSpanTokens + 1));
  CHECK(seen.size() == all);
}

// Time of dynamic grabbing beside a perfect cut, in blocks.
double imbalance(const StepShape& step, const AttendPlan& plan, int threads) {
  std::vector<int64_t> busy(static_cast<size_t>(threads), 0);
  int64_t total = 0;
  for (const AttendUnit& unit : plan.units) {
    const int64_t work = blocks_of(step, unit) * (8 + (unit.row_end - unit.row_begin) * kGroup);
    *std::min_element(busy.begin(), busy.end()) += work;
    total += work;
  }
  const int64_t last = *std::max_element(busy.begin(), busy.end());
  return double(last) * threads / double(std::max<int64_t>(total, 1));
}

}  // namespace

CASE(plans_cover_every_row_and_span_once) {
  std::mt19937 random(11);
  AttendPlan plan;
  for (int round = 0; round < 60; ++round) {
    std::vector<Rows> parts;
    const uint32_t count = random() % 2 ? 3 : 40, rows = random() % 2 ? 2 : 200;
    for (uint32_t s = 0; s < random() % count; ++s) {
      const int32_t begin = int32_t(random() % (random() % 2 ? 100 : 3000));
      parts.push_back({int32_t(s), begin, begin + 1 + int32_t(random() % rows)});
    }
    const Step step(parts, tables_for(parts));
    for (const int threads : {1, 2, 7, 64}) {
      plan_attention(step.shape(), kLayout, kHeads, threads, plan);
      check_cover(step.shape(), plan);
      if (threads == 1) CHECK(plan.num_partials == 0);
    }
  }
}

CASE(plans_leave_no_thread_waiting) {
  const std::vector<std::vector<Rows>> steps = {
      {{0, 3999, 4000}},
      {{0, 32767, 32768}},
      {{0, 0, 1024}},
      {{0, 3000, 3256}},
      {{0, 19999, 20000}, {1, 99, 100}, {2, 299, 300}},
  };
  AttendPlan plan;
  for (const auto& parts : steps) {
    const Step step(parts, tables_for(parts));
    for (const int threads : {2, 4, 8, 16}) {
      plan_attention(step.shape(), kLayout, kHeads, threads, plan);
      CHECK(imbalance(step.shape(), plan, threads) < 1.35);
    }
  }
}

CASE(plans_keep_their_memory_and_bound_partials) {
  const std::vector<Rows> large = {{0, 0, 2000}, {1, 8000, 8001}}, small = {{0, 7999, 8000}};
  const Step first(large, tables_for(large)), second(small, tables_for(small));
  AttendPlan plan;
  plan_attention(first.shape(), kLayout, kHeads, 4, plan);
  const AttendUnit* units = plan.units.data();
  plan_attention(second.shape(), kLayout, kHeads, 2, plan);
  CHECK(plan.units.data() == units && !plan.merges.empty());
  const std::vector<Rows> huge = {{0, 1000000, 1000100}};
  const Step third(huge, tables_for(huge));
  plan_attention(third.shape(), kLayout, kHeads, 64, plan);
  CHECK(plan.num_partials <= 1 << 16);
  const std::vector<Rows> none;
  const Step empty(none, {});
  plan_attention(empty.shape(), kLayout, kHeads, 4, plan);
  CHECK(plan.units.empty() && plan.merges.empty() && plan.num_partials == 0);
}
