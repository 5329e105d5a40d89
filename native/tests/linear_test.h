// A linear operation with random numbers, and what plain loops say that it gives.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "check.h"
#include "packing.h"

namespace tercet::tests {

inline float bf16_value(uint16_t bits) {
  const uint32_t raw = uint32_t(bits) << 16;
  float value;
  std::memcpy(&value, &raw, sizeof(value));
  return value;
}

inline uint16_t bf16_bits(float value) {
  uint32_t raw;
  std::memcpy(&raw, &value, sizeof(raw));
  return uint16_t((raw + 0x7fffu + (raw >> 16 & 1)) >> 16);
}

struct Shape {
  int64_t n, k, rows;
  Epilogue epilogue = Epilogue::kStore;
  bool bias = false;
};

// Owns everything that a `Linear` points to. Numbers are drawn from the seed.
class Problem {
 public:
  Problem(Format format, const Shape& shape, unsigned seed)
      : shape(shape),
        format_(format),
        random_(seed),
        kp_(padded_k(shape.k)),
        panels(num_panels(shape.n, outputs())),
        y_stride(panels * kPanel),
        w(size_t(shape.n * shape.k)),
        x(size_t(shape.rows * shape.k)),
        before(size_t(shape.rows * y_stride)),
        packed_(size_t(format == Format::kBF16 ? packed_bytes_bf16(shape.n, shape.k, outputs())
                                               : packed_bytes_int8(shape.n, shape.k, outputs()))),
        x_data_(size_t(shape.rows * stride())),
        scales_(size_t(shape.rows)),
        sums_(size_t(shape.rows)),
        bias_(size_t(panels * kPanel)),
        y_(size_t(shape.rows * y_stride)) {
    for (float& value : w) value = normal_(random_);
    for (float& value : x) value = normal_(random_);
    for (float& value : before) value = normal_(random_);
    bias.resize(size_t(shape.n));
    for (float& value : bias) value = shape.bias ? normal_(random_) : 0.0f;
    prepare();
  }

  // Pack w, x and bias anew, after they were changed by hand.
  void prepare() {
    pack_bias(bias.data(), shape.n, outputs(), bias_.data());
    std::memset(x_data_.data(), 0, x_data_.size());
    if (format_ == Format::kBF16) {
      pack_bf16(w.data(), shape.n, shape.k, outputs(), packed_.data());
      for (int64_t row = 0; row < shape.rows; ++row)
        for (int64_t i = 0; i < shape.k; ++i) {
          const uint16_t bits = bf16_bits(x[size_t(row * shape.k + i)]);
          std::memcpy(x_data_.data() + row * stride() + i * 2, &bits, 2);
        }
      return;
    }
    pack_int8(w.data(), shape.n, shape.k, outputs(), packed_.data());
    for (int64_t row = 0; row < shape.rows; ++row) {
      float largest = 0.0f;
      for (int64_t i = 0; i < shape.k; ++i)
        largest = std::max(largest, std::fabs(x[size_t(row * shape.k + i)]));
      const float scale = scales_[size_t(row)] = largest / 127.0f;
      sums_[size_t(row)] = 0;
      for (int64_t i = 0; i < shape.k; ++i) {
        const float value = x[size_t(row * shape.k + i)];
        const int8_t code = scale > 0 ? int8_t(std::nearbyint(value / scale)) : int8_t(0);
        x_data_[size_t(row * stride() + i)] = uint8_t(code);
        sums_[size_t(row)] += code;
      }
    }
  }

  Outputs outputs() const {
    return shape.epilogue == Epilogue::kGlu ? Outputs::kGated : Outputs::kPlain;
  }

  Linear linear() {
    const Grid grid = format_ == Format::kBF16 ? Grid::kBF16 : Grid::kToken;
    return {format_, shape.epilogue, shape.n, shape.k, packed_.data(),
            shape.bias ? bias_.data() : nullptr,
            {grid, shape.k, stride(), x_data_.data(), scales_.data(), sums_.data(), 1},
            y_.data(), y_stride, nullptr};
  }

  void reset() { std::memcpy(y_.data(), before.data(), before.size() * sizeof(float)); }
  float* y(int64_t row) { return y_.data() + row * y_stride; }
  std::vector<float> all_y() { return {y_.data(), y_.data() + y_.size()}; }

  // Sum of products of one output without its bias: rounded once for INT8 and scaled as the kernel
  // must, in float64 for BF16. `size` gets the sum of magnitudes.
  double product(int64_t row, int64_t output, double& size) const {
    double sum = 0;
    size = 0;
    const int64_t kp = kp_;
    int64_t lane = output, panel = 0;
    locate(output, panel, lane);
    const uint8_t* data = packed_.data();
    if (format_ == Format::kBF16) {
      data += panel * bf16_panel_bytes(shape.k);
      const auto* weights = reinterpret_cast<const uint16_t*>(data);
      const auto* xs = reinterpret_cast<const uint16_t*>(x_data_.data() + row * stride());
      for (int64_t i = 0; i < kp; ++i) {
        const double one = double(bf16_value(xs[i])) *
                           double(bf16_value(weights[(i / 2 * kPanel + lane) * 2 + i % 2]));
        sum += one, size += std::fabs(one);
      }
      return sum;
    }
    data += panel * int8_panel_bytes(shape.k);
    int64_t exact = 0;
    for (int64_t i = 0; i < kp; ++i)
      exact += int64_t(int8_t(x_data_[size_t(row * stride() + i)])) *
               (int64_t(data[(i / 4 * kPanel + lane) * 4 + i % 4]) - 128);
    float scale;
    std::memcpy(&scale, data + kp * kPanel + lane * 4, sizeof(scale));
    return float(int32_t(exact)) * (scales_[size_t(row)] * scale);
  }

