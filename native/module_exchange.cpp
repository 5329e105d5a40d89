// Strips through sockets: sent and received in bulk, summed while they are in the cache, without the
// GIL. What the bytes around them mean is the business of wires/tcp_protocol.py. Sockets block for a
// tick at most (SO_RCVTIMEO, SO_SNDTIMEO); then the deadline is looked at.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/tuple.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <stdexcept>
#include <tuple>
#include <vector>

#include "bindings.h"
#include "isa.h"
#include "sums.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace tercet {
namespace {

using Place = std::tuple<uintptr_t, int64_t, int64_t, int64_t>;  // address, start, stride, length
using Units = In<int32_t>;

constexpr int64_t kChunk = 512 << 10;  // summed while it is in the cache
constexpr size_t kPiecesMax = 1024;    // IOV_MAX
enum Status { kDone = 0, kLate = 1, kBroken = 2, kRefused = 3 };

const Kernels& kernels() {
  static const Kernels& chosen = choose_kernels("");
  return chosen;
}

int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

StripOf strip_of(const Place& place, const Units& units) {
  const auto& [address, start, stride, length] = place;
  return {reinterpret_cast<uint8_t*>(address), start, stride, length, units.data(),
          int64_t(units.size())};
}

// Bytes [begin, end) of a strip.
void append_pieces(const StripOf& strip, int64_t begin, int64_t end, std::vector<iovec>& to) {
  while (begin < end) {
    const int64_t count = std::min(end - begin, strip.length - begin % strip.length);
    to.push_back({strip.at(begin), size_t(count)});
    begin += count;
  }
}

// All of the pieces, or why not.
// `check` is told how much has gone through, and may end it.
template <class Call, class Check>
Status through(Call call, std::vector<iovec> pieces, int64_t until_ns, Check check) {
  size_t at = 0, done = 0;
  while (at < pieces.size()) {
    const ssize_t count = call(&pieces[at], std::min(pieces.size() - at, kPiecesMax));
    if (count == 0) return kBroken;
    if (count < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR) return kBroken;
    size_t left = size_t(std::max<ssize_t>(count, 0));
    done += left;
    if (const Status status = check(done); status != kDone) return status;
    while (at < pieces.size() && left >= pieces[at].iov_len) left -= pieces[at++].iov_len;
    if (left > 0) {
      pieces[at].iov_base = static_cast<uint8_t*>(pieces[at].iov_base) + left;
      pieces[at].iov_len -= left;
    }
    if (at < pieces.size() && now_ns() > until_ns) return kLate;
  }
  return kDone;
}

Status send_all(int fd, std::vector<iovec> pieces, int flags, int64_t until_ns) {
  return through(
      [&](iovec* some, size_t count) {
        msghdr message{};
        message.msg_iov = some, message.msg_iovlen = count;
        return sendmsg(fd, &message, flags | MSG_NOSIGNAL);
      },
      std::move(pieces), until_ns, [](size_t) { return kDone; });
}

template <class Check>
Status receive_all(int fd, std::vector<iovec> pieces, int64_t until_ns, Check check) {
  return through(
      [&](iovec* some, size_t count) {
        msghdr message{};
        message.msg_iov = some, message.msg_iovlen = count;
        return recvmsg(fd, &message, 0);
      },
      std::move(pieces), until_ns, check);
}

int64_t chunk_of(int64_t part_bytes) {
  return std::max<int64_t>(kChunk / part_bytes, 1) * part_bytes;
}

void check_range(const StripOf& strip, int64_t begin, int64_t end, int64_t part_bytes) {
  if (begin < 0 || begin > end || end > strip.bytes() || part_bytes <= 0 ||
      (end > begin && (strip.length % part_bytes || begin % part_bytes || end % part_bytes)))
    throw std::invalid_argument("parts straddle what is sent or received");
}

// Sends a head and the strip, and unless something is to be looked at first, a tail that says
// that all is well; (status, fold of its parts).
std::tuple<int, uint64_t> send_strip(int fd, nb::bytes head, const Place& place, const Units& units,
                                     int64_t part_bytes, bool summed, int64_t stall_ns, bool ends) {
  const StripOf strip = strip_of(place, units);
  check_range(strip, 0, strip.bytes(), part_bytes);
  std::vector<iovec> pieces{{const_cast<char*>(head.c_str()), head.size()}};
  nb::gil_scoped_release released;
  uint64_t fold = kSumFirst;
  const int64_t chunk = chunk_of(part_bytes);
  int64_t begin = 0;
  do {
    const int64_t end = std::min(begin + chunk, strip.bytes());
    if (summed)
      for (int64_t byte = begin; byte < end; byte += part_bytes)
        fold = mix_sum(fold, kernels().sums.part(strip.at(byte), part_bytes));
    append_pieces(strip, begin, end, pieces);
    const bool last = ends && end == strip.bytes();
    const uint64_t tail[2] = {0, summed ? fold : 0};
    if (last) pieces.push_back({const_cast<uint64_t*>(tail), sizeof tail});
    const Status status =
        send_all(fd, std::move(pieces), last ? 0 : MSG_MORE, now_ns() + stall_ns);
    if (status != kDone) return {status, 0};
    pieces.clear();
    begin = end;
  } while (begin < strip.bytes());
  return {kDone, fold};
}

// Sends a request; receives a head into `head`, then, unless its first byte says otherwise, bytes
// [begin, end) of the strip and a tail. `sums`, unless empty, gets those of the parts that came.
int exchange(int fd, nb::bytes request, nb::ndarray<uint8_t, nb::ndim<1>, nb::c_contig> head,
             const Place& place, const Units& units, int64_t begin, int64_t end, int64_t part_bytes,
             nb::ndarray<uint64_t, nb::ndim<1>, nb::c_contig> sums,
             nb::ndarray<uint8_t, nb::ndim<1>, nb::c_contig> tail, int64_t until_ns) {
  const StripOf strip = strip_of(place, units);
  check_range(strip, begin, end, part_bytes);
  if (sums.size() != 0 && int64_t(sums.size()) * part_bytes != end - begin)
    throw std::invalid_argument("as many sums as parts");
  std::vector<iovec> pieces{{const_cast<char*>(request.c_str()), request.size()}};
  uint64_t* to = sums.size() ? sums.data() : nullptr;
  nb::gil_scoped_release released;
  Status status = send_all(fd, std::move(pieces), 0, until_ns);
  if (status != kDone) return status;
  bool headed = false;
  const auto check = [&, size = end - begin](size_t done) {
    if (headed || done < head.size()) return kDone;
    headed = true;
    if (head.data()[0] != 0) return kRefused;
    uint64_t promised;
    std::memcpy(&promised, head.data() + 8, 8);
    return int64_t(promised) == size ? kDone : kBroken;
  };
  const int64_t chunk = chunk_of(part_bytes);
  do {
    const int64_t stop = std::min(begin + chunk, end);
    std::vector<iovec> some;
    if (!headed) some.push_back({head.data(), head.size()});
    append_pieces(strip, begin, stop, some);
    if (stop == end) some.push_back({tail.data(), tail.size()});
    status = receive_all(fd, std::move(some), until_ns, check);
    if (status != kDone) return status;
    if (to != nullptr)
      for (int64_t byte = begin; byte < stop; byte += part_bytes)
        *to++ = kernels().sums.part(strip.at(byte), part_bytes);
    begin = stop;
  } while (begin < end);
  return kDone;
}

}  // namespace

void define_exchange(nb::module_& module) {
  module.def("send_strip", &send_strip, "fd"_a, "head"_a, "place"_a, "units"_a, "part_bytes"_a,
             "summed"_a, "stall_ns"_a, "ends"_a);
  module.def("exchange", &exchange, "fd"_a, "request"_a, "head"_a, "place"_a, "units"_a, "begin"_a,
             "end"_a, "part_bytes"_a, "sums"_a, "tail"_a, "until_ns"_a);
}

}  // namespace tercet
