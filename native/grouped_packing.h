// Packing of GGUF block formats into panels: every bit of the file's numbers, in another order.
//
// A panel's piece for one block of K (32 numbers, 256 of the K formats) has as many bytes as its
// 32 rows have in the file. `nibbles` [4][32 outputs][4]: byte b of pair j holds number 4 j + b of a
// group of 32 in its low and number 16 + 4 j + b in its high bits.
//
//   Q4_0   nibbles, f16 d [32]
//   Q4_1   nibbles, f16 d [32], f16 m [32]
//   Q8_0   [8][32][4] u8 = w + 128, f16 d [32]
//   Q4_K   f16 d [32], f16 dmin [32], u32 scales [3][32] (the file's 12 bytes), then 8 nibbles
//   Q6_K   f16 d [32], then 8 times: nibbles (the lower 4 bits), [2][32][4] upper bits,
//          s8 scales [2][32]; byte b of the upper bits' quad h holds, from the lowest bits, those of
//          the numbers 8 h + b, 16 + 8 h + b, 4 + 8 h + b, 20 + 8 h + b
#pragma once

#include <cstdint>

#include "formats.h"
#include "packing.h"

namespace tercet {

// Numbers in a block of a GGUF format, and its bytes.
struct BlockSize {
  int64_t numbers, bytes;
};
BlockSize block_size(Format format);

// Bytes of a row of k numbers, which must be whole blocks.
int64_t grouped_row_bytes(Format format, int64_t k);

// Bytes of all panels of W[n, k].
int64_t packed_bytes_grouped(Format format, int64_t n, int64_t k, Outputs outputs);

// W[n, k] from rows of blocks as a GGUF file has them, one after the other.
void pack_grouped(Format format, const uint8_t* rows, int64_t n, int64_t k, Outputs outputs,
                  uint8_t* to);

}  // namespace tercet
