// AMX: eight tiles of up to 16 rows x 64 bytes, and dot products of whole tiles. Kernels are
// templates over one of two policies: the hardware's, and one in plain C++ that any machine can
// test.
//
//   C[m][n] += sum over 16 words k of A[m][k] . B[k][n]     a word: four bytes or a pair of BF16
#pragma once

#include "simd.h"

namespace tercet::TERCET_ISA {

inline constexpr int kTiles = 8;
inline constexpr int kTileHeight = 16;
inline constexpr int64_t kTileBytes = 64;  // of a row: words of 16 outputs, or of 16 steps along K

// What LDTILECFG reads.
struct alignas(64) TileShape {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};
static_assert(sizeof(TileShape) == 64);

#if defined(__AMX_TILE__)

inline constexpr bool kHasTiles = true;

// The thread's tiles. They keep their shape until the next `configure`.
struct HardwareTiles {
  void configure(const TileShape& shape) {
    __asm__ volatile("ldtilecfg %0" : : "m"(shape));
  }
  template <int tile>
  void load(const uint8_t* from, int64_t stride) {
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm%c2"
                     :
                     : "r"(from), "r"(stride), "i"(tile)
                     : "memory");
  }
  template <int tile>
  void store(uint8_t* to, int64_t stride) {
    __asm__ volatile("tilestored %%tmm%c2, (%0,%1,1)"
                     :
                     : "r"(to), "r"(stride), "i"(tile)
                     : "memory");
  }
  template <int tile>
  void zero() {
    __asm__ volatile("tilezero %%tmm%c0" : : "i"(tile));
  }
  // Signed bytes of A by unsigned bytes of B, or the other way round, exact modulo 2^32.
  template <int c, int a, int b>
  void dot_s8u8() {
    __asm__ volatile("tdpbsud %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(c), "i"(a), "i"(b));
  }
  template <int c, int a, int b>
  void dot_u8s8() {
    __asm__ volatile("tdpbusd %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(c), "i"(a), "i"(b));
  }
  // Even and odd products are summed apart over the 16 words, then added to C.
  template <int c, int a, int b>
  void dot_bf16() {
    __asm__ volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(c), "i"(a), "i"(b));
  }
};

#else

inline constexpr bool kHasTiles = false;

#endif

// The same in plain C++; traps where the hardware would fault. Denormal numbers are kept, which
// the hardware takes for zeros.
struct EmulatedTiles {
  void configure(const TileShape& to) {
    shape = to;
    if (shape.palette != 1 || shape.start_row != 0) __builtin_trap();
    for (int tile = 0; tile < 16; ++tile) {
      const int highest = tile < kTiles ? kTileHeight : 0;
      if (shape.rows[tile] > highest || shape.row_bytes[tile] > kTileBytes) __builtin_trap();
    }
  }
  template <int tile>
  void load(const uint8_t* from, int64_t stride) {
    zero<tile>();
    for (int row = 0; row < shape.rows[tile]; ++row)
      std::memcpy(data[tile][row], from + row * stride, shape.row_bytes[tile]);
  }
  template <int tile>
  void store(uint8_t* to, int64_t stride) {
    configured(tile);
    for (int row = 0; row < shape.rows[tile]; ++row)
      std::memcpy(to + row * stride, data[tile][row], shape.row_bytes[tile]);
  }
  template <int tile>
  void zero() {
    configured(tile);
    std::memset(data[tile], 0, sizeof(data[tile]));
  }
  template <int c, int a, int b>
  void dot_s8u8() {
    dot_bytes<c, a, b, int8_t, uint8_t>();
  }
  template <int c, int a, int b>
  void dot_u8s8() {
    dot_bytes<c, a, b, uint8_t, int8_t>();
  }
  template <int c, int a, int b>
  void dot_bf16() {
    each<c, a, b>([&](uint8_t* sum, const uint8_t* x, int n) {
      float halves[2] = {};
      for (int k = 0; k < shape.row_bytes[a] / 2; ++k)
        halves[k % 2] = fma(from_bf16(bits_at<uint16_t>(x + k * 2)),
                            from_bf16(bits_at<uint16_t>(data[b][k / 2] + n * 4 + k % 2 * 2)),
                            halves[k % 2]);
      const float total = bits_at<float>(sum) + (halves[0] + halves[1]);
      std::memcpy(sum, &total, 4);
    });
  }

  TileShape shape;
  uint8_t data[kTiles][kTileHeight][kTileBytes];

 private:
  template <typename T>
  static T bits_at(const uint8_t* from) {
    T value;
    std::memcpy(&value, from, sizeof(T));
    return value;
  }
  void configured(int tile) const {
    if (shape.rows[tile] == 0 || shape.row_bytes[tile] == 0) __builtin_trap();
  }
  template <int c, int a, int b, typename A, typename B>
  void dot_bytes() {
    each<c, a, b>([&](uint8_t* sum, const uint8_t* x, int n) {
      uint32_t total = bits_at<uint32_t>(sum);
      for (int k = 0; k < shape.row_bytes[a]; ++k)
        total += uint32_t(int32_t(A(x[k])) * int32_t(B(data[b][k / 4][n * 4 + k % 4])));
      std::memcpy(sum, &total, 4);
    });
  }
  template <int c, int a, int b, typename Body>
  void each(const Body& body) {
    configured(a), configured(b), configured(c);
    if (shape.rows[c] != shape.rows[a] || shape.row_bytes[c] != shape.row_bytes[b] ||
        shape.row_bytes[a] != 4 * shape.rows[b])
      __builtin_trap();
    for (int m = 0; m < shape.rows[c]; ++m)
      for (int n = 0; n < shape.row_bytes[c] / 4; ++n) body(data[c][m] + n * 4, data[a][m], n);
  }
};

#if defined(__AMX_TILE__)
using BestTiles = HardwareTiles;
#else
using BestTiles = EmulatedTiles;
#endif

}  // namespace tercet::TERCET_ISA
