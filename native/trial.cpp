#include "trial.h"

#include <cmath>
#include <cstring>

#include "memory.h"
#include "packing.h"

namespace tercet {
namespace {

constexpr int64_t kRows = 35, kN = 96, kK = 192;

// Small numbers in no order.
float number(int64_t index) { return float((index * 2654435761u >> 7) % 255) / 64.0f - 2.0f; }

struct Case {
  Memory weight, inputs, scales, sums, results[2];

  // The largest difference of any result, or infinity where one is no number.
  float difference(bool int8, const Kernels& doubtful, const Kernels& trusted) {
    float* rows = reinterpret_cast<float*>(results[0].grow(4 * kN * kK));
    for (int64_t i = 0; i < kN * kK; ++i) rows[i] = number(i);
    weight.grow(size_t(packed_bytes_bf16(kN, kK, Outputs::kPlain)));
    if (int8)
      pack_int8(rows, kN, kK, Outputs::kPlain, weight.data());
    else
      pack_bf16(rows, kN, kK, Outputs::kPlain, weight.data());
    const int64_t stride = int8 ? kK : 2 * kK;
    inputs.grow(size_t(kRows * stride));
    auto* sum = reinterpret_cast<int32_t*>(sums.grow(4 * kRows));
    auto* scale = reinterpret_cast<float*>(scales.grow(4 * kRows));
    for (int64_t row = 0; row < kRows; ++row) {
      sum[row] = 0;
      scale[row] = 0.01f;
      for (int64_t k = 0; k < kK; ++k) {
        const float value = number(7 * row + 3 * k + 1);
        if (int8) {
          const auto code = int8_t(value * 60.0f);
          std::memcpy(inputs.data() + row * stride + k, &code, 1);
          sum[row] += code;
        } else {
          uint32_t raw;
          std::memcpy(&raw, &value, 4);
          const auto high = uint16_t(raw >> 16);
          std::memcpy(inputs.data() + row * stride + 2 * k, &high, 2);
        }
      }
    }
    Linear linear{};
    linear.format = int8 ? Format::kInt8 : Format::kBF16;
    linear.epilogue = Epilogue::kStore;
    linear.n = kN, linear.k = kK, linear.weight = weight.data(), linear.y_stride = kN;
    linear.x = {int8 ? Grid::kToken : Grid::kBF16, kK, stride, inputs.data(), scale, sum, int8};
    const Kernels* both[2] = {&doubtful, &trusted};
    for (int i = 0; i < 2; ++i) {
      linear.y = reinterpret_cast<float*>(results[i].grow(4 * kRows * kN));
      const auto run = int8 ? both[i]->linear_int8 : both[i]->linear_bf16;
      // One row, a tile that is not full, and more than a tile.
      for (Range part : {Range{0, 1}, Range{1, 8}, Range{8, kRows}})
        run(linear, {0, num_panels(kN)}, part);
    }
    float most = 0.0f;
    for (int64_t i = 0; i < kRows * kN; ++i) {
      const float apart = std::fabs(reinterpret_cast<float*>(results[0].data())[i] -
                                    reinterpret_cast<float*>(results[1].data())[i]);
      if (!(apart <= most)) most = std::isfinite(apart) ? apart : INFINITY;
    }
    return most;
  }
};

}  // namespace

bool agree(const Kernels& doubtful, const Kernels& trusted) {
  Case integers, floats;
  return integers.difference(true, doubtful, trusted) == 0.0f &&
         floats.difference(false, doubtful, trusted) < 0.05f;
}

}  // namespace tercet
