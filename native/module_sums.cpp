// Checksums and copies of strips. Addresses are plain numbers: the caller holds the memory.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/tuple.h>

#include <atomic>
#include <tuple>

#include "bindings.h"
#include "isa.h"
#include "sums.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace tercet {
namespace {

using Place = std::tuple<uintptr_t, int64_t, int64_t, int64_t>;  // address, start, stride, length
using Units = In<int32_t>;

const Kernels& kernels() {
  static const Kernels& chosen = choose_kernels("");
  return chosen;
}

StripOf strip(const Place& place, const Units& units) {
  const auto& [address, start, stride, length] = place;
  return {reinterpret_cast<uint8_t*>(address), start, stride, length, units.data(),
          int64_t(units.size())};
}

Out<uint64_t> sums(const Place& place, const Units& units, int64_t part_bytes) {
  const StripOf of = strip(place, units);
  std::vector<uint64_t> found(part_bytes > 0 ? size_t(of.bytes() / part_bytes) : 0);
  {
    nb::gil_scoped_release released;
    sum_parts(kernels(), of, part_bytes, found.data());
  }
  return give(std::move(found));
}

uint64_t fold(const In<uint64_t>& sums, uint64_t before) {
  return fold_sums(sums.data(), int64_t(sums.size()), before);
}

uint64_t gather(const Place& source, const Units& source_units, const Place& target,
                const Units& target_units, int64_t part_bytes, bool summed, uint64_t before) {
  const StripOf from = strip(source, source_units), to = strip(target, target_units);
  nb::gil_scoped_release released;
  return copy_strip(kernels(), from, to, part_bytes, summed, before);
}

// What another process stored there last, and all that it wrote before.
uint64_t acquire(uintptr_t address) {
  return std::atomic_ref<uint64_t>(*reinterpret_cast<uint64_t*>(address))
      .load(std::memory_order_acquire);
}

}  // namespace

void define_sums(nb::module_& module) {
  module.def("sums", &sums, "place"_a, "units"_a, "part_bytes"_a);
  module.def("fold", &fold, "sums"_a, "before"_a = kSumFirst);
  module.def("gather", &gather, "source"_a, "source_units"_a, "target"_a, "target_units"_a,
             "part_bytes"_a, "summed"_a, "before"_a = kSumFirst);
  module.def("acquire", &acquire, "address"_a);
}

}  // namespace tercet
