// What happens to a finished sum of a linear operation: bias, then storing, adding or gating.
// Shared by all linear kernels.
#pragma once

#include "kernels.h"
#include "simd.h"

namespace tercet::TERCET_ISA {

// Finish the sums of one row and panel (lanes 0..15 and 16..31) and write them to y.
template <Epilogue kind>
inline __attribute__((always_inline)) void finish(const Linear& linear, int64_t panel, int64_t row,
                                                  f32x16 low, f32x16 high) {
  if (linear.bias != nullptr) {
    const float* bias = linear.bias + panel * kPanel;
    low += load<f32x16>(bias);
    high += load<f32x16>(bias + kLanes);
  }
  float* y = linear.y + row * linear.y_stride;
  if constexpr (kind == Epilogue::kGlu) {
    store(y + panel * kLanes, silu(low) * high);
  } else {
    y += panel * kPanel;
    if constexpr (kind == Epilogue::kAdd) {
      low = load<f32x16>(y) + low;
      high = load<f32x16>(y + kLanes) + high;
    }
    store(y, low);
    store(y + kLanes, high);
  }
}

// Call `body.template operator()<kind>()` with the epilogue as a constant.
template <typename Body>
inline __attribute__((always_inline)) void with_epilogue(Epilogue kind, const Body& body) {
  switch (kind) {
    case Epilogue::kStore:
      return body.template operator()<Epilogue::kStore>();
    case Epilogue::kAdd:
      return body.template operator()<Epilogue::kAdd>();
    case Epilogue::kGlu:
      return body.template operator()<Epilogue::kGlu>();
  }
}

}  // namespace tercet::TERCET_ISA
