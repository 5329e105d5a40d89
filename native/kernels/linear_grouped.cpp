// y = x W^T with GGUF block formats: tiles where the machine has them, vectors elsewhere.
#include "kernels/all.h"
#include "kernels/grouped_tiles.h"

namespace tercet::TERCET_ISA {

void linear_grouped(const Linear& linear, Range panels, Range rows) {
  with_blocks(linear.format, [&]<typename Blocks>() {
    if constexpr (kHasTiles) {
      // Both give the same bits, so the number of rows may choose.
      if (rows.size() >= kTileRowsLeast) {
        BestTiles tiles;
        return multiply_grouped_tiles<Blocks>(tiles, linear, panels, rows);
      }
    }
    multiply_grouped<Blocks>(linear, panels, rows);
  });
}

void unpack_grouped_row(Format format, int64_t, int64_t k, const uint8_t* weight, int64_t row,
                        float* to) {
  with_blocks(format, [&]<typename Blocks>() {
    constexpr int64_t kNumbers = Blocks::kGroups * kGroup;
    const uint8_t* block = weight + row / kPanel * (k / kNumbers) * Blocks::kBytes;
    for (int64_t begin = 0; begin < k; begin += kNumbers, block += Blocks::kBytes)
      for (int64_t group = 0; group < Blocks::kGroups; ++group)
        for (int number = 0; number < kGroup; ++number)
          *to++ = Blocks::value(block, group, number, row % kPanel);
  });
}

}  // namespace tercet::TERCET_ISA
