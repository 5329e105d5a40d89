// Strips through sockets, for Python: without the GIL while bytes travel.
#include <nanobind/nanobind.h>
#include <nanobind/stl/tuple.h>

#include <cstring>
#include <tuple>

#include "bindings.h"
#include "exchange.h"
#include "isa.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace tercet {
namespace {

using Place = std::tuple<uintptr_t, int64_t, int64_t, int64_t>;  // address, start, stride, length

const Kernels& kernels() {
  static const Kernels& chosen = choose_kernels("");
  return chosen;
}

std::string_view view(const nb::bytes& said) { return {said.c_str(), said.size()}; }

// `units` are numbers of four bytes each, as they lie in a message.
StripOf strip_of(const Place& place, const nb::bytes& units) {
  const auto& [address, start, stride, length] = place;
  return {reinterpret_cast<uint8_t*>(address), start, stride, length,
          reinterpret_cast<const int32_t*>(units.c_str()), int64_t(units.size() / 4)};
}

uint64_t word(const uint8_t* at) {
  uint64_t found;
  std::memcpy(&found, at, sizeof found);
  return found;
}

// (how it ended, fold of the parts).
std::tuple<int, uint64_t> send(int fd, const nb::bytes& head, const Place& place,
                               const nb::bytes& units, int64_t part_bytes, bool summed, bool ends,
                               int64_t stall_ns) {
  const StripOf strip = strip_of(place, units);
  uint64_t fold = 0;
  nb::gil_scoped_release released;
  const Sent sent = send_strip(kernels(), fd, view(head), strip, part_bytes, ends, stall_ns,
                               summed ? &fold : nullptr);
  return {int(sent), fold};
}

// (how it ended, end in the head, wait in the head, end in the tail, fold in the tail, fold of what
// came). `sums` is an address, or 0.
std::tuple<int, int, uint64_t, int, uint64_t, uint64_t> ask(
    int fd, const nb::bytes& request, const Place& place, const nb::bytes& units, int64_t begin,
    int64_t end, int64_t part_bytes, bool summed, uintptr_t sums, int64_t until_ns) {
  uint64_t fold = 0;
  const Taken taken{strip_of(place, units), begin, end, part_bytes,
                    reinterpret_cast<uint64_t*>(sums), summed ? &fold : nullptr};
  Said said;
  nb::gil_scoped_release released;
  const Sent sent = exchange(kernels(), fd, view(request), taken, said, until_ns);
  return {int(sent),    said.head[0],        word(said.head + 16),
          said.tail[0], word(said.tail + 8), fold};
}

}  // namespace

void define_exchange(nb::module_& module) {
  module.def("send_strip", &send, "fd"_a, "head"_a, "place"_a, "units"_a, "part_bytes"_a,
             "summed"_a, "ends"_a, "stall_ns"_a);
  module.def("exchange", &ask, "fd"_a, "request"_a, "place"_a, "units"_a, "begin"_a, "end"_a,
             "part_bytes"_a, "summed"_a, "sums"_a, "until_ns"_a);
}

}  // namespace tercet
