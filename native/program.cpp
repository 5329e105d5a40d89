#include "program.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <stdexcept>

#include "isa.h"

namespace tercet {
namespace {

// Chunks for each thread: enough that a slow thread costs little, few enough that taking them does.
constexpr int64_t kChunksPerThread = 6;
// Of a linear: a kernel fetches the next panel ahead only inside its range, so ranges are long.
constexpr int64_t kRangesPerThread = 2;
constexpr int64_t kRowsBytes = 384 << 10;      // of inputs that a range of panels goes over at once
constexpr int64_t kRowsUnit = 96;              // whole tiles of every instruction set

template <class... F>
struct Overloaded : F... {
  using F::operator()...;
};
template <class... F>
Overloaded(F...) -> Overloaded<F...>;

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

int64_t panels_of(const op::Linear& linear) {
  if (linear.epilogue != Epilogue::kGlu) return num_panels(linear.weight.n);
  return ceil_div(linear.weight.n / 2, kPanel / 2);
}

bool is_row_wise(const Operation& operation) {
  return !std::holds_alternative<op::Linear>(operation) &&
         !std::holds_alternative<op::Attend>(operation) &&
         !std::holds_alternative<op::Sample>(operation);
}

// Every value that an operation touches.
std::vector<int> touched(const Operation& operation) {
  return std::visit(
      Overloaded{
          [](const op::Embed& one) { return std::vector{one.to}; },
          [](const op::Rows& one) { return std::vector{one.x, one.to}; },
          [](const op::Norm& one) { return std::vector{one.x.value, one.to}; },
          [](const op::Convert& one) { return std::vector{one.x.value, one.to}; },
          [](const op::Angles& one) { return std::vector{one.to}; },
          [](const op::HeadNorm& one) { return std::vector{one.x.value}; },
          [](const op::Rope& one) { return std::vector{one.x.value, one.angles}; },
          [](const op::Add& one) { return std::vector{one.a.value, one.b.value, one.to}; },
          [](const op::Glu& one) { return std::vector{one.a.value, one.b.value, one.to}; },
          [](const op::Linear& one) { return std::vector{one.x, one.y}; },
          [](const op::Append& one) { return std::vector{one.keys.value, one.values.value}; },
          [](const op::Signal&) { return std::vector<int>{}; },
          [](const op::Attend& one) { return std::vector{one.q.value, one.to}; },
          [](const op::Sample& one) { return std::vector{one.logits}; },
      },
      operation);
}

// The value that an operation writes, or -1.
int written(const Operation& operation) {
  if (std::holds_alternative<op::Append>(operation) || std::holds_alternative<op::Signal>(operation) ||
      std::holds_alternative<op::Sample>(operation))
    return -1;
  if (const auto* one = std::get_if<op::HeadNorm>(&operation)) return one->x.value;
  if (const auto* one = std::get_if<op::Rope>(&operation)) return one->x.value;
  return touched(operation).back();
}

int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

Program::Program(Options options)
    : options_(std::move(options)),
      check_(variable("TERCET_CHECK") != "" && variable("TERCET_CHECK") != "0"),
      kernels_(choose_kernels(options_.isa)),
      team_(options_.threads, options_.cpus, options_.spin_ns),
      scratch_(size_t(options_.threads)) {}

int Program::value(Group group, Grid grid, int64_t cols) {
  Value value{group, grid, cols, 0, 0, 0};
  switch (grid) {
    case Grid::kF32: value.stride = 4 * round_up(cols, kPanel); break;
    case Grid::kBF16: value.stride = 2 * padded_k(cols); break;
    case Grid::kToken: value.stride = padded_k(cols), value.groups = 1; break;
    case Grid::kGroup: value.stride = padded_k(cols), value.groups = padded_k(cols) / kGroup; break;
  }
  value.stride = round_up(value.stride, 64);
  value.row_bytes = round_up(value.stride + 8 * value.groups, 64);
  values_.push_back(value);
  return int(values_.size()) - 1;
}

void Program::add(std::string name, Operation operation) {
  for (int value : touched(operation))
    if (value < 0 || value >= int(values_.size()))
      throw std::invalid_argument(name + " touches a value that does not exist");
  names_.push_back(std::move(name));
  operations_.push_back(std::move(operation));
}

void Program::seal() {
  make_regions();
  note_lives();
  plan(Group::kStep);
  plan(Group::kLogits);
}

void Program::make_regions() {
  logits_region_ = SIZE_MAX;
  for (int i = 0; i < int(operations_.size()); ++i) {
    const Operation& operation = operations_[i];
    if (std::holds_alternative<op::Signal>(operation)) {
      if (regions_.empty() || regions_.back().group != Group::kStep)
        throw std::invalid_argument(names_[i] + " follows nothing that a step does once");
      regions_.back().signals += 1;
      continue;
    }
    const int result = written(operation);
    Group group = Group::kStep;
    if (result >= 0) group = values_[result].group;
    if (const auto* sample = std::get_if<op::Sample>(&operation)) {
      group = values_[sample->logits].group;
      vocab_ = values_[sample->logits].cols;
    }
    if (group == Group::kLogits && logits_region_ == SIZE_MAX) logits_region_ = regions_.size();
    const bool joins = is_row_wise(operation) && !regions_.empty() &&
                       regions_.back().kind == Region::kRows && regions_.back().group == group;
    if (joins) {
      regions_.back().end = i + 1;
    } else if (is_row_wise(operation)) {
      regions_.push_back({i, i + 1, group, Region::kRows});
    } else if (std::holds_alternative<op::Linear>(operation)) {
      regions_.push_back({i, i + 1, group, Region::kLinear});
    } else if (std::holds_alternative<op::Attend>(operation)) {
      regions_.push_back({i, i + 1, group, Region::kAttend});
      regions_.push_back({i, i + 1, group, Region::kMerge});
    } else {
      regions_.push_back({i, i + 1, group, Region::kSample});
    }
  }
  logits_region_ = std::min(logits_region_, regions_.size());
  timings_.clear();
  for (const Region& region : regions_) {
    std::string name = names_[region.begin];
    for (int i = region.begin + 1; i < region.end; ++i) name += "+" + names_[i];
    if (region.kind == Region::kMerge) name += ".merge";
    timings_.push_back({name, 0, 0});
  }
}

// Lives are counted in regions: within one, threads are at different operations.
void Program::note_lives() {
  for (int r = 0; r < int(regions_.size()); ++r)
    for (int i = regions_[r].begin; i < regions_[r].end; ++i)
      for (int value : touched(operations_[i])) {
        Value& one = values_[value];
        if (one.first < 0) one.first = r;
        one.last = std::max(one.last, r);
      }
  // What the rows of logits are taken from is read again for every block of them.
  for (Value& value : values_)
    if (value.group == Group::kStep && value.last >= int(logits_region_))
      value.last = int(regions_.size());
}

// First fit, the longest lives first: values whose lives do not meet share memory.
void Program::plan(Group group) {
  std::vector<Value*> todo;
  for (Value& value : values_)
    if (value.group == group && value.first >= 0) todo.push_back(&value);
  std::stable_sort(todo.begin(), todo.end(), [](const Value* a, const Value* b) {
    return a->last - a->first > b->last - b->first;
  });
  std::vector<const Value*> placed;
  int64_t most = 0;
  for (Value* value : todo) {
    std::vector<const Value*> met;
    for (const Value* other : placed)
      if (other->first <= value->last && value->first <= other->last) met.push_back(other);
    std::sort(met.begin(), met.end(),
              [](const Value* a, const Value* b) { return a->place < b->place; });
    int64_t place = 0;
    for (const Value* other : met) {
      if (place + value->row_bytes <= other->place) break;
      place = std::max(place, other->place + other->row_bytes);
    }
    value->place = place;
    most = std::max(most, place + value->row_bytes);
    placed.push_back(value);
  }
  arenas_[size_t(group)].bytes_per_row = most;
}

void Program::reserve(Group group, int64_t rows) {
  Arena& arena = arenas_[size_t(group)];
  if (rows <= arena.rows) return;
  arena.rows = round_up(rows, 16);
  arena.start = arena.memory.grow(size_t(arena.bytes_per_row * arena.rows));
}

Matrix Program::matrix(int index) const {
  const Value& value = values_[index];
  const Arena& arena = arenas_[size_t(value.group)];
  uint8_t* data = arena.start + value.place * arena.rows;
  auto* scales = reinterpret_cast<float*>(data + value.stride * arena.rows);
  auto* sums = reinterpret_cast<int32_t*>(scales + value.groups * arena.rows);
  return {value.grid, value.cols, value.stride, data, scales, sums, value.groups};
}

float* Program::floats(View view) const {
  return reinterpret_cast<float*>(matrix(view.value).data) + view.column;
}

int64_t Program::stride(View view) const { return values_[view.value].stride / 4; }

void Program::bind(uint8_t* blocks, int64_t num_blocks, uint64_t* clock) {
  blocks_ = blocks;
  clock_ = clock;
  num_blocks_ = num_blocks;
}

void Program::run(const StepInput& input, const Sampling& sampling, const SampleOutputs& outputs) {
  sampling_ = &sampling;
  outputs_ = &outputs;
  logits_to_ = nullptr;
  step(input);
}

void Program::logits(const StepInput& input, float* to) {
  logits_to_ = to;
  step(input);
}

void Program::step(const StepInput& input) {
  check_input(input);
  // Generations that the caller began are seen before anything that this step writes.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  input_ = &input;
  bad_row_.store(-1, std::memory_order_relaxed);
  rows_[0] = input.shape.rows;
  rows_[1] = 0;
  reserve(Group::kStep, rows_[0]);
  plan_attention(input.shape, options_.kv, options_.heads, team_.threads(), attention_);
  const int64_t entry = 4 * (options_.kv.padded_dim() + 2);
  partials_.grow(size_t(attention_.num_partials * entry));
  run_regions(0, logits_region_);
  for (int64_t begin = 0; begin < input.num_logits; begin += kLogitsRows) {
    logits_ = {begin, std::min(begin + kLogitsRows, input.num_logits)};
    rows_[1] = logits_.size();
    reserve(Group::kLogits, rows_[1]);
    run_regions(logits_region_, regions_.size());
  }
  const int64_t bad = bad_row_.load(std::memory_order_relaxed);
  if (bad >= 0)
    throw std::domain_error("the logits of row " + std::to_string(bad) + " are not finite");
}

void Program::run_regions(size_t begin, size_t end) {
  int64_t before = watching_ ? now_ns() : 0;
  for (size_t r = begin; r < end; ++r) {
    team_.run(*this, int64_t(r), cut(regions_[r]));
    if (check_) check_results(regions_[r]);
    if (regions_[r].signals > 0 && clock_ != nullptr) {
      // All threads have told this one that they are done; whoever acquires the clock sees it too.
      std::atomic_ref<uint64_t> clock(*clock_);
      clock.store(clock.load(std::memory_order_relaxed) + uint64_t(regions_[r].signals),
                  std::memory_order_release);
    }
    if (watching_) {
      const int64_t now = now_ns();
      timings_[r].ns += now - before;
      timings_[r].steps += 1;
      before = now;
    }
  }
}

// How many chunks the region is cut into, and how large they are.
int64_t Program::cut(const Region& region) {
  const int64_t rows = rows_[size_t(region.group)];
  switch (region.kind) {
    case Region::kRows:
      chunk_rows_ = ceil_div(rows, kChunksPerThread * team_.threads());
      return rows == 0 ? 0 : ceil_div(rows, chunk_rows_);
    case Region::kLinear: return cut_linear(std::get<op::Linear>(operations_[region.begin]), rows);
    case Region::kAttend: {
      const auto units = int64_t(attention_.units.size());
      chunk_rows_ = std::max<int64_t>(1, ceil_div(units, Team::kChunksMax));
      return ceil_div(units, chunk_rows_);
    }
    case Region::kMerge: {
      const auto merges = int64_t(attention_.merges.size());
      chunk_rows_ = std::max<int64_t>(1, ceil_div(merges, kChunksPerThread * team_.threads()));
      return ceil_div(merges, chunk_rows_);
    }
    case Region::kSample: return rows;
  }
  return 0;
}

int64_t Program::cut_linear(const op::Linear& linear, int64_t rows) {
  if (rows == 0) return 0;
  const int64_t wanted = kRangesPerThread * team_.threads();
  const int64_t most = round_up(std::max<int64_t>(1, kRowsBytes / values_[linear.x].stride),
                                kRowsUnit);
  // Blocks of about equal height: a last one of a few rows would waste a pass over the weights.
  const int64_t blocks = ceil_div(rows, most);
  chunk_rows_ = blocks == 1 ? rows : round_up(ceil_div(rows, blocks), kRowsUnit);
  const int64_t row_chunks = ceil_div(rows, chunk_rows_);
  panel_chunks_ = std::min(panels_of(linear), ceil_div(wanted, row_chunks));
  return panel_chunks_ * row_chunks;
}

void Program::run(int64_t index, int64_t chunk, int thread) {
  const Region& region = regions_[size_t(index)];
  const Operation& operation = operations_[region.begin];
  switch (region.kind) {
    case Region::kRows: {
      const int64_t rows = rows_[size_t(region.group)];
      run_rows(region, {chunk * chunk_rows_, std::min(rows, (chunk + 1) * chunk_rows_)}, thread);
      return;
    }
    case Region::kLinear: {
      const auto& linear = std::get<op::Linear>(operation);
      const int64_t panels = panels_of(linear), part = chunk % panel_chunks_;
      const int64_t row = chunk / panel_chunks_ * chunk_rows_;
      run_linear(linear,
                 {panels * part / panel_chunks_, panels * (part + 1) / panel_chunks_},
                 {row, std::min(rows_[size_t(region.group)], row + chunk_rows_)});
      return;
    }
    case Region::kAttend: {
      const Attend args = attend_args(std::get<op::Attend>(operation));
      const auto units = int64_t(attention_.units.size());
      for (int64_t i = chunk * chunk_rows_; i < std::min(units, (chunk + 1) * chunk_rows_); ++i)
        kernels_.attend(args, attention_.units[size_t(i)]);
      return;
    }
    case Region::kMerge: {
      const Attend args = attend_args(std::get<op::Attend>(operation));
      const auto merges = int64_t(attention_.merges.size());
      for (int64_t i = chunk * chunk_rows_; i < std::min(merges, (chunk + 1) * chunk_rows_); ++i)
        kernels_.merge(args, attention_.merges[size_t(i)]);
      return;
    }
    case Region::kSample: run_sample(std::get<op::Sample>(operation), chunk, thread);
  }
}

void Program::run_rows(const Region& region, Range rows, int) {
  for (int i = region.begin; i < region.end; ++i)
    std::visit(
        Overloaded{
            [&](const op::Embed& one) {
              const Matrix to = matrix(one.to);
              kernels_.embed({input_->ids, one.table.format, one.table.n, one.table.k,
                              one.table.data, to.row<float>(0), to.stride / 4},
                             rows);
            },
            [&](const op::Rows& one) {
              const Matrix from = matrix(one.x), to = matrix(one.to);
              for (int64_t row = rows.begin; row < rows.end; ++row)
                std::memcpy(to.row<uint8_t>(row),
                            from.row<uint8_t>(input_->logits_rows[logits_.begin + row]),
                            size_t(from.stride));
            },
            [&](const op::Norm& one) {
              kernels_.norm({floats(one.x), stride(one.x), one.cols, one.weight, one.eps,
                             matrix(one.to)},
                            rows);
            },
            [&](const op::Convert& one) {
              kernels_.convert({floats(one.x), stride(one.x), matrix(one.to)}, rows);
            },
            [&](const op::Angles& one) {
              kernels_.angles({input_->shape.positions, one.frequencies.data(),
                               2 * int64_t(one.frequencies.size()), floats({one.to, 0}),
                               stride({one.to, 0})},
                              rows);
            },
            [&](const op::HeadNorm& one) {
              kernels_.head_norm({floats(one.x), stride(one.x), one.heads, one.head_dim,
                                  one.weight, one.eps},
                                 rows);
            },
            [&](const op::Rope& one) {
              kernels_.rope({floats(one.x), stride(one.x), one.heads, one.head_dim,
                             floats({one.angles, 0}), stride({one.angles, 0})},
                            rows);
            },
            [&](const op::Add& one) {
              kernels_.add({floats(one.a), floats(one.b), stride(one.a), stride(one.b), one.cols,
                            floats({one.to, 0}), stride({one.to, 0})},
                           rows);
            },
            [&](const op::Glu& one) {
              kernels_.glu({floats(one.a), floats(one.b), stride(one.a), stride(one.b), one.cols,
                            floats({one.to, 0}), stride({one.to, 0})},
                           rows);
            },
            [&](const op::Append& one) {
              kernels_.append({&input_->shape, options_.kv, one.layer, blocks_, floats(one.keys),
                               floats(one.values), stride(one.keys), stride(one.values)},
                              rows);
            },
            [](const auto&) {},
        },
        operations_[i]);
}

void Program::run_linear(const op::Linear& linear, Range panels, Range rows) {
  const Matrix y = matrix(linear.y);
  const Linear args{linear.weight.format, linear.epilogue,  linear.weight.n,
                    linear.weight.k,      linear.weight.data, linear.bias,
                    matrix(linear.x),     y.row<float>(0),    y.stride / 4,
                    nullptr};
  switch (linear.weight.format) {
    case Format::kBF16: kernels_.linear_bf16(args, panels, rows); return;
    case Format::kInt8: kernels_.linear_int8(args, panels, rows); return;
    default: kernels_.linear_grouped(args, panels, rows);
  }
}

void Program::run_sample(const op::Sample& one, int64_t row, int thread) {
  auto* logits = matrix(one.logits).row<float>(row);
  const int64_t index = logits_.begin + row;
  if (logits_to_ != nullptr) {
    std::memcpy(logits_to_ + index * vocab_, logits, size_t(vocab_) * 4);
    return;
  }
  if (!sample(kernels_, logits, vocab_, index, *sampling_, *outputs_, scratch_[size_t(thread)]))
    bad_row_.store(index, std::memory_order_relaxed);
}

Attend Program::attend_args(const op::Attend& one) const {
  const View to{one.to, 0};
  return {&input_->shape, options_.kv, one.layer, blocks_, options_.heads, one.scale,
          floats(one.q), stride(one.q), floats(to), stride(to),
          reinterpret_cast<float*>(partials_.data())};
}

void Program::check_input(const StepInput& input) const {
  const StepShape& shape = input.shape;
  if (blocks_ == nullptr && shape.rows > 0)
    throw std::invalid_argument("a step is run before KV memory was bound");
  int64_t num_ids = INT64_MAX;
  for (const Operation& operation : operations_)
    if (const auto* embed = std::get_if<op::Embed>(&operation)) num_ids = embed->table.n;
  for (int64_t row = 0; row < shape.rows; ++row)
    if (input.ids[row] < 0 || input.ids[row] >= num_ids)
      throw std::invalid_argument("token " + std::to_string(input.ids[row]) + " of " +
                                  std::to_string(num_ids));
  for (int64_t row = 0; row < input.num_logits; ++row)
    if (input.logits_rows[row] < 0 || input.logits_rows[row] >= shape.rows)
      throw std::invalid_argument("logits of row " + std::to_string(input.logits_rows[row]) +
                                  " of " + std::to_string(shape.rows));
  for (int64_t s = 0; s < shape.sequences; ++s) {
    const int64_t blocks = shape.table_begin[s + 1] - shape.table_begin[s];
    const int64_t rows = shape.row_begin[s + 1] - shape.row_begin[s];
    if (rows < 0 || blocks * kBlockTokens < shape.contexts[s] || shape.contexts[s] < rows)
      throw std::invalid_argument("sequence " + std::to_string(s) + " has " +
                                  std::to_string(blocks) + " blocks and " + std::to_string(rows) +
                                  " rows for a context of " + std::to_string(shape.contexts[s]));
    for (int64_t row = shape.row_begin[s]; row < shape.row_begin[s + 1]; ++row)
      if (shape.positions[row] != shape.contexts[s] - (shape.row_begin[s + 1] - row))
        throw std::invalid_argument("row " + std::to_string(row) + " is at position " +
                                    std::to_string(shape.positions[row]));
    for (int64_t b = shape.table_begin[s]; b < shape.table_begin[s + 1]; ++b)
      if (shape.tables[b] < 0 || shape.tables[b] >= num_blocks_)
        throw std::invalid_argument("block " + std::to_string(shape.tables[b]) + " of " +
                                    std::to_string(num_blocks_));
  }
}

void Program::check_results(const Region& region) const {
  for (int i = region.begin; i < region.end; ++i) {
    const int result = written(operations_[i]);
    if (result < 0) continue;
    const Matrix all = matrix(result);
    for (int64_t row = 0; row < rows_[size_t(region.group)]; ++row) {
      const float* numbers = all.row<float>(row);
      int64_t count = all.cols;
      if (all.grid == Grid::kBF16) continue;
      if (all.groups > 0) numbers = all.scales + row * all.groups, count = all.groups;
      for (int64_t column = 0; column < count; ++column)
        if (!std::isfinite(numbers[column]))
          throw std::runtime_error("operation " + names_[i] + " gave " +
                                   std::to_string(numbers[column]) + " in row " +
                                   std::to_string(row) + ", column " + std::to_string(column));
    }
  }
}

void Program::watch(bool on) {
  watching_ = on;
  for (Timing& one : timings_) one.ns = one.steps = 0;
}

std::vector<Program::Timing> Program::timings() const { return timings_; }

}  // namespace tercet
