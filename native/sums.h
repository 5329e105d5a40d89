// Checksums of parts, and their fold: one number that says what bytes were looked at, in order.
//
// A strip is a part of every one of some units: unit u's bytes are [start + u * stride, + length).
// Source and target of a copy may cut the same bytes into units differently, but no part straddles
// two units of either. Values are equal on all instruction sets; wires/sums_numpy.py says them again.
#pragma once

#include <cstdint>

#include "kernels.h"

namespace tercet {

inline constexpr uint64_t kSumFactor = 0x9e3779b97f4a7c55ull;
inline constexpr uint64_t kSumFirst = 0xc2b2ae3d27d4eb4full;

inline uint64_t mix_sum(uint64_t sum, uint64_t word) {
  sum ^= word;
  return (sum << 32 | sum >> 32) * kSumFactor;
}

inline uint64_t finish_sum(uint64_t sum) {
  sum = (sum ^ sum >> 29) * kSumFirst;
  return sum ^ sum >> 32;
}

struct StripOf {
  uint8_t* memory;
  int64_t start, stride, length;
  const int32_t* units;
  int64_t num_units;

  int64_t bytes() const { return length * num_units; }
  uint8_t* at(int64_t byte) const {
    return memory + start + int64_t(units[byte / length]) * stride + byte % length;
  }
};

// The sums of all parts, in order: strip.bytes() / part_bytes of them. Throws std::invalid_argument
// where parts straddle units.
void sum_parts(const Kernels&, const StripOf&, int64_t part_bytes, uint64_t* sums);

// Carries on a fold: `before` is kSumFirst for the first parts.
uint64_t fold_sums(const uint64_t* sums, int64_t count, uint64_t before);

// Copies, and gives the fold of what was copied, after those `before` (0 if not `summed`), in one
// pass. What was read was read after earlier and before later loads of the caller: fences may be
// looked at around it.
uint64_t copy_strip(const Kernels&, const StripOf& from, const StripOf& to, int64_t part_bytes,
                    bool summed, uint64_t before = kSumFirst);

}  // namespace tercet
