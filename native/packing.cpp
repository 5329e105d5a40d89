#include "packing.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace tercet {
namespace {

uint16_t to_bf16(float value) {
  uint32_t raw;
  std::memcpy(&raw, &value, sizeof(raw));
  if ((raw & 0x7fffffffu) > 0x7f800000u) return uint16_t(raw >> 16 | 0x40);
  return uint16_t((raw + 0x7fffu + (raw >> 16 & 1)) >> 16);
}

float scale_of(const float* row, int64_t k) {
  float largest = 0.0f;
  for (int64_t i = 0; i < k; ++i) largest = std::max(largest, std::fabs(row[i]));
  return largest / 127.0f;
}

// Nearest integer, ties to even, in -127..127; adding 1.5 x 2^23 leaves no fraction.
int8_t code_of(float value, float scale) {
  const float rounded = (value / scale + 12582912.0f) - 12582912.0f;
  return int8_t(std::clamp(rounded, -127.0f, 127.0f));
}

// Fill one panel of INT8 whose lane holds the codes that `fill(row, codes[k]) -> scale` gives.
template <typename Fill>
void pack_codes(int64_t n, int64_t k, Outputs outputs, uint8_t* to, const Fill& fill) {
  const int64_t kp = padded_k(k);
  for (int64_t panel = 0; panel < num_panels(n, outputs); ++panel) {
    uint8_t* codes = to + panel * int8_panel_bytes(k);
    std::memset(codes, 128, size_t(kp * kPanel));
    float scales[kPanel] = {};
    for (int64_t lane = 0; lane < kPanel; ++lane) {
      const int64_t row = row_of_lane(panel, lane, n, outputs);
      if (row < 0) continue;
      scales[lane] = fill(row, [&](int64_t i, int8_t code) {
        codes[(i / 4 * kPanel + lane) * 4 + i % 4] = uint8_t(code + 128);
      });
    }
    std::memcpy(codes + kp * kPanel, scales, sizeof(scales));
  }
}

}  // namespace

int64_t row_of_lane(int64_t panel, int64_t lane, int64_t n, Outputs outputs) {
  if (outputs == Outputs::kPlain) {
    const int64_t row = panel * kPanel + lane;
    return row < n ? row : -1;
  }
  const int64_t half = n / 2, index = panel * (kPanel / 2) + lane % (kPanel / 2);
  if (index >= half) return -1;
  return lane < kPanel / 2 ? index : half + index;
}

int64_t packed_bytes_bf16(int64_t n, int64_t k, Outputs outputs) {
  return num_panels(n, outputs) * bf16_panel_bytes(k);
}

int64_t packed_bytes_int8(int64_t n, int64_t k, Outputs outputs) {
  return num_panels(n, outputs) * int8_panel_bytes(k);
}

void pack_bf16(const float* rows, int64_t n, int64_t k, Outputs outputs, uint8_t* to) {
  for (int64_t panel = 0; panel < num_panels(n, outputs); ++panel) {
    uint8_t* bytes = to + panel * bf16_panel_bytes(k);
    std::memset(bytes, 0, size_t(bf16_panel_bytes(k)));
    for (int64_t lane = 0; lane < kPanel; ++lane) {
      const int64_t row = row_of_lane(panel, lane, n, outputs);
      if (row < 0) continue;
      for (int64_t i = 0; i < k; ++i) {
        const uint16_t value = to_bf16(rows[row * k + i]);
        std::memcpy(bytes + ((i / 2 * kPanel + lane) * 2 + i % 2) * 2, &value, sizeof(value));
      }
    }
  }
}

void pack_int8(const float* rows, int64_t n, int64_t k, Outputs outputs, uint8_t* to) {
  pack_codes(n, k, outputs, to, [&](int64_t row, const auto& put) {
    const float* values = rows + row * k;
    const float scale = scale_of(values, k);
    if (!(scale > 0.0f)) return 0.0f;
    for (int64_t i = 0; i < k; ++i) put(i, code_of(values[i], scale));
    return scale;
  });
}

void pack_int8_codes(const int8_t* rows, const float* scales, int64_t n, int64_t k, Outputs outputs,
                     uint8_t* to) {
  pack_codes(n, k, outputs, to, [&](int64_t row, const auto& put) {
    for (int64_t i = 0; i < k; ++i) put(i, rows[row * k + i]);
    return scales[row];
  });
}

void pack_bias(const float* bias, int64_t n, Outputs outputs, float* to) {
  for (int64_t panel = 0; panel < num_panels(n, outputs); ++panel)
    for (int64_t lane = 0; lane < kPanel; ++lane) {
      const int64_t row = row_of_lane(panel, lane, n, outputs);
      to[panel * kPanel + lane] = row < 0 ? 0.0f : bias[row];
    }
}

}  // namespace tercet
