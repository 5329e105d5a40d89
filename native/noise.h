// Chance without state: 32 random bits for every (seed, choice, position, token id); the same
// numbers as tercet.devices.noise, which says where they come from.
#pragma once

#include <cmath>
#include <cstdint>

namespace tercet {

inline uint64_t mix64(uint64_t value) {
  value += 0x9e3779b97f4a7c15u;
  value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9u;
  value = (value ^ value >> 27) * 0x94d049bb133111ebu;
  return value ^ value >> 31;
}

inline uint32_t mix32(uint32_t value) {
  value = (value ^ value >> 16) * 0x85ebca6bu;
  value = (value ^ value >> 13) * 0xc2b2ae35u;
  return value ^ value >> 16;
}

// The key of a row's noise.
inline uint64_t noise_key(uint64_t seed, int32_t choice, int32_t position) {
  const uint64_t keyed = mix64(mix64(seed) ^ uint64_t(int64_t(choice)));
  return mix64(keyed ^ uint64_t(int64_t(position)));
}

inline uint32_t noise_bits(uint64_t key, int32_t id) {
  return mix32(mix32(uint32_t(id) * 0x9e3779b1u + uint32_t(key)) ^ uint32_t(key >> 32));
}

// Standard Gumbel noise; finite for all bits (between about -3.1 and 22.9).
inline double gumbel(uint32_t bits) { return -std::log(-std::log((bits + 0.5) * 0x1p-32)); }

}  // namespace tercet
