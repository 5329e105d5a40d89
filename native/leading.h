// The best few of a row of scores in one exact order: higher score first, then lower id.
//
//   scores [n] --maxima of groups--> a bound that enough reach --> those that reach it --> sorted
#pragma once

#include <cstdint>
#include <vector>

#include "kernels.h"

namespace tercet {

// A score and its id as an integer that sorts as (score, -id) does; -0.0 and 0.0 are equal scores.
uint64_t order_key(float score, int32_t id);
inline int32_t key_id(uint64_t key) { return int32_t(~uint32_t(key)); }
float key_score(uint64_t key);

struct LeadingScratch {
  std::vector<float> maxima;
  std::vector<int32_t> ids;
};

// The `count` best as keys, best first; fewer where fewer are above -inf. `best` is the highest
// score. There is no NaN.
void leading(const ScoreKernels& kernels, const float* scores, int64_t n, int64_t count, float best,
             LeadingScratch& scratch, std::vector<uint64_t>& keys);

}  // namespace tercet
