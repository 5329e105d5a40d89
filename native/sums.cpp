#include "sums.h"

#include <algorithm>
#include <atomic>
#include <stdexcept>
#include <string>

namespace tercet {
namespace {

// A copy that fits the caches stays there; one that does not would only drive out the rest.
constexpr int64_t kPastCaches = 256 << 10;

void check_parts(const StripOf& strip, int64_t part_bytes) {
  if (strip.num_units == 0) return;
  if (part_bytes <= 0 || strip.length <= 0 || strip.length % part_bytes != 0)
    throw std::invalid_argument("parts of " + std::to_string(part_bytes) +
                                " bytes straddle units of " + std::to_string(strip.length));
}

// How many bytes from `byte` on lie in one piece.
int64_t piece(const StripOf& strip, int64_t byte) { return strip.length - byte % strip.length; }

}  // namespace

void sum_parts(const Kernels& kernels, const StripOf& strip, int64_t part_bytes, uint64_t* sums) {
  check_parts(strip, part_bytes);
  for (int64_t byte = 0; byte < strip.bytes(); byte += part_bytes)
    *sums++ = kernels.sums.part(strip.at(byte), part_bytes);
}

uint64_t fold_sums(const uint64_t* sums, int64_t count, uint64_t before) {
  for (int64_t i = 0; i < count; ++i) before = mix_sum(before, sums[i]);
  return before;
}

uint64_t copy_strip(const Kernels& kernels, const StripOf& from, const StripOf& to,
                    int64_t part_bytes, bool summed, uint64_t before) {
  if (from.bytes() != to.bytes())
    throw std::invalid_argument(std::to_string(from.bytes()) + " bytes do not fit " +
                                std::to_string(to.bytes()));
  if (summed) check_parts(from, part_bytes), check_parts(to, part_bytes);
  const bool past_caches = from.bytes() >= kPastCaches;
  uint64_t fold = summed ? before : 0;
  std::atomic_thread_fence(std::memory_order_seq_cst);
  for (int64_t byte = 0; byte < from.bytes();) {
    const int64_t count = summed ? part_bytes : std::min(piece(from, byte), piece(to, byte));
    if (summed)
      fold = mix_sum(fold, kernels.sums.copy(from.at(byte), to.at(byte), count, past_caches));
    else
      kernels.sums.move(from.at(byte), to.at(byte), count, past_caches);
    byte += count;
  }
#if defined(__x86_64__)
  __builtin_ia32_sfence();  // stores past the caches are ordered by nothing else
#endif
  std::atomic_thread_fence(std::memory_order_seq_cst);
  return fold;
}

}  // namespace tercet
