#include "grouped_packing.h"

#include <cstring>

namespace tercet {
namespace {

constexpr int64_t kHalves = kPanel * 2;       // bytes of one f16 for each output
constexpr int64_t kNibbles = 4 * kPanel * 4;  // bytes of a group's nibbles

void put_half(uint8_t* to, int64_t lane, const uint8_t* half) {
  std::memcpy(to + lane * 2, half, 2);
}

// The group's nibbles of one output from its 32 codes.
void put_nibbles(uint8_t* to, int64_t lane, const uint8_t* codes) {
  for (int pair = 0; pair < 4; ++pair)
    for (int b = 0; b < 4; ++b)
      to[(pair * kPanel + lane) * 4 + b] =
          uint8_t((codes[4 * pair + b] & 15) | (codes[16 + 4 * pair + b] & 15) << 4);
}

// Blocks of Q4_0 and Q4_1: `halves` numbers f16, then 16 bytes that hold number i and 16 + i.
void pack_simple4(const uint8_t* block, int64_t lane, int halves, uint8_t* to) {
  const uint8_t* codes = block + 2 * halves;
  for (int pair = 0; pair < 4; ++pair)
    std::memcpy(to + (pair * kPanel + lane) * 4, codes + 4 * pair, 4);
  for (int half = 0; half < halves; ++half)
    put_half(to + kNibbles + half * kHalves, lane, block + 2 * half);
}

void pack_q8_0(const uint8_t* block, int64_t lane, uint8_t* to) {
  for (int quad = 0; quad < 8; ++quad)
    for (int b = 0; b < 4; ++b)
      to[(quad * kPanel + lane) * 4 + b] = uint8_t(block[2 + 4 * quad + b] ^ 0x80);
  put_half(to + 8 * kPanel * 4, lane, block);
}

void pack_q4_k(const uint8_t* block, int64_t lane, uint8_t* to) {
  put_half(to, lane, block);
  put_half(to + kHalves, lane, block + 2);
  for (int word = 0; word < 3; ++word)
    std::memcpy(to + 2 * kHalves + (word * kPanel + lane) * 4, block + 4 + 4 * word, 4);
  uint8_t* groups = to + 2 * kHalves + 3 * kPanel * 4;
  for (int group = 0; group < 8; ++group) {
    uint8_t codes[32];
    for (int i = 0; i < 32; ++i)
      codes[i] = uint8_t(block[16 + 32 * (group / 2) + i] >> 4 * (group % 2) & 15);
    put_nibbles(groups + group * kNibbles, lane, codes);
  }
}

void pack_q6_k(const uint8_t* block, int64_t lane, uint8_t* to) {
  const uint8_t *low = block, *high = block + 128, *scales = block + 192;
  put_half(to, lane, block + 208);
  constexpr int64_t kUpper = 2 * kPanel * 4, kGroupBytes = kNibbles + kUpper + 2 * kPanel;
  for (int group = 0; group < 8; ++group) {
    uint8_t* piece = to + kHalves + group * kGroupBytes;
    const int half = group / 4, part = group % 4;
    uint8_t lower[32], upper[32];
    for (int i = 0; i < 32; ++i) {
      lower[i] = uint8_t(low[64 * half + 32 * (part & 1) + i] >> 4 * (part >> 1) & 15);
      upper[i] = uint8_t(high[32 * half + i] >> 2 * part & 3);
    }
    put_nibbles(piece, lane, lower);
    for (int h = 0; h < 2; ++h)
      for (int b = 0; b < 4; ++b)
        piece[kNibbles + (h * kPanel + lane) * 4 + b] =
            uint8_t(upper[8 * h + b] | upper[16 + 8 * h + b] << 2 | upper[4 + 8 * h + b] << 4 |
                    upper[20 + 8 * h + b] << 6);
    for (int sub = 0; sub < 2; ++sub)
      piece[kNibbles + kUpper + sub * kPanel + lane] = scales[2 * group + sub];
  }
}

void pack_block(Format format, const uint8_t* block, int64_t lane, uint8_t* to) {
  switch (format) {
    case Format::kQ4_0:
      return pack_simple4(block, lane, 1, to);
    case Format::kQ4_1:
      return pack_simple4(block, lane, 2, to);
    case Format::kQ8_0:
      return pack_q8_0(block, lane, to);
    case Format::kQ4_K:
      return pack_q4_k(block, lane, to);
    case Format::kQ6_K:
      return pack_q6_k(block, lane, to);
    default:
      return;
  }
}

}  // namespace

BlockSize block_size(Format format) {
  switch (format) {
    case Format::kQ4_0:
      return {32, 18};
    case Format::kQ4_1:
      return {32, 20};
    case Format::kQ8_0:
      return {32, 34};
    case Format::kQ4_K:
      return {256, 144};
    case Format::kQ6_K:
      return {256, 210};
    default:
      return {1, 0};
  }
}

int64_t grouped_row_bytes(Format format, int64_t k) {
  const BlockSize size = block_size(format);
  return k / size.numbers * size.bytes;
}

int64_t packed_bytes_grouped(Format format, int64_t n, int64_t k, Outputs outputs) {
  return num_panels(n, outputs) * kPanel * grouped_row_bytes(format, k);
}

void pack_grouped(Format format, const uint8_t* rows, int64_t n, int64_t k, Outputs outputs,
                  uint8_t* to) {
  const BlockSize size = block_size(format);
  const int64_t blocks = k / size.numbers, row_bytes = blocks * size.bytes;
  const int64_t panels = num_panels(n, outputs);
  for (int64_t panel = 0; panel < panels; ++panel, to += kPanel * row_bytes) {
    std::memset(to, 0, size_t(kPanel * row_bytes));
    for (int64_t lane = 0; lane < kPanel; ++lane) {
      const int64_t row = row_of_lane(panel, lane, n, outputs);
      if (row < 0) continue;
      for (int64_t block = 0; block < blocks; ++block)
        pack_block(format, rows + row * row_bytes + block * size.bytes, lane,
                   to + block * kPanel * size.bytes);
    }
  }
}

}  // namespace tercet
