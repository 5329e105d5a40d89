// Row-wise kernels against plain loops, on every grid, for odd sizes and extreme numbers.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "check.h"

namespace {

using namespace tercet;
using tests::Aligned;

const int64_t kSizes[] = {1, 2, 15, 16, 17, 31, 32, 33, 63, 64, 65, 96, 100, 575, 576, 1536, 1541};
const Grid kGrids[] = {Grid::kF32, Grid::kBF16, Grid::kToken, Grid::kGroup};
constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

uint32_t bits_of(float value) {
  uint32_t raw;
  std::memcpy(&raw, &value, 4);
  return raw;
}

uint16_t bf16_of(float value) {
  const uint32_t raw = bits_of(value);
  if (std::isnan(value)) return uint16_t(raw >> 16 | 0x40);
  return uint16_t((raw + 0x7fff + (raw >> 16 & 1)) >> 16);
}

// A matrix on any grid with rubbish in it, so that what is not written shows.
struct Rows {
  Rows(Grid grid, int64_t rows, int64_t cols)
      : bytes(size_t(rows) * stride_of(grid, cols), 0xa5),
        scales(size_t(rows) * size_t(groups_of(grid, cols)), -1.0f),
        sums(scales.size(), -1),
        matrix{grid, cols, stride_of(grid, cols), bytes.data(), scales.data(), sums.data(),
               groups_of(grid, cols)} {}
  static int64_t stride_of(Grid grid, int64_t cols) {
    const int64_t width = grid == Grid::kF32 ? 4 : grid == Grid::kBF16 ? 2 : 1;
    return padded_k(cols) * width;
  }
  static int64_t groups_of(Grid grid, int64_t cols) {
    return grid == Grid::kGroup ? padded_k(cols) / kGroup : 1;
  }
  bool operator==(const Rows& other) const {
    return !std::memcmp(bytes.data(), other.bytes.data(), bytes.size()) &&
           !std::memcmp(scales.data(), other.scales.data(), scales.size() * 4) &&
           !std::memcmp(sums.data(), other.sums.data(), sums.size() * 4);
  }
  Aligned<uint8_t> bytes;
  Aligned<float> scales;
  Aligned<int32_t> sums;
  Matrix matrix;
};

// One scale over `values` [0, count): as program.rounding.symmetric8.
void check_symmetric(const float* values, int64_t count, const int8_t* codes, float scale,
                     int32_t total) {
  float largest = 0.0f;
  bool finite = true;
  for (int64_t i = 0; i < count; ++i) {
    largest = std::max(largest, std::fabs(values[i]));
    finite = finite && std::isfinite(values[i]);
  }
  const float wanted = largest / 127.0f;
  if (!finite) {
    CHECK(std::isnan(scale));
    return;
  }
  CHECK(scale == wanted);
  int32_t sum = 0;
  for (int64_t i = 0; i < count; ++i) {
    const float quotient = wanted > 0 ? values[i] / wanted : 0.0f;
    const int code = int(std::clamp(std::nearbyintf(quotient), -127.0f, 127.0f));
    CHECK(codes[i] == code);
    sum += code;
  }
  CHECK(total == sum);
}

// The row holds these numbers, put on its grid, and zeros up to the padding.
void check_row(const Matrix& to, int64_t row, const float* values) {
  const int64_t cols = to.cols, padded = padded_k(cols);
  if (to.grid == Grid::kF32) {
    for (int64_t i = 0; i < cols; ++i)
      CHECK(bits_of(to.row<float>(row)[i]) == bits_of(values[i]));
  } else if (to.grid == Grid::kBF16) {
    for (int64_t i = 0; i < padded; ++i)
      CHECK(to.row<uint16_t>(row)[i] == (i < cols ? bf16_of(values[i]) : 0));
  } else {
    const int8_t* codes = to.row<int8_t>(row);
    const int64_t size = to.grid == Grid::kToken ? padded : kGroup;
    for (int64_t group = 0; group < to.groups; ++group) {
      const int64_t count = std::clamp(cols - group * size, int64_t(0), size);
      check_symmetric(values + group * size, count, codes + group * size,
                      to.scales[row * to.groups + group], to.sums[row * to.groups + group]);
    }
    for (int64_t i = cols; i < padded; ++i) CHECK(codes[i] == 0);
  }
}

std::vector<float> normal(size_t count, std::mt19937& random, float spread = 1.0f) {
  std::normal_distribution<float> draw(0.0f, spread);
  std::vector<float> values(count);
  for (float& value : values) value = draw(random);
  return values;
}

}  // namespace

