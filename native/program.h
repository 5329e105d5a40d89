// A program as a list of native operations over planned memory; running one step of it.
//
// Values are matrices of a row group: T (rows of the step) or R (rows whose logits are wanted).
// Their places are planned once, in bytes for each row; memory grows only when a step has more rows
// than any before. Neighbouring operations that treat each row alone form one region, so that a
// row goes through all of them while it is in the cache; every other operation is a region.
// A signal adds one to a clock once the region before it is done: other processes that see the clock
// so far see what the region wrote.
// Operations over R run for at most kLogitsRows rows at a time: logits of a long prompt never lie
// in memory all at once.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "kernels.h"
#include "memory.h"
#include "sampler.h"
#include "team.h"

namespace tercet {

inline constexpr int64_t kLogitsRows = 64;

enum class Group : int32_t { kStep, kLogits };

// A value, or some columns of one (float32 only).
struct View {
  int value = -1;
  int64_t column = 0;
};

struct PackedWeight {
  Format format;
  int64_t n, k;
  const uint8_t* data;
};

namespace op {
struct Embed { PackedWeight table; int to; };
struct Rows { int x, to; };
struct Norm { View x; int64_t cols; const float* weight; float eps; int to; };
struct Convert { View x; int to; };
struct Angles { std::vector<double> frequencies; int to; };
struct HeadNorm { View x; int64_t heads, head_dim; const float* weight; float eps; };
struct Rope { View x; int64_t heads, head_dim; int angles; };
struct Add { View a, b; int64_t cols; int to; };
struct Glu { View a, b; int64_t cols; int to; };
struct Linear { int x; PackedWeight weight; Epilogue epilogue; const float* bias; int y; };
struct Append { int64_t layer; View keys, values; };
struct Signal { int64_t layer; };
struct Attend { int64_t layer; View q; float scale; int to; };
struct Sample { int logits; };
}  // namespace op

using Operation = std::variant<op::Embed, op::Rows, op::Norm, op::Convert, op::Angles, op::HeadNorm,
                               op::Rope, op::Add, op::Glu, op::Linear, op::Append, op::Signal,
                               op::Attend, op::Sample>;

struct StepInput {
  StepShape shape;
  const int32_t* ids;            // [rows]
  int64_t num_logits;
  const int32_t* logits_rows;    // [num_logits]
};

class Program final : private Work {
 public:
  struct Options {
    std::string isa;
    int threads = 1;
    std::vector<int> cpus;
    int64_t spin_ns = 50'000;
    KvLayout kv{};
    int64_t heads = 0;
  };

  explicit Program(Options options);

  int value(Group group, Grid grid, int64_t cols);
  void add(std::string name, Operation operation);
  // No operation is added after this; memory is planned.
  void seal();

  // `clock` is where signals are counted, or null: nobody looks.
  void bind(uint8_t* blocks, int64_t num_blocks, uint64_t* clock = nullptr);
  // Throws std::invalid_argument for ids, blocks or rows out of range, std::domain_error where
  // logits (or, with TERCET_CHECK, any result) are not finite.
  void run(const StepInput& input, const Sampling& sampling, const SampleOutputs& outputs);
  // The logits of a step that is otherwise the same, nothing drawn: [num_logits][vocab].
  void logits(const StepInput& input, float* to);

  int64_t vocab() const { return vocab_; }
  const char* isa() const { return kernels_.name; }
  int threads() const { return team_.threads(); }

  struct Timing {
    std::string name;
    int64_t ns, steps;
  };
  void watch(bool on);
  std::vector<Timing> timings() const;

 private:
  struct Value {
    Group group;
    Grid grid;
    int64_t cols, stride, groups;
    int64_t row_bytes;           // data, scales and sums
    int first = -1, last = -1;   // regions that touch it
    int64_t place = -1;          // bytes for each row before it
  };
  struct Region {
    int begin, end;              // operations
    Group group;
    enum Kind { kRows, kLinear, kAttend, kMerge, kSample } kind;
    int signals = 0;             // that follow it
  };

  void run(int64_t region, int64_t chunk, int thread) override;
  void run_rows(const Region& region, Range rows, int thread);
  void run_linear(const op::Linear& linear, Range panels, Range rows);
  void run_sample(const op::Sample& sample, int64_t row, int thread);
  int64_t cut(const Region& region);
  int64_t cut_linear(const op::Linear& linear, int64_t rows);
  void step(const StepInput& input);
  void run_regions(size_t begin, size_t end);
  void check_input(const StepInput& input) const;
  void check_results(const Region& region) const;
  void make_regions();
  void note_lives();
  void plan(Group group);
  void reserve(Group group, int64_t rows);
  Matrix matrix(int value) const;
  float* floats(View view) const;
  int64_t stride(View view) const;
  Attend attend_args(const op::Attend& attend) const;

  const Options options_;
  const bool check_;             // TERCET_CHECK: every operation's results must be finite
  const Kernels& kernels_;
  Team team_;
  std::vector<Value> values_;
  std::vector<std::string> names_;
  std::vector<Operation> operations_;
  std::vector<Region> regions_;
  size_t logits_region_ = 0;     // the first region over R
  int64_t vocab_ = 0;
  uint8_t* blocks_ = nullptr;
  int64_t num_blocks_ = 0;
  uint64_t* clock_ = nullptr;

  struct Arena {
    int64_t bytes_per_row = 0, rows = 0;
    Memory memory;
    uint8_t* start = nullptr;
  };
  std::array<Arena, 2> arenas_;

  // Of the step that runs.
  const StepInput* input_ = nullptr;
  Range logits_{0, 0};           // rows of R that are being computed
  std::array<int64_t, 2> rows_{0, 0};
  int64_t chunk_rows_ = 1, panel_chunks_ = 1;  // of the region that runs
  AttendPlan attention_;
  Memory partials_;
  const Sampling* sampling_ = nullptr;
  const SampleOutputs* outputs_ = nullptr;
  float* logits_to_ = nullptr;
  std::vector<SampleScratch> scratch_;
  std::atomic<int64_t> bad_row_{-1};   // a row of logits that are not finite

  bool watching_ = false;
  std::vector<Timing> timings_;
};

}  // namespace tercet
