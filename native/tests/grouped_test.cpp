// Linear operations over GGUF block formats, against plain loops over the file's layout in float64.
#include <algorithm>
#include <cmath>
#include <cstring>

#define TERCET_ISA emulated  // for the AMX kernels with emulated tiles
#include "check.h"
#include "grouped_packing.h"
#include "kernels/grouped_tiles.h"

namespace {

using namespace tercet;
using tercet::tests::Aligned;

constexpr Format kFormats[] = {Format::kQ4_0, Format::kQ4_1, Format::kQ4_K, Format::kQ6_K,
                               Format::kQ8_0};

float half(const uint8_t* from) {
  uint16_t bits;
  std::memcpy(&bits, from, 2);
  const int exponent = bits >> 10 & 31, fraction = bits & 1023;
  const float value = exponent ? std::ldexp(float(1024 + fraction), exponent - 25)
                               : std::ldexp(float(fraction), -24);
  return bits & 0x8000 ? -value : value;
}

// Number i of a block as ggml-quants.c has it; in float, as the `gguf` package rounds it.
template <typename Real>
Real number(Format format, const uint8_t* block, int i) {
  switch (format) {
    case Format::kQ4_0:
      return Real(half(block)) * Real((block[2 + i % 16] >> i / 16 * 4 & 15) - 8);
    case Format::kQ4_1:
      return Real(half(block)) * Real(block[4 + i % 16] >> i / 16 * 4 & 15) + Real(half(block + 2));
    case Format::kQ8_0:
      return Real(half(block)) * Real(int8_t(block[2 + i]));
    case Format::kQ4_K: {
      const uint8_t* q = block + 4;  // get_scale_min_k4
      const int j = i / 32;
      const int scale = j < 4 ? q[j] & 63 : (q[j + 4] & 15) | q[j - 4] >> 6 << 4;
      const int least = j < 4 ? q[j + 4] & 63 : q[j + 4] >> 4 | q[j] >> 6 << 4;
      const int code = block[16 + i / 64 * 32 + i % 32] >> i / 32 % 2 * 4 & 15;
      return Real(half(block)) * Real(scale) * Real(code) - Real(half(block + 2)) * Real(least);
    }
    default: {
      const int h = i / 128, l = i % 32, part = i % 128 / 32;
      const int low = block[64 * h + l + 32 * (part % 2)] >> part / 2 * 4 & 15;
      const int high = block[128 + 32 * h + l] >> 2 * part & 3;
      const Real scale = Real(half(block + 208)) * Real(int8_t(block[192 + i / 16]));
      return scale * Real((low | high << 4) - 32);
    }
  }
}

struct Weight {
  Format format;
  int64_t n, k;
  Outputs outputs;
  std::vector<uint8_t> rows;
  Aligned<uint8_t> packed;

  Weight(Format format, int64_t n, int64_t k, Outputs outputs, std::mt19937& random)
      : format(format), n(n), k(k), outputs(outputs),
        rows(size_t(n * grouped_row_bytes(format, k))),
        packed(size_t(packed_bytes_grouped(format, n, k, outputs))) {
    for (uint8_t& byte : rows) byte = uint8_t(random());
    const BlockSize size = block_size(format);
    for (size_t at = 0; at < rows.size(); at += size_t(size.bytes)) {
      uint8_t* block = rows.data() + at;
      const bool two = format == Format::kQ4_1 || format == Format::kQ4_K;
      fix(block + (format == Format::kQ6_K ? 208 : 0), random);
      if (two) fix(block + 2, random);
    }
    pack_grouped(format, rows.data(), n, k, outputs, packed.data());
  }

  // A scale of moderate size, now and then zero or denormal: no infinities.
  static void fix(uint8_t* at, std::mt19937& random) {
    uint16_t bits = uint16_t(random() & 0x83ff);
    if (random() % 16) bits = uint16_t(bits | (8 + random() % 5) << 10);
    std::memcpy(at, &bits, 2);
  }

  template <typename Real = double>
  Real value(int64_t row, int64_t column) const {
    const BlockSize size = block_size(format);
    const uint8_t* block = rows.data() + row * grouped_row_bytes(format, k);
    block += column / size.numbers * size.bytes;
    return number<Real>(format, block, int(column % size.numbers));
  }
};

struct Inputs {
  int64_t rows, k, groups;
  Aligned<uint8_t> numbers;
  Aligned<float> scales;
  Aligned<int32_t> sums;

