// Packing of weights, for the device's packer and for tests.
#include <nanobind/stl/string.h>

#include <algorithm>
#include <stdexcept>
#include <string>

#include "bindings.h"
#include "grouped_packing.h"
#include "isa.h"
#include "packing.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace tercet {
namespace {

int64_t packed_bytes(Format format, int64_t n, int64_t k) {
  switch (format) {
    case Format::kF32: throw std::invalid_argument("a matrix is not packed in float32");
    case Format::kBF16: return packed_bytes_bf16(n, k, Outputs::kPlain);
    case Format::kInt8: return packed_bytes_int8(n, k, Outputs::kPlain);
    default: return packed_bytes_grouped(format, n, k, Outputs::kPlain);
  }
}

Out<uint8_t> bf16(const In<float, 2>& rows) {
  const auto n = int64_t(rows.shape(0)), k = int64_t(rows.shape(1));
  std::vector<uint8_t> packed(size_t(packed_bytes(Format::kBF16, n, k)));
  pack_bf16(rows.data(), n, k, Outputs::kPlain, packed.data());
  return give(std::move(packed));
}

Out<uint8_t> int8(const In<int8_t, 2>& codes, const In<float>& scales) {
  const auto n = int64_t(codes.shape(0)), k = int64_t(codes.shape(1));
  if (int64_t(scales.size()) != n) throw std::invalid_argument("scales of another number of rows");
  std::vector<uint8_t> packed(size_t(packed_bytes(Format::kInt8, n, k)));
  pack_int8_codes(codes.data(), scales.data(), n, k, Outputs::kPlain, packed.data());
  return give(std::move(packed));
}

Out<uint8_t> blocks(Format format, const In<uint8_t, 2>& rows, int64_t k) {
  const auto n = int64_t(rows.shape(0));
  if (int64_t(rows.shape(1)) != grouped_row_bytes(format, k))
    throw std::invalid_argument("rows of " + std::to_string(rows.shape(1)) + " bytes for " +
                                std::to_string(k) + " numbers");
  std::vector<uint8_t> packed(size_t(packed_bytes(format, n, k)));
  pack_grouped(format, rows.data(), n, k, Outputs::kPlain, packed.data());
  return give(std::move(packed));
}

// The numbers of some rows of a packed weight, as an embedding reads them.
Out<float, 2> rows(Format format, const In<uint8_t>& weight, int64_t n, int64_t k,
                   const In<int32_t>& ids) {
  if (int64_t(weight.size()) < packed_bytes(format, n, k))
    throw std::invalid_argument("a packed weight is too short");
  for (size_t i = 0; i < ids.size(); ++i)
    if (ids.data()[i] < 0 || ids.data()[i] >= n) throw std::invalid_argument("a row out of range");
  const int64_t stride = round_up(k, kPanel);
  std::vector<float> wide(ids.size() * size_t(stride)), values(ids.size() * size_t(k));
  choose_kernels("").embed({ids.data(), format, n, k, weight.data(), wide.data(), stride},
                           {0, int64_t(ids.size())});
  for (size_t i = 0; i < ids.size(); ++i)
    std::copy_n(&wide[i * size_t(stride)], k, &values[i * size_t(k)]);
  return give(std::move(values), ids.size(), size_t(k));
}

}  // namespace

void define_packing(nb::module_& module) {
  module.def("packed_bytes", &packed_bytes, "format"_a, "n"_a, "k"_a);
  module.def("pack_bf16", &bf16, "rows"_a);
  module.def("pack_int8", &int8, "codes"_a, "scales"_a);
  module.def("pack_blocks", &blocks, "format"_a, "rows"_a, "k"_a);
  module.def("packed_rows", &rows, "format"_a, "weight"_a, "n"_a, "k"_a, "ids"_a);
}

}  // namespace tercet
