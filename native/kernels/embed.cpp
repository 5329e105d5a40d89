// Rows of packed weights in float32: the embedding shares its memory with the head's panels.
#include "kernels/all.h"

namespace tercet::TERCET_ISA {
namespace {

// [kp / 2][32][2]: output `lane`'s numbers lie in pairs, a cache line and more apart.
void bf16_row(const uint8_t* panel, int64_t k, int64_t lane, float* to) {
  const auto* pairs = reinterpret_cast<const uint32_t*>(panel) + lane;
  int64_t col = 0;
  for (; col + 2 <= k; col += 2, pairs += kPanel) {
    to[col] = bits<float>(*pairs << 16);
    to[col + 1] = bits<float>(*pairs & 0xffff0000u);
  }
  if (col < k) to[col] = bits<float>(*pairs << 16);
}

// [kp / 4][32][4] as w + 128, then the scales.
void int8_row(const uint8_t* panel, int64_t k, int64_t lane, float* to) {
  const uint8_t* fours = panel + lane * 4;
  float scale;
  std::memcpy(&scale, panel + kPanel * padded_k(k) + lane * sizeof(float), sizeof(float));
  for (int64_t col = 0; col < k; ++col)
    to[col] = float(int32_t(fours[col / 4 * 4 * kPanel + col % 4]) - 128) * scale;
}

}  // namespace

void embed(const Embed& call, Range rows) {
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    const int64_t id = call.ids[row], panel = id / kPanel, lane = id % kPanel;
    float* to = call.y + row * call.y_stride;
    if (call.format == Format::kBF16) {
      bf16_row(call.weight + panel * bf16_panel_bytes(call.k), call.k, lane, to);
    } else if (call.format == Format::kInt8) {
      int8_row(call.weight + panel * int8_panel_bytes(call.k), call.k, lane, to);
    } else {
      unpack_grouped_row(call.format, call.n, call.k, call.weight, id, to);
    }
  }
}

}  // namespace tercet::TERCET_ISA