  Inputs(int64_t rows, int64_t k, std::mt19937& random)
      : rows(rows), k(k), groups(padded_k(k) / kGroup), numbers(size_t(rows * padded_k(k))),
        scales(size_t(rows * groups)), sums(size_t(rows * groups)) {
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t g = 0; g < k / kGroup; ++g) {
        const uint32_t kind = random() % 8;
        float scale = std::ldexp(float(1 + random() % 1000), int(random() % 8) - 14);
        if (kind == 0) scale = 0.0f;
        if (kind == 1) scale = 1e-41f;
        scales[size_t(row * groups + g)] = scale;
        for (int64_t i = 0; i < kGroup; ++i) {
          const int any = int(random() % 255) - 127;
          const int value = kind == 2 ? -127 : kind == 3 ? 127 : kind == 0 ? 0 : any;
          numbers[size_t(row * padded_k(k) + g * kGroup + i)] = uint8_t(int8_t(value));
          sums[size_t(row * groups + g)] += value;
        }
      }
    }
  }

  Matrix matrix() {
    return {Grid::kGroup, k, padded_k(k), numbers.data(), scales.data(), sums.data(), groups};
  }
  double value(int64_t row, int64_t column) const {
    return double(scales[size_t(row * groups + column / kGroup)]) *
           int8_t(numbers[size_t(row * padded_k(k) + column)]);
  }
};

double silu(double x) { return x / (1 + std::exp(-x)); }

struct Sum {
  double value, size;  // size: of all that was added, by magnitude
};

Sum product(const Weight& weight, const Inputs& inputs, int64_t row, int64_t output) {
  Sum sum{0, 0};
  for (int64_t i = 0; i < weight.k; ++i) {
    const double one = weight.value(output, i) * inputs.value(row, i);
    sum.value += one, sum.size += std::abs(one);
  }
  return sum;
}

// y of all rows, each output far from its neighbours, filled with `before`.
struct Outcome {
  int64_t stride;
  Aligned<float> y;
  Outcome(int64_t rows, int64_t panels, float before)
      : stride(panels * kPanel), y(size_t(rows * stride + kPanel), before) {}
};

Linear linear_of(const Weight& weight, Inputs& inputs, Epilogue epilogue, const float* bias,
                 Outcome& outcome) {
  return {weight.format, epilogue, weight.n, weight.k, weight.packed.data(), bias, inputs.matrix(),
          outcome.y.data(), outcome.stride, nullptr};
}

using LinearKernel = void (*)(const Linear&, Range panels, Range rows);

void by_tiles(const Linear& linear, Range panels, Range rows) {
  emulated::EmulatedTiles tiles;
  emulated::with_blocks(linear.format, [&]<typename Blocks>() {
    emulated::multiply_grouped_tiles<Blocks>(tiles, linear, panels, rows);
  });
}

// The tiles are tried once, whatever sets there are.
std::vector<LinearKernel> kernels_of(const Kernels& kernels) {
  if (std::string(kernels.name) == "portable") return {kernels.linear_grouped, by_tiles};
  return {kernels.linear_grouped};
}

void check_values(LinearKernel kernel, Format format, int64_t n, int64_t k, int64_t rows,
                  std::mt19937& random) {
  for (const Epilogue epilogue : {Epilogue::kStore, Epilogue::kAdd, Epilogue::kGlu}) {
    const bool gated = epilogue == Epilogue::kGlu;
    if (gated && n % 2) continue;
    const Weight weight(format, n, k, gated ? Outputs::kGated : Outputs::kPlain, random);
    Inputs inputs(rows, k, random);
    const int64_t panels = num_panels(n, weight.outputs);
    std::vector<float> bias(size_t(n), 0.0f);
    for (float& one : bias) one = float(random() % 100) - 50;
    Aligned<float> packed_bias(size_t(panels * kPanel));
    pack_bias(bias.data(), n, weight.outputs, packed_bias.data());
    const bool biased = random() % 2;
    Outcome outcome(rows, panels, 3.0f);
    const float* bias_of = biased ? packed_bias.data() : nullptr;
    const Linear linear = linear_of(weight, inputs, epilogue, bias_of, outcome);
    kernel(linear, {0, panels}, {0, rows});
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t output = 0; output < (gated ? n / 2 : n); ++output) {
        Sum sum = product(weight, inputs, row, output);
        if (biased) sum.value += bias[size_t(output)], sum.size += 50;
        double size = sum.size * (gated ? 2 : 1), expected = sum.value;
        if (epilogue == Epilogue::kAdd) expected += 3, size += 3;
        if (gated) {
          Sum up = product(weight, inputs, row, output + n / 2);
          if (biased) up.value += bias[size_t(output + n / 2)], up.size += 50;
          expected = silu(sum.value) * up.value;
          size = sum.size * std::abs(up.value) * 2 + up.size * std::abs(silu(sum.value)) +
                 std::abs(expected);
        }
        const double got = outcome.y[size_t(row * outcome.stride + output)];
        CHECK(std::abs(got - expected) <= size * 3e-6 + 1e-30);
      }
    }
  }
}

}  // namespace