CASE(convert_puts_numbers_on_every_grid) {
  std::mt19937 random(1);
  for (int64_t cols : kSizes)
    for (Grid grid : kGrids) {
      const int64_t rows = 5, stride = cols + 3;
      const std::vector<float> x = normal(size_t(rows * stride), random, 3.0f);
      Rows to(grid, rows, cols);
      kernels.convert({x.data(), stride, to.matrix}, {0, rows});
      for (int64_t row = 0; row < rows; ++row) check_row(to.matrix, row, &x[size_t(row * stride)]);
    }
}

CASE(quotients_are_those_of_a_division) {
  std::mt19937 random(2);
  const int64_t cols = 512;
  std::uniform_real_distribution<float> exponent(-148.0f, 127.9f), near(-128.5f, 128.5f);
  for (int trial = 0; trial < 3000; ++trial) {
    // Numbers close to halves of a scale, of every magnitude, also of scales of all ones.
    uint32_t raw = bits_of(std::exp2(exponent(random)));
    if (trial % 4 == 0) raw |= 0x7fffff;
    float largest;
    std::memcpy(&largest, &raw, 4);
    const float scale = largest / 127.0f;
    std::vector<float> x(cols);
    for (float& value : x) {
      value = std::nearbyintf(near(random) * 2.0f) * 0.5f * scale;
      if (random() % 4 == 0) value = std::nextafterf(value, random() % 2 ? kInf : -kInf);
      if (!(std::fabs(value) <= largest)) value = 0.25f * scale;
    }
    x[random() % cols] = largest;
    for (Grid grid : {Grid::kToken, Grid::kGroup}) {
      Rows to(grid, 1, cols);
      kernels.convert({x.data(), cols, to.matrix}, {0, 1});
      check_row(to.matrix, 0, x.data());
    }
  }
}

CASE(what_is_not_finite_shows) {
  for (float broken : {kNan, -kNan, kInf, -kInf})
    for (int64_t cols : kSizes)
      for (Grid grid : kGrids) {
        std::vector<float> x(size_t(3 * cols), 1.0f);
        x[size_t(cols + cols / 2)] = broken;
        Rows to(grid, 3, cols);
        kernels.convert({x.data(), cols, to.matrix}, {0, 3});
        for (int64_t row = 0; row < 3; ++row) check_row(to.matrix, row, &x[size_t(row * cols)]);
      }
}

CASE(rows_of_zeros_and_denormals) {
  for (float value : {0.0f, -0.0f, 1e-45f, -1e-44f, 1e-40f, 3e38f, 3.4028235e38f})
    for (int64_t cols : kSizes)
      for (Grid grid : kGrids) {
        std::vector<float> x(size_t(cols), value);
        if (cols > 2) x[1] = value / 3, x[2] = -value / 5;
        Rows to(grid, 1, cols);
        kernels.convert({x.data(), cols, to.matrix}, {0, 1});
        check_row(to.matrix, 0, x.data());
      }
}

CASE(norm_is_a_root_mean_square_norm) {
  std::mt19937 random(3);
  for (int64_t cols : kSizes) {
    const int64_t rows = 4, stride = cols + 5;
    const std::vector<float> x = normal(size_t(rows * stride), random, 2.0f);
    const std::vector<float> weight = normal(size_t(cols), random);
    Rows plain(Grid::kF32, rows, cols);
    kernels.norm({x.data(), stride, cols, weight.data(), 1e-5f, plain.matrix}, {0, rows});
    for (int64_t row = 0; row < rows; ++row) {
      double squares = 0.0;
      const float* from = &x[size_t(row * stride)];
      for (int64_t i = 0; i < cols; ++i) squares += double(from[i]) * from[i];
      const double root = std::sqrt(squares / double(cols) + 1e-5f);
      for (int64_t i = 0; i < cols; ++i) {
        const double wanted = from[i] / root * weight[size_t(i)];
        CHECK(std::fabs(plain.matrix.row<float>(row)[i] - wanted) <= 1e-6 * std::fabs(wanted));
      }
    }
    for (Grid grid : kGrids) {  // other grids: the same numbers, bit for bit, converted
      Rows to(grid, rows, cols);
      kernels.norm({x.data(), stride, cols, weight.data(), 1e-5f, to.matrix}, {0, rows});
      for (int64_t row = 0; row < rows; ++row)
        check_row(to.matrix, row, plain.matrix.row<float>(row));
    }
  }
}

