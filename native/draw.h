// Temperature, top-k, top-p, min-p and noise: steps 5 to 9 of tercet.devices.reference.sampling.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels.h"
#include "leading.h"

namespace tercet {

struct Heat {                  // how a row is drawn
  double temperature;          // above 0
  int64_t top_k;               // 0: all
  double top_p, min_p;
  uint64_t key;                // of its noise
};

struct Drawn {
  int32_t token;
  float margin;                // best sum minus second best; inf where only one competed
};

struct DrawScratch {
  LeadingScratch leading;
  std::vector<uint64_t> keys;
  std::vector<int32_t> ids;
  std::vector<float> masses, kept_scores, kept_masses;
  std::vector<double> values;
};

// Draws from a row of scores without NaN and +inf, of which one is finite; `top` are its best two.
Drawn draw(const ScoreKernels& kernels, const float* scores, int64_t n, const TopTwo& top,
           const Heat& heat, DrawScratch& scratch);

}  // namespace tercet
