// How numbers lie in memory: formats of weights and activations, panels, sizes. Shared by all
// instruction sets: one packed image serves every machine.
//
// A weight W[N, K] is cut into panels of 32 outputs, each one piece of memory that one row of a
// step reads from start to end:
//
//   panel p   outputs 32 p .. 32 p + 31 (zeros beyond N), all of K (zeros up to kp)
//     BF16    [kp / 2][32][2] u16                   pairs of K side by side (VDPBF16PS, TDPBF16PS)
//     INT8    [kp / 4][32][4] u8 = w + 128          then float32 scales [32]
//     Q4_0 .. Q8_0   per block of 32 of K: native/grouped_*.h
//
// A gated pair (gate, up) is packed with its outputs interleaved by 16: panel p holds gate
// 16 p .. 16 p + 15 and up 16 p .. 16 p + 15, so that the gate is applied where both are at hand.
#pragma once

#include <cstdint>

namespace tercet {

inline constexpr int64_t kPanel = 32;
inline constexpr int64_t kBlockTokens = 16;
inline constexpr int64_t kGroup = 32;  // activations of one scale, for grouped formats

enum class Format : int32_t { kF32, kBF16, kInt8, kQ4_0, kQ4_1, kQ4_K, kQ6_K, kQ8_0 };

// Activations: float32, bfloat16, or int8 with one scale for a row (token) or for 32 numbers.
enum class Grid : int32_t { kF32, kBF16, kToken, kGroup };

inline constexpr int64_t round_up(int64_t value, int64_t unit) {
  return (value + unit - 1) / unit * unit;
}

// K as it is stored: whole cache lines and tiles.
inline constexpr int64_t padded_k(int64_t k) { return round_up(k, 64); }
inline constexpr int64_t num_panels(int64_t n) { return (n + kPanel - 1) / kPanel; }

// Bytes of one panel; a multiple of 64.
inline constexpr int64_t bf16_panel_bytes(int64_t k) { return padded_k(k) * kPanel * 2; }
inline constexpr int64_t int8_panel_bytes(int64_t k) { return padded_k(k) * kPanel + kPanel * 4; }

struct Range {
  int64_t begin, end;
  int64_t size() const { return end - begin; }
};

// A matrix of activations, one row for each token. Rows are `stride` bytes apart and begin at a
// multiple of 64; columns up to the padding (padded_k) may be read and are zero for BF16 and int8.
struct Matrix {
  Grid grid;
  int64_t cols;
  int64_t stride;   // bytes
  uint8_t* data;    // [rows][stride]
  float* scales;    // int8: [rows][groups]
  int32_t* sums;    // int8: [rows][groups] sum of the numbers of the group
  int64_t groups;   // 1 for kToken, padded_k / 32 for kGroup

  template <typename T>
  T* row(int64_t index) const {
    return reinterpret_cast<T*>(data + index * stride);
  }
};

}  // namespace tercet