CASE(a_row_is_the_same_in_any_range) {
  std::mt19937 random(4);
  const int64_t rows = 97, cols = 581;
  const std::vector<float> x = normal(size_t(rows * cols), random);
  const std::vector<float> weight = normal(size_t(cols), random);
  for (Grid grid : kGrids) {
    Rows whole(grid, rows, cols), cut(grid, rows, cols);
    kernels.norm({x.data(), cols, cols, weight.data(), 1e-6f, whole.matrix}, {0, rows});
    for (int64_t begin = 0; begin < rows;) {
      const int64_t end = std::min(rows, begin + int64_t(random() % 9));
      kernels.norm({x.data(), cols, cols, weight.data(), 1e-6f, cut.matrix}, {begin, end});
      begin = end;
    }
    CHECK(whole == cut);
  }
}

CASE(head_norm_norms_each_head_in_place) {
  std::mt19937 random(5);
  for (int64_t dim : {2, 6, 16, 30, 64, 80, 128}) {
    const int64_t rows = 3, heads = 5, stride = heads * dim + 7;
    std::vector<float> x = normal(size_t(rows * stride), random);
    const std::vector<float> before = x, weight = normal(size_t(dim), random);
    kernels.head_norm({x.data(), stride, heads, dim, weight.data(), 1e-6f}, {1, rows});
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t head = 0; head <= heads; ++head) {
        const float* from = &before[size_t(row * stride + head * dim)];
        const float* to = &x[size_t(row * stride + head * dim)];
        if (row == 0 || head == heads) {  // beside the range, and beside the heads
          CHECK(!std::memcmp(from, to, size_t(head == heads ? 7 : dim) * 4));
          continue;
        }
        double squares = 0.0;
        for (int64_t i = 0; i < dim; ++i) squares += double(from[i]) * from[i];
        const double root = std::sqrt(squares / double(dim) + 1e-6f);
        for (int64_t i = 0; i < dim; ++i) {
          const double wanted = from[i] / root * weight[size_t(i)];
          CHECK(std::fabs(to[i] - wanted) <= 1e-6 * std::fabs(wanted));
        }
      }
  }
}

CASE(rope_turns_halves_of_heads) {
  std::mt19937 random(6);
  for (int64_t dim : {2, 6, 16, 30, 64, 80, 128}) {
    const int64_t rows = 4, heads = 3, half = dim / 2, stride = heads * dim + 5;
    const int64_t wide = 2 * dim + 3;
    const std::vector<int32_t> positions = {0, 3, 1000, 131071};
    std::vector<double> frequencies(static_cast<size_t>(half));
    for (int64_t i = 0; i < half; ++i)
      frequencies[size_t(i)] = float(std::pow(10000.0, -2.0 * double(i) / double(dim)));
    std::vector<float> turns(size_t(rows * wide), kNan);
    kernels.angles({positions.data(), frequencies.data(), dim, turns.data(), wide}, {0, rows});
    std::vector<float> x = normal(size_t(rows * stride), random);
    const std::vector<float> before = x;
    kernels.rope({x.data(), stride, heads, dim, turns.data(), wide}, {0, rows});
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t i = 0; i < half; ++i) {
        const float turn = float(positions[size_t(row)]) * float(frequencies[size_t(i)]);
        const float cosine = float(std::cos(double(turn))), sine = float(std::sin(double(turn)));
        const float* angles = &turns[size_t(row * wide)];
        CHECK(angles[i] == cosine && angles[i + half] == cosine);
        CHECK(angles[dim + i] == -sine && angles[dim + i + half] == sine);
        for (int64_t head = 0; head < heads; ++head) {
          const float* from = &before[size_t(row * stride + head * dim)];
          const float* to = &x[size_t(row * stride + head * dim)];
          CHECK(to[i] == from[i] * cosine + from[i + half] * -sine);
          CHECK(to[i + half] == from[i + half] * cosine + from[i] * sine);
        }
      }
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t i = heads * dim; i < stride; ++i)
        CHECK(x[size_t(row * stride + i)] == before[size_t(row * stride + i)]);
  }
}

