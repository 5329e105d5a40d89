// Sums notice every change of a part, and are the same whoever computes them.
#include "sums.h"

#include <cstring>
#include <stdexcept>

#include "check.h"

namespace {

using namespace tercet;

std::vector<uint8_t> chance(int64_t count) {
  std::mt19937_64 generator(7);
  std::vector<uint8_t> bytes(size_t(count), 0);
  for (uint8_t& byte : bytes) byte = uint8_t(generator());
  return bytes;
}

}  // namespace

CASE(sums_are_those_of_the_portable_kernels) {
  const std::vector<uint8_t> bytes = chance(5000);
  for (int64_t count : {0, 1, 63, 64, 255, 256, 257, 511, 512, 1024, 4096, 4999})
    for (int64_t from : {0, 1})
      CHECK(kernels.sums.part(bytes.data() + from, count) ==
            portable_kernels()->sums.part(bytes.data() + from, count));
}

CASE(every_flipped_bit_and_every_swap_of_words_changes_a_sum) {
  std::vector<uint8_t> bytes = chance(1100);
  const uint64_t before = kernels.sums.part(bytes.data(), 1100);
  for (size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    bytes[bit / 8] ^= uint8_t(1 << bit % 8);
    CHECK(kernels.sums.part(bytes.data(), 1100) != before);
    bytes[bit / 8] ^= uint8_t(1 << bit % 8);
  }
  auto* words = reinterpret_cast<uint32_t*>(bytes.data());
  for (int i = 0; i < 275; ++i)
    for (int j = 0; j < i; ++j) {
      std::swap(words[i], words[j]);
      CHECK(kernels.sums.part(bytes.data(), 1100) != before);
      std::swap(words[i], words[j]);
    }
}

CASE(zeros_of_different_length_have_different_sums) {
  const std::vector<uint8_t> zeros(4096, 0);
  std::vector<uint64_t> seen;
  for (int64_t count = 0; count <= 4096; count += count < 600 ? 1 : 64) {
    const uint64_t sum = kernels.sums.part(zeros.data(), count);
    for (uint64_t other : seen) CHECK(other != sum);
    seen.push_back(sum);
  }
}

CASE(the_sign_bits_of_two_words_of_a_lane_do_not_cancel) {
  std::vector<uint8_t> bytes(1024, 0);
  const uint64_t before = kernels.sums.part(bytes.data(), 1024);
  bytes[7] ^= 0x80, bytes[256 + 7] ^= 0x80;
  CHECK(kernels.sums.part(bytes.data(), 1024) != before);
}

CASE(copies_arrive_and_fold_as_their_sums_do) {
  constexpr int64_t kPart = 768;
  for (int64_t many : {1, 100}) {  // in the caches, and past them
    const int64_t length = 4 * kPart, stride = length + 256;
    std::vector<uint8_t> bytes = chance(stride * 4 * many);
    tests::Aligned<uint8_t> target(size_t(length * 4 * many + 64));
    std::vector<int32_t> units, whole{0};
    for (int32_t unit = int32_t(4 * many - 1); unit >= 0; --unit) units.push_back(unit);
    for (int64_t shift : {0, 3}) {
      const StripOf from{bytes.data(), 128, stride, length, units.data(), int64_t(units.size())};
      StripOf to{target.data() + shift, 0, 0, from.bytes(), whole.data(), 1};
      std::vector<uint64_t> sums(size_t(from.bytes() / kPart));
      sum_parts(kernels, from, kPart, sums.data());
      const uint64_t fold = fold_sums(sums.data(), int64_t(sums.size()), kSumFirst);
      CHECK(copy_strip(kernels, from, to, kPart, true) == fold);
      CHECK(copy_strip(kernels, from, to, kPart, true, fold) ==
            fold_sums(sums.data(), int64_t(sums.size()), fold));
      sum_parts(kernels, to, kPart, sums.data());
      CHECK(fold_sums(sums.data(), int64_t(sums.size()), kSumFirst) == fold);
      std::memset(to.memory, 0, size_t(to.bytes()));
      copy_strip(kernels, from, to, kPart, false);
      for (size_t unit = 0; unit < units.size(); ++unit)
        CHECK(std::memcmp(to.memory + int64_t(unit) * length,
                          bytes.data() + 128 + units[unit] * stride, size_t(length)) == 0);
    }
  }
}

CASE(parts_that_straddle_units_are_refused) {
  uint8_t bytes[100] = {};
  const int32_t unit = 0;
  uint64_t sums[10];
  bool refused = false;
  try {
    sum_parts(kernels, {bytes, 0, 100, 100, &unit, 1}, 30, sums);
  } catch (const std::invalid_argument&) {
    refused = true;
  }
  CHECK(refused);
}
