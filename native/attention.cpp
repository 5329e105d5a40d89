#include "attention.h"

#include <algorithm>
#include <tuple>

namespace tercet {
namespace {

// Tile rows (rows x query heads of a kv head) of a unit: more share the loads of keys and values,
// fewer make more units.
constexpr int64_t kTiles[] = {48, 24, 12};

// Costs are counted in blocks times tile rows. Reading a block costs as much as so many tile rows.
constexpr int64_t kReadCost = 8;
// A phase of merging (threads meet once more) costs about as much as this; smaller pieces than
// this are not cut.
constexpr int64_t kMergeCost = 240, kPieceCost = 176;
// Partials of all units together, at most: cutting is worth less than much memory.
constexpr int64_t kMostPartials = 1 << 16;

class Planner {
 public:
  Planner(const StepShape& step, const KvLayout& layout, int64_t heads, int threads,
          AttendPlan& plan)
      : step_(step),
        kv_heads_(layout.kv_heads),
        group_(heads / layout.kv_heads),
        threads_(std::max(threads, 1)),
        plan_(plan) {}

  void run() {
    plan_.units.clear();
    plan_.merges.clear();
    plan_.num_partials = 0;
    tile_rows();
    cut_spans();
    std::sort(plan_.units.begin(), plan_.units.end(),
              [&](const AttendUnit& a, const AttendUnit& b) { return key(a) < key(b); });
  }

 private:
  int64_t rows_of(int64_t tile) const { return std::max<int64_t>(tile / group_, 1); }

  int64_t num_units(int64_t tile) const {
    int64_t count = 0;
    for (int64_t s = 0; s < step_.sequences; ++s)
      count += (step_.row_begin[s + 1] - step_.row_begin[s] + rows_of(tile) - 1) / rows_of(tile);
    return count * kv_heads_;
  }

  // Units over whole contexts.
  void tile_rows() {
    int64_t tile = kTiles[0];
    for (const int64_t next : kTiles) {
      tile = next;
      if (num_units(tile) >= 3 * threads_) break;
    }
    const int32_t rows = int32_t(rows_of(tile));
    for (int32_t s = 0; s < step_.sequences; ++s) {
      const int32_t end = step_.row_begin[s + 1];
      for (int32_t row = step_.row_begin[s]; row < end; row += rows) {
        const int32_t last = std::min(row + rows, end);
        const int32_t spans = int32_t(step_.positions[last - 1] / kSpanTokens + 1);
        for (int32_t head = 0; head < kv_heads_; ++head)
          plan_.units.push_back({s, head, row, last, 0, spans, -1});
      }
    }
  }

  // Cut units that are so dear that threads would wait for the last of them.
  void cut_spans() {
    int64_t total = 0, dearest = 0;
    for (const AttendUnit& unit : plan_.units) {
      total += cost(unit);
      dearest = std::max(dearest, cost(unit));
    }
    if (dearest - dearest / threads_ <= kMergeCost) return;
    const int64_t piece = std::max(total / (4 * threads_), kPieceCost);
    const size_t whole = plan_.units.size();
    for (size_t u = 0; u < whole; ++u) {
      const AttendUnit unit = plan_.units[u];
      const int32_t rows = unit.row_end - unit.row_begin;
      const int64_t pieces = std::min<int64_t>((cost(unit) + piece - 1) / piece, unit.span_end);
      const int64_t partials = int64_t(rows) * unit.span_end * group_;
      if (cost(unit) <= 2 * piece || pieces < 2) continue;
      if (plan_.num_partials + partials > kMostPartials) continue;
      for (int64_t p = 0; p < pieces; ++p) {
        AttendUnit part = unit;
        part.span_begin = int32_t(unit.span_end * p / pieces);
        part.span_end = int32_t(unit.span_end * (p + 1) / pieces);
        part.partial = plan_.num_partials;
        if (p == 0)
          plan_.units[u] = part;
        else
          plan_.units.push_back(part);
      }
      for (int32_t row = 0; row < rows; ++row) {
        const int64_t spans = step_.positions[unit.row_begin + row] / kSpanTokens + 1;
        const int64_t first = plan_.num_partials + int64_t(row) * unit.span_end * group_;
        plan_.merges.push_back({unit.row_begin + row, unit.kv_head, int32_t(spans), first});
      }
      plan_.num_partials += partials;
    }
  }

  int64_t cost(const AttendUnit& unit) const {
    constexpr int64_t kBlocks = kSpanTokens / kBlockTokens;
    const int64_t seen = step_.positions[unit.row_end - 1] / kBlockTokens + 1;
    const int64_t end = std::min<int64_t>(unit.span_end * kBlocks, seen);
    const int64_t blocks = end - unit.span_begin * kBlocks;
    return blocks * (kReadCost + (unit.row_end - unit.row_begin) * group_);
  }

  // The dearest first; neighbours in memory one after another.
  std::tuple<int64_t, int32_t, int32_t, int32_t, int32_t> key(const AttendUnit& unit) const {
    return {-cost(unit), unit.sequence, unit.row_begin, unit.span_begin, unit.kv_head};
  }

  const StepShape& step_;
  const int64_t kv_heads_, group_, threads_;
  AttendPlan& plan_;
};

}  // namespace

void plan_attention(const StepShape& step, const KvLayout& layout, int64_t heads, int threads,
                    AttendPlan& plan) {
  Planner(step, layout, heads, threads, plan).run();
}

}  // namespace tercet
