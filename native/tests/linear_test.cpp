// Linear operations of BF16 and INT8 with every instruction set.
#include "linear_test.h"

using namespace tercet;
using namespace tercet::tests;

namespace {

LinearKernel kernel_of(const Kernels& kernels, Format format) {
  return format == Format::kBF16 ? kernels.linear_bf16 : kernels.linear_int8;
}

const Format kFormats[] = {Format::kBF16, Format::kInt8};
const Epilogue kEpilogues[] = {Epilogue::kStore, Epilogue::kAdd, Epilogue::kGlu};

}  // namespace

CASE(linear_equals_plain_loops) {
  const std::pair<int64_t, int64_t> sizes[] = {{2, 1}, {32, 64}, {34, 65}, {96, 130}, {258, 577}};
  unsigned seed = 0;
  for (const Format format : kFormats)
    for (const Epilogue epilogue : kEpilogues)
      for (const auto& [n, k] : sizes)
        for (const int64_t rows : {1, 2, 3, 4, 5, 7, 12, 13, 31, 33}) {
          if (n * k * rows > 2'000'000) continue;
          Problem problem(format, {n, k, rows, epilogue, ++seed % 2 == 0}, seed);
          check_against_loops(kernel_of(kernels, format), format, problem);
        }
}

CASE(linear_rows_are_the_same_in_any_company) {
  std::mt19937 random(7);
  unsigned seed = 100;
  for (const Format format : kFormats)
    for (const Epilogue epilogue : kEpilogues)
      for (const int64_t rows : {1, 2, 5, 6, 11, 12, 13, 16, 17, 24, 40, 65, 130}) {
        Problem problem(format, {290, 192, rows, epilogue, rows % 2 == 0}, ++seed);
        check_any_company(kernel_of(kernels, format), problem, random, 6);
      }
}

CASE(linear_rows_of_large_matrices_are_the_same_in_any_company) {
  std::mt19937 random(8);
  for (const Format format : kFormats)
    for (const auto& [n, k] : {std::pair<int64_t, int64_t>{96, 4224}, {64, 1536}, {448, 576}}) {
      Problem problem(format, {n, k, 47}, unsigned(n + k));
      check_any_company(kernel_of(kernels, format), problem, random, 4);
    }
}

CASE(linear_int8_sums_of_extreme_integers_are_exact) {
  for (const int sign : {1, -1})
    for (const int64_t rows : {1, 3, 14}) {
      Problem problem(Format::kInt8, {32, 11008, rows}, 1);
      std::fill(problem.w.begin(), problem.w.end(), float(sign));
      std::fill(problem.x.begin(), problem.x.end(), 3.0f);
      problem.prepare();
      check_against_loops(kernels.linear_int8, Format::kInt8, problem);
      CHECK(std::fabs(problem.y(0)[0] - float(sign) * 3 * 11008) < 0.1f);
    }
}

CASE(linear_int8_takes_weights_of_minus_128) {
  const int64_t k = 64;
  std::vector<int8_t> codes(32 * k, -128), row(k, -127);
  std::vector<float> scales(32, 0.5f);
  Aligned<uint8_t> packed(size_t(packed_bytes_int8(32, k, Outputs::kPlain)));
  pack_int8_codes(codes.data(), scales.data(), 32, k, Outputs::kPlain, packed.data());
  Aligned<uint8_t> x(k);
  std::memcpy(x.data(), row.data(), k);
  float scale = 2.0f;
  int32_t sum = -127 * int(k);
  Aligned<float> y(32);
  const Linear linear = {Format::kInt8, Epilogue::kStore, 32, k, packed.data(), nullptr,
                         {Grid::kToken, k, k, x.data(), &scale, &sum, 1}, y.data(), 32, nullptr};
  kernels.linear_int8(linear, {0, 1}, {0, 1});
  for (size_t lane = 0; lane < 32; ++lane) CHECK(y[lane] == 128.0f * 127.0f * float(k));
}

