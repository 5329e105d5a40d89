// From logits to tokens: penalties, biases, temperature, top-k, top-p, min-p, seeded noise,
// log-probabilities. The specification is tercet.devices.reference.sampling; arrays are those of
// tercet.devices.contract.Sampling and Outputs. Each row is treated alone.
#pragma once

#include <cstdint>
#include <vector>

#include "draw.h"
#include "kernels.h"

namespace tercet {

struct Sampling {              // [R] each, but for the histories and biases (CSR)
  const float* temperature;
  const int32_t* top_k;
  const float* top_p;
  const float* min_p;
  const uint64_t* seed;
  const int32_t* choice;
  const int32_t* position;
  const float* repetition;
  const float* presence;
  const float* frequency;
  const int32_t* history_ids;
  const int32_t* history_counts;
  const int32_t* history_ends;
  const int32_t* bias_ids;
  const float* bias_values;
  const int32_t* bias_ends;
  const int32_t* num_logprobs;
  const int32_t* scored_ids;
};

struct SampleOutputs {         // [R] each
  int32_t* tokens;
  float* logprobs;
  int32_t* ranks;
  int32_t* top_ids;            // [R][top_columns]
  float* top_logprobs;
  int64_t top_columns;
  float* scored_logprobs;
  int32_t* scored_ranks;
  float* margins;
};

// Memory that a thread's rows use in turn; it keeps what it has grown to.
struct SampleScratch {
  DrawScratch draw;
  std::vector<float> before;   // scores that a row's biases and penalties have changed
  std::vector<uint64_t> keys;
};

// Throws std::invalid_argument where a history or bias of these rows names a token that is none,
// or their ends do not ascend.
void check_sampling(const Sampling& sampling, int64_t rows, int64_t vocab);

// Draws from row `row` of the step, whose logits (vocab of them) are given; they are scratch space
// during the call and unchanged after it. `sampling` has been checked. False where they are not
// finite numbers (-inf is one: an id that cannot be drawn); then the outputs mean nothing.
bool sample(const Kernels& kernels, float* logits, int64_t vocab, int64_t row,
            const Sampling& sampling, const SampleOutputs& outputs, SampleScratch& scratch);

}  // namespace tercet