CASE(add_and_glu_keep_to_their_columns) {
  std::mt19937 random(7);
  for (int64_t cols : kSizes) {
    const int64_t rows = 3, stride = cols + 2;
    const std::vector<float> a = normal(size_t(rows * stride), random, 4.0f);
    const std::vector<float> b = normal(size_t(rows * stride), random);
    std::vector<float> sum(a.size(), 7.0f), gated(a.size(), 7.0f);
    kernels.add({a.data(), b.data(), stride, stride, cols, sum.data(), stride}, {0, rows});
    kernels.glu({a.data(), b.data(), stride, stride, cols, gated.data(), stride}, {0, rows});
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t i = 0; i < stride; ++i) {
        const size_t at = size_t(row * stride + i);
        CHECK(sum[at] == (i < cols ? a[at] + b[at] : 7.0f));
        const double wanted = double(a[at]) / (1.0 + std::exp(-double(a[at]))) * b[at];
        if (i < cols) CHECK(std::fabs(gated[at] - wanted) <= 1e-6 * std::fabs(wanted));
        else CHECK(gated[at] == 7.0f);
      }
  }
}

CASE(embed_reads_rows_of_panels) {
  std::mt19937 random(8);
  for (int64_t k : {1, 31, 64, 575, 576})
    for (int64_t n : {1, 33, 70}) {
      const int64_t kp = padded_k(k), panels = num_panels(n);
      Aligned<uint16_t> pairs(size_t(panels * kp * kPanel));
      const int64_t panel_bytes = kp * kPanel + 4 * kPanel;
      Aligned<uint8_t> bytes(size_t(panels * panel_bytes), 128);
      std::vector<float> wide(size_t(n * k)), narrow(wide.size());
      for (int64_t row = 0; row < n; ++row) {
        const int64_t panel = row / kPanel, lane = row % kPanel;
        const float scale = 0.01f * float(row + 1);
        std::memcpy(&bytes[size_t(panel * panel_bytes + kp * kPanel + 4 * lane)], &scale, 4);
        for (int64_t i = 0; i < k; ++i) {
          const uint16_t half = bf16_of(normal(1, random)[0]);
          const uint32_t raw = uint32_t(half) << 16;
          std::memcpy(&wide[size_t(row * k + i)], &raw, 4);
          pairs[size_t(panel * kp * kPanel + i / 2 * 64 + lane * 2 + i % 2)] = half;
          const int code = int(random() % 255) - 127;
          narrow[size_t(row * k + i)] = float(code) * scale;
          bytes[size_t(panel * panel_bytes + i / 4 * 128 + lane * 4 + i % 4)] = uint8_t(code + 128);
        }
      }
      const std::vector<int32_t> ids = {0, int32_t(n - 1), int32_t(n / 2), 0};
      const int64_t stride = k + 1, rows = int64_t(ids.size());
      const auto* packed = reinterpret_cast<const uint8_t*>(pairs.data());
      std::vector<float> y(size_t(rows * stride), 7.0f), z(y);
      kernels.embed({ids.data(), Format::kBF16, n, k, packed, y.data(), stride}, {0, rows});
      kernels.embed({ids.data(), Format::kInt8, n, k, bytes.data(), z.data(), stride}, {0, rows});
      for (int64_t row = 0; row < rows; ++row)
        for (int64_t i = 0; i < stride; ++i) {
          const size_t at = size_t(row * stride + i), from = size_t(ids[size_t(row)] * k + i);
          CHECK(y[at] == (i < k ? wide[from] : 7.0f));
          CHECK(z[at] == (i < k ? narrow[from] : 7.0f));
        }
    }
}
