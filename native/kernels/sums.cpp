// Sums of bytes that are looked at, or copied, once.
//
// 32 lanes of 64 bits take the bytes of a part, 256 at a time; the last ones are filled up with
// zeros. In each lane a word is joined to what came before, the halves change places, and an odd
// number multiplies: a step that loses nothing, so a change within one word of a part always
// changes its sum, and a change of several does but for one case in 2^64. Lanes begin differently
// and are joined in their order, then the length is: words and lengths have their places.
#include "kernels/all.h"
#include "sums.h"

namespace tercet::TERCET_ISA {
namespace {

using u64x8 = uint64_t __attribute__((vector_size(64)));

constexpr int64_t kStripe = 256;
constexpr int64_t kAhead = 1024;  // bytes that are fetched early: parts are not one after another

inline u64x8 mixed(u64x8 sum, u64x8 data) {
  sum ^= data;
  return (sum << 32 | sum >> 32) * kSumFactor;
}

// Stores that go past the caches: what is copied in bulk is read by others, and later.
inline void stream(uint8_t* to, u64x8 value) {
#if defined(__AVX512F__)
  _mm512_stream_si512(reinterpret_cast<__m512i*>(to), bits<__m512i>(value));
#elif defined(__AVX__)
  __m256i halves[2];
  std::memcpy(halves, &value, 64);
  _mm256_stream_si256(reinterpret_cast<__m256i*>(to), halves[0]);
  _mm256_stream_si256(reinterpret_cast<__m256i*>(to + 32), halves[1]);
#elif defined(__SSE2__)
  __m128i parts[4];
  std::memcpy(parts, &value, 64);
  for (int i = 0; i < 4; ++i) _mm_stream_si128(reinterpret_cast<__m128i*>(to + 16 * i), parts[i]);
#else
  store(to, value);
#endif
}

enum class To { kNowhere, kMemory, kStream };

struct Lanes {
  u64x8 a, b, c, d;

  Lanes() {
    uint64_t first[32];
    for (int lane = 0; lane < 32; ++lane) first[lane] = uint64_t(lane + 1) * kSumFirst;
    std::memcpy(this, first, sizeof first);
  }

  template <To where, bool summed = true>
  inline __attribute__((always_inline)) void take(const uint8_t* from, uint8_t* to) {
    const u64x8 w = load<u64x8>(from), x = load<u64x8>(from + 64), y = load<u64x8>(from + 128),
                z = load<u64x8>(from + 192);
    if constexpr (summed) a = mixed(a, w), b = mixed(b, x), c = mixed(c, y), d = mixed(d, z);
    if constexpr (where == To::kMemory)
      store(to, w), store(to + 64, x), store(to + 128, y), store(to + 192, z);
    if constexpr (where == To::kStream)
      stream(to, w), stream(to + 64, x), stream(to + 128, y), stream(to + 192, z);
  }

  uint64_t sum(int64_t bytes) const {
    const u64x8 joined = mixed(mixed(mixed(a, b), c), d);
    uint64_t all = uint64_t(bytes) * kSumFactor;
    for (int lane = 0; lane < 8; ++lane) all = mix_sum(all, joined[lane]);
    return finish_sum(all);
  }
};

template <To where, bool summed = true>
uint64_t sum_of(const uint8_t* from, uint8_t* to, int64_t bytes) {
  Lanes lanes;
  int64_t at = 0;
  for (; at + kStripe <= bytes; at += kStripe) {
    for (int line = 0; line < kStripe; line += 64) __builtin_prefetch(from + at + kAhead + line);
    lanes.take<where, summed>(from + at, to + at);
  }
  if (at < bytes) {
    alignas(64) uint8_t rest[kStripe] = {};
    std::memcpy(rest, from + at, size_t(bytes - at));
    lanes.take<To::kNowhere>(rest, nullptr);
    if (where != To::kNowhere) std::memcpy(to + at, rest, size_t(bytes - at));
  }
  return summed ? lanes.sum(bytes) : 0;
}

bool streams(const uint8_t* to, bool past_caches) {
  return past_caches && reinterpret_cast<uintptr_t>(to) % 64 == 0;
}

}  // namespace

uint64_t sum_part(const uint8_t* from, int64_t bytes) {
  return sum_of<To::kNowhere>(from, nullptr, bytes);
}

uint64_t copy_part(const uint8_t* from, uint8_t* to, int64_t bytes, bool past_caches) {
  if (streams(to, past_caches)) return sum_of<To::kStream>(from, to, bytes);
  return sum_of<To::kMemory>(from, to, bytes);
}

void move_part(const uint8_t* from, uint8_t* to, int64_t bytes, bool past_caches) {
  if (streams(to, past_caches))
    sum_of<To::kStream, false>(from, to, bytes);
  else
    std::memcpy(to, from, size_t(bytes));
}

}  // namespace tercet::TERCET_ISA
