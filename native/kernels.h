// The table of kernels that each instruction set provides, and what they are called with.
// Every kernel computes each row of its result by one order of operations, whatever rows are
// computed with it and however the work is cut (I4).
#pragma once

#include <cstdint>

#include "attention.h"
#include "formats.h"

namespace tercet {

enum class Epilogue : int32_t {
  kStore,  // y = x W^T + b
  kAdd,    // y += x W^T + b: the residual stream
  kGlu,    // y = silu(gate) up over a gated pair: half as many columns
};

struct Linear {
  Format format;
  Epilogue epilogue;
  int64_t n, k;            // outputs (of both halves of a gated pair), inputs
  const uint8_t* weight;   // packed panels, 64-byte aligned
  const float* bias;       // [round_up(n, 32)] in the packed order, or null
  Matrix x;                // in the grid of the format: BF16 -> kBF16, INT8 -> kToken, GGUF -> kGroup
  float* y;
  int64_t y_stride;        // floats; rows are padded to a multiple of 32 columns: no masks
  const int32_t* adapter;  // [rows] index of the row's adapter, or null: none is built yet
};

struct Norm {              // x / sqrt(mean(x^2) + eps) * w, to the grid of `to` (float32 too)
  const float* x;
  int64_t x_stride;        // floats
  int64_t cols;
  const float* weight;
  float eps;
  Matrix to;
};

struct Convert {           // float32 columns to another grid
  const float* x;
  int64_t x_stride;
  Matrix to;
};

struct Embed {
  const int32_t* ids;
  Format format;
  int64_t n, k;
  const uint8_t* weight;   // packed as for Linear (not a gated pair)
  float* y;
  int64_t y_stride;
};

struct HeadNorm {          // RMSNorm over each head, in place
  float* x;
  int64_t x_stride, heads, head_dim;
  const float* weight;
  float eps;
};

struct Rope {              // in place over `heads` neighbouring heads; angles [rows][2][head_dim]
  float* x;
  int64_t x_stride, heads, head_dim;
  const float* angles;
  int64_t angles_stride;   // floats
};

struct Angles {            // cosines and signed sines, as program.Angles says
  const int32_t* positions;
  const double* frequencies;  // [head_dim / 2]
  int64_t head_dim;
  float* to;               // [rows][2][head_dim]
  int64_t to_stride;       // floats
};

struct Binary {            // y = a + b, or silu(a) * b
  const float *a, *b;
  int64_t a_stride, b_stride, cols;
  float* y;
  int64_t y_stride;
};

// The best two of a row of scores; equal scores rank by id. second is -inf and second_id -1 where
// no other is finite. `broken`: there is a NaN or +inf, and the rest means nothing.
struct TopTwo {
  float best, second;
  int64_t best_id, second_id;
  bool broken;
};

// Which ids may still reach a sum of (score - top) / heat and their noise (see noise.h).
struct Contest {
  const float* scores;
  float top;
  float inverse_heat;      // finite
  float least;             // scores below it do not compete; finite, so that -inf never does
  float bound;             // the sum to be reached; -inf: all do
  uint64_t key;            // of the row's noise
};

// Some ids with their scores and masses; each array has room for 16 more than it may hold.
struct Kept {
  int32_t* ids;
  float *scores, *masses;
};

struct Above {             // ids that reach a score
  double mass;
  int64_t count;
};

// Passes over a row of scores, for the sampler. Lists of ids need room for 16 more than they hold.
struct ScoreKernels {
  TopTwo (*top_two)(const float* x, int64_t n);
  // The sum of exp((x - top) / heat); each of them goes to `to` unless it is null.
  double (*masses)(const float* x, int64_t n, float top, float heat, float* to);
  // The ids with low <= x < high, ascending, and how many they are.
  int64_t (*within)(const float* x, int64_t n, float low, float high, int32_t* ids);
  int64_t (*count_at_least)(const float* x, int64_t n, float least);
  // Those whose mass is at least so large, ids ascending; how many they are.
  int64_t (*keep)(const float* x, const float* masses, int64_t n, float least, const Kept& to);
  Above (*above)(const float* x, const float* masses, int64_t n, float least);
  // How many have a higher score than `id`, or the same and a lower id.
  int64_t (*count_before)(const float* x, int64_t n, int64_t id);
  // Maxima of disjoint groups of `members` scores each, n / members / 16 * 16 of them; how many.
  int64_t (*group_maxima)(const float* x, int64_t n, int64_t members, float* to);
  // The ids of the range that may reach the bound, none that can be left out; how many.
  int64_t (*contenders)(const Contest&, Range ids, int32_t* to);
};

// Bytes of one part (sums.h); `past_caches`: the target is not read soon.
struct SumKernels {
  uint64_t (*part)(const uint8_t* from, int64_t bytes);
  uint64_t (*copy)(const uint8_t* from, uint8_t* to, int64_t bytes, bool past_caches);
  void (*move)(const uint8_t* from, uint8_t* to, int64_t bytes, bool past_caches);  // nothing summed
};

struct Kernels {
  const char* name;
  void (*linear_bf16)(const Linear&, Range panels, Range rows);
  void (*linear_int8)(const Linear&, Range panels, Range rows);
  void (*linear_grouped)(const Linear&, Range panels, Range rows);  // all GGUF block formats
  void (*norm)(const Norm&, Range rows);
  void (*convert)(const Convert&, Range rows);
  void (*embed)(const Embed&, Range rows);
  void (*head_norm)(const HeadNorm&, Range rows);
  void (*angles)(const Angles&, Range rows);
  void (*rope)(const Rope&, Range rows);
  void (*add)(const Binary&, Range rows);
  void (*glu)(const Binary&, Range rows);
  void (*append)(const Append&, Range rows);
  void (*attend)(const Attend&, const AttendUnit&);   // one unit of the step's attention
  void (*merge)(const Attend&, const MergeUnit&);     // spans of one row that were split
  ScoreKernels scores;
  SumKernels sums;
};

// One for each instruction set that this build has; null where it is not built in.
const Kernels* portable_kernels();
const Kernels* avx2_kernels();
const Kernels* avx512_kernels();       // F, BW, DQ, VL, VNNI
const Kernels* avx512_bf16_kernels();  // and BF16
const Kernels* amx_kernels();          // and AMX tiles of INT8 and BF16

}  // namespace tercet