CASE(grouped_rows_unpack_to_the_files_numbers) {
  std::mt19937 random(1);
  for (const Format format : kFormats) {
    const Weight weight(format, 77, 512, Outputs::kPlain, random);
    CHECK(weight.packed.size() == size_t(96 * grouped_row_bytes(format, 512)));
    std::vector<int32_t> ids{76, 0, 31, 32, 3, 76};
    Aligned<float> y(ids.size() * 512);
    const Embed embed{ids.data(), format, 77, 512, weight.packed.data(), y.data(), 512};
    kernels.embed(embed, {0, int64_t(ids.size())});
    for (size_t row = 0; row < ids.size(); ++row)
      for (int64_t i = 0; i < 512; ++i)
        CHECK(y[row * 512 + size_t(i)] == weight.value<float>(ids[row], i));
  }
}

CASE(grouped_linears_equal_plain_loops) {
  std::mt19937 random(2);
  for (const LinearKernel kernel : kernels_of(kernels)) {
    for (const Format format : kFormats) {
      const int64_t unit = block_size(format).numbers;
      for (const int64_t rows : {0, 1, 2, 3, 5, 6, 7, 8, 13, 33}) {
        const int64_t n = 1 + int64_t(random() % 80), k = unit * (1 + int64_t(random() % 3));
        check_values(kernel, format, n, k, rows, random);
      }
      check_values(kernel, format, 290, 512, 9, random);
      check_values(kernel, format, 64, unit * (unit == 32 ? 105 : 14), 3, random);
    }
  }
}

// The one-row results, panel by panel.
void alone(const Linear& linear, LinearKernel kernel, int64_t panels, int64_t rows) {
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t panel = 0; panel < panels; ++panel)
      kernel(linear, {panel, panel + 1}, {row, row + 1});
}

// The same, cut in any way.
void together(const Linear& linear, LinearKernel kernel, int64_t panels, int64_t rows,
              std::mt19937& random) {
  for (int64_t begin = 0; begin < panels;) {
    const int64_t end = std::min<int64_t>(panels, begin + 1 + int64_t(random() % 12));
    for (int64_t row = 0; row < rows;) {
      const int64_t last = std::min<int64_t>(rows, row + 1 + int64_t(random() % 25));
      kernel(linear, {begin, end}, {row, last});
      row = last;
    }
    begin = end;
  }
}

// I4: the one-row result, bit by bit, whatever rows and panels are computed together; tiles give
// the bits of vectors.
CASE(grouped_linears_are_exact_in_any_company) {
  std::mt19937 random(3);
  for (const Format format : kFormats) {
    for (int round = 0; round < 6; ++round) {
      const int64_t blocks = 1 + int64_t(random() % (block_size(format).numbers == 32 ? 60 : 8));
      const int64_t k = block_size(format).numbers * blocks;
      const int64_t n = 1 + int64_t(random() % 400), rows = 1 + int64_t(random() % 40);
      const Weight weight(format, n, k, Outputs::kPlain, random);
      Inputs inputs(rows, k, random);
      const int64_t panels = num_panels(n);
      Outcome single(rows, panels, 0.0f);
      alone(linear_of(weight, inputs, Epilogue::kStore, nullptr, single), kernels.linear_grouped,
            panels, rows);
      for (const LinearKernel kernel : kernels_of(kernels)) {
        Outcome company(rows, panels, 0.0f);
        together(linear_of(weight, inputs, Epilogue::kStore, nullptr, company), kernel, panels,
                 rows, random);
        const size_t bytes = size_t(rows * single.stride) * sizeof(float);
        CHECK(std::memcmp(single.y.data(), company.y.data(), bytes) == 0);
      }
    }
  }
}

CASE(grouped_linears_write_their_range_only) {
  std::mt19937 random(4);
  const Weight weight(Format::kQ4_1, 200, 96, Outputs::kPlain, random);
  Inputs inputs(30, 96, random);
  for (const LinearKernel kernel : kernels_of(kernels)) {
    Outcome outcome(30, 7, 7.5f);
    kernel(linear_of(weight, inputs, Epilogue::kStore, nullptr, outcome), {2, 4}, {3, 28});
    for (int64_t row = 0; row < 30; ++row)
      for (int64_t column = 0; column < outcome.stride; ++column) {
        const bool inside = row >= 3 && row < 28 && column >= 64 && column < 128;
        CHECK((outcome.y[size_t(row * outcome.stride + column)] == 7.5f) == !inside);
      }
  }
}