CASE(linear_zero_rows_and_zero_weights_give_the_bias) {
  for (const Format format : kFormats) {
    Problem problem(format, {40, 70, 5, Epilogue::kStore, true}, 3);
    std::fill(problem.x.begin(), problem.x.begin() + 70, 0.0f);
    std::fill(problem.w.begin(), problem.w.begin() + 70, 0.0f);
    problem.prepare();
    check_against_loops(kernel_of(kernels, format), format, problem);
    for (int64_t n = 0; n < 40; ++n) CHECK(problem.y(0)[n] == problem.bias[size_t(n)]);
    for (int64_t row = 0; row < 5; ++row) CHECK(problem.y(row)[0] == problem.bias[0]);
  }
}

CASE(linear_bf16_takes_tiny_and_huge_numbers) {
  for (const float size : {1e-30f, 1e-20f, 1e15f}) {
    Problem problem(Format::kBF16, {64, 128, 14}, 4);
    for (float& value : problem.w) value *= size;
    for (float& value : problem.x) value *= size;
    problem.prepare();
    check_against_loops(kernels.linear_bf16, Format::kBF16, problem);
  }
}

CASE(linear_bf16_keeps_a_nan_in_its_row) {
  Problem problem(Format::kBF16, {64, 128, 14}, 5);
  problem.x[3 * 128 + 17] = std::nanf("");
  problem.prepare();
  problem.reset();
  kernels.linear_bf16(problem.linear(), {0, 2}, {0, 14});
  for (int64_t row = 0; row < 14; ++row)
    for (int64_t n = 0; n < 64; ++n) CHECK(std::isnan(problem.y(row)[n]) == (row == 3));
}

CASE(packing_rounds_to_even_and_orders_gated_pairs) {
  const float rows[] = {127, 0.5f, 1.5f, -2.5f, 0, 0, 0, 0};  // [2, 4]: scale 1, and zeros
  Aligned<uint8_t> packed(size_t(packed_bytes_int8(2, 4, Outputs::kGated)), 1);
  pack_int8(rows, 2, 4, Outputs::kGated, packed.data());
  const int codes[] = {127, 0, 2, -2};
  for (size_t i = 0; i < 4; ++i) {
    CHECK(packed[i] == 128 + codes[i]);
    CHECK(packed[16 * 4 + i] == 128);
  }
  float scales[32];
  std::memcpy(scales, packed.data() + 64 * 32, sizeof(scales));
  for (int lane = 0; lane < 32; ++lane) CHECK(scales[lane] == (lane == 0 ? 1.0f : 0.0f));
  const auto gated = [](int64_t lane) { return row_of_lane(1, lane, 50, Outputs::kGated); };
  CHECK(gated(0) == 16 && gated(16) == 41 && gated(8) == 24 && gated(9) == -1);
  CHECK(num_panels(50, Outputs::kGated) == 2 && num_panels(34, Outputs::kGated) == 2);
  CHECK(row_of_lane(1, 1, 34, Outputs::kPlain) == 33);
  CHECK(row_of_lane(1, 2, 34, Outputs::kPlain) == -1);
}

CASE(packing_gives_codes_as_they_are) {
  Problem problem(Format::kInt8, {70, 33, 1}, 6);
  std::vector<int8_t> codes;
  std::vector<float> scales;
  for (int64_t n = 0; n < 70; ++n) {
    const float* row = problem.w.data() + n * 33;
    float largest = 0;
    for (int i = 0; i < 33; ++i) largest = std::max(largest, std::fabs(row[i]));
    scales.push_back(largest / 127.0f);
    for (int i = 0; i < 33; ++i)
      codes.push_back(int8_t(std::nearbyint(row[i] / scales.back())));
  }
  Aligned<uint8_t> packed(size_t(packed_bytes_int8(70, 33, Outputs::kPlain)));
  pack_int8_codes(codes.data(), scales.data(), 70, 33, Outputs::kPlain, packed.data());
  CHECK(std::memcmp(packed.data(), problem.linear().weight, packed.size()) == 0);
}