  const Shape shape;

 private:
  int64_t stride() const { return kp_ * (format_ == Format::kBF16 ? 2 : 1) + 64; }

  void locate(int64_t output, int64_t& panel, int64_t& lane) const {
    for (panel = 0; panel < panels; ++panel)
      for (lane = 0; lane < kPanel; ++lane)
        if (row_of_lane(panel, lane, shape.n, outputs()) == output) return;
    CHECK(false);
  }

  const Format format_;
  std::mt19937 random_;
  std::normal_distribution<float> normal_;
  int64_t kp_;

 public:
  int64_t panels, y_stride;
  std::vector<float> w, x, bias, before;

 private:
  Aligned<uint8_t> packed_, x_data_;
  Aligned<float> scales_;
  Aligned<int32_t> sums_;
  Aligned<float> bias_, y_;
};

using LinearKernel = void (*)(const Linear&, Range panels, Range rows);

// Compare all outputs with plain loops: INT8 without a gate bit for bit.
inline void check_against_loops(LinearKernel kernel, Format format, Problem& problem) {
  const Shape& shape = problem.shape;
  problem.reset();
  kernel(problem.linear(), {0, problem.panels}, {0, shape.rows});
  const bool gated = shape.epilogue == Epilogue::kGlu;
  const int64_t columns = gated ? shape.n / 2 : shape.n;
  for (int64_t row = 0; row < shape.rows; ++row)
    for (int64_t column = 0; column < columns; ++column) {
      double size = 0, other = 0;
      const double sum = problem.product(row, column, size);
      const float bias = problem.bias[size_t(column)];
      const float y = problem.y(row)[column];
      if (gated) {
        const double up = problem.product(row, column + columns, other) +
                          problem.bias[size_t(column + columns)];
        const double gate = sum + bias;
        const double expected = gate / (1 + std::exp(-gate)) * up;
        const double room = (size + 1) * (std::fabs(up) + 1) + other * (std::fabs(gate) + 1);
        CHECK(std::fabs(y - expected) <= 1e-5 * room);
        continue;
      }
      const float old = problem.before[size_t(row * problem.y_stride + column)];
      const bool add = shape.epilogue == Epilogue::kAdd;
      if (format == Format::kInt8) {
        float expected = float(sum);
        if (shape.bias) expected += bias;
        if (add) expected = old + expected;
        CHECK(std::memcmp(&expected, &y, sizeof(y)) == 0);
      } else {
        const double expected = sum + bias + (add ? old : 0.0f);
        CHECK(std::fabs(y - expected) <= 1e-6 * (size + std::fabs(bias) + std::fabs(old)) + 1e-30);
      }
    }
}

// Every row's bits are those that it has alone, however rows and panels are cut, and nothing else
// is written.
inline void check_any_company(LinearKernel kernel, Problem& problem, std::mt19937& random,
                              int cuts) {
  const auto draw = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  const int64_t rows = problem.shape.rows;
  const Linear linear = problem.linear();
  problem.reset();
  for (int64_t row = 0; row < rows; ++row) kernel(linear, {0, problem.panels}, {row, row + 1});
  const std::vector<float> alone = problem.all_y();
  const int64_t width = problem.shape.epilogue == Epilogue::kGlu ? kPanel / 2 : kPanel;
  for (int cut = 0; cut < cuts; ++cut) {
    problem.reset();
    const int64_t first = draw(0, rows), last = draw(first, rows);
    const int64_t from = draw(0, problem.panels), to = draw(from, problem.panels);
    for (int64_t panel = from; panel < to;) {
      const int64_t panel_end = draw(panel + 1, to);
      for (int64_t row = first; row < last;) {
        const int64_t row_end = draw(row + 1, last);
        kernel(linear, {panel, panel_end}, {row, row_end});
        row = row_end;
      }
      panel = panel_end;
    }
    kernel(linear, {from, to}, {first, first});
    kernel(linear, {from, from}, {first, last});
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t column = 0; column < problem.y_stride; ++column) {
        const size_t at = size_t(row * problem.y_stride + column);
        const bool written = row >= first && row < last && column >= from * width &&
                             column < to * width;
        const float& expected = written ? alone[at] : problem.before[at];
        CHECK(std::memcmp(&expected, problem.y(row) + column, sizeof(float)) == 0);
      }
  }
}

}  // namespace tercet::tests
