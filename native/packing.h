// Packing of weights into panels (formats.h): from rows of float32 to BF16 or INT8, and from rows
// that are already 8-bit integers. The GGUF block formats have a packing of their own.
#pragma once

#include <cstdint>

#include "formats.h"

namespace tercet {

// How the N outputs of a matrix follow each other in panels.
enum class Outputs : int32_t {
  kPlain,  // in order
  kGated,  // rows are N / 2 of the gate, then N / 2 of up: interleaved by 16
};

// Row of W[n, k] that stands in a lane (0..31) of a panel; -1 where there is only padding.
int64_t row_of_lane(int64_t panel, int64_t lane, int64_t n, Outputs outputs);

// Panels that hold n outputs. In a gated pair each half is padded to 16.
inline constexpr int64_t num_panels(int64_t n, Outputs outputs) {
  return outputs == Outputs::kGated ? num_panels(round_up(n / 2, kPanel / 2) * 2) : num_panels(n);
}

// Bytes of all panels of W[n, k].
int64_t packed_bytes_bf16(int64_t n, int64_t k, Outputs outputs);
int64_t packed_bytes_int8(int64_t n, int64_t k, Outputs outputs);

// W[n, k] of float32 rounded to bfloat16 (nearest even, NaN stays NaN).
void pack_bf16(const float* rows, int64_t n, int64_t k, Outputs outputs, uint8_t* to);

// W[n, k] of float32 as 8-bit integers: scale = largest magnitude of the row / 127, integer =
// value / scale, nearest even. Rows of zeros (or whose scale vanishes) have scale 0, integers 0.
void pack_int8(const float* rows, int64_t n, int64_t k, Outputs outputs, uint8_t* to);

// W[n, k] of 8-bit integers (-128 too) with their scales [n].
void pack_int8_codes(const int8_t* rows, const float* scales, int64_t n, int64_t k, Outputs outputs,
                     uint8_t* to);

// Bias [n] in the order of the panels' lanes, zeros where there is only padding: `to` has 32 floats
// for each panel.
void pack_bias(const float* bias, int64_t n, Outputs outputs, float* to);

}  // namespace tercet
