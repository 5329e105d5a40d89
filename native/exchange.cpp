#include "exchange.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <stdexcept>
#include <vector>

namespace tercet {
namespace {

constexpr int64_t kChunk = 512 << 10;  // summed while it is in the cache
constexpr size_t kPiecesMax = 1024;    // IOV_MAX

int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

iovec piece(const void* at, size_t count) { return {const_cast<void*>(at), count}; }

// Bytes [begin, end) of a strip.
void append_pieces(const StripOf& strip, int64_t begin, int64_t end, std::vector<iovec>& to) {
  while (begin < end) {
    const int64_t count = std::min(end - begin, strip.length - begin % strip.length);
    to.push_back(piece(strip.at(begin), size_t(count)));
    begin += count;
  }
}

// All of the pieces, or why not. `check` is told how much has gone through, and may end it.
template <class Call, class Check>
Sent through(Call call, std::vector<iovec>& pieces, int64_t until_ns, Check check) {
  size_t at = 0, done = 0;
  while (at < pieces.size()) {
    msghdr message{};
    message.msg_iov = &pieces[at];
    message.msg_iovlen = std::min(pieces.size() - at, kPiecesMax);
    const ssize_t count = call(message);
    if (count == 0) return Sent::kBroken;
    if (count < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)
      return Sent::kBroken;
    size_t left = size_t(std::max<ssize_t>(count, 0));
    done += left;
    if (const Sent sent = check(done); sent != Sent::kDone) return sent;
    while (at < pieces.size() && left >= pieces[at].iov_len) left -= pieces[at++].iov_len;
    if (left > 0) {
      pieces[at].iov_base = static_cast<uint8_t*>(pieces[at].iov_base) + left;
      pieces[at].iov_len -= left;
    }
    if (at < pieces.size() && now_ns() > until_ns) return Sent::kLate;
  }
  return Sent::kDone;
}

Sent send_all(int fd, std::vector<iovec>& pieces, bool more, int64_t until_ns) {
  const int flags = MSG_NOSIGNAL | (more ? MSG_MORE : 0);
  return through([&](msghdr& message) { return sendmsg(fd, &message, flags); }, pieces, until_ns,
                 [](size_t) { return Sent::kDone; });
}

int64_t chunk_of(int64_t part_bytes) {
  return std::max<int64_t>(kChunk / part_bytes, 1) * part_bytes;
}

void check_range(const StripOf& strip, int64_t begin, int64_t end, int64_t part_bytes) {
  if (begin < 0 || begin > end || end > strip.bytes() || part_bytes <= 0 ||
      (end > begin && (strip.length % part_bytes || begin % part_bytes || end % part_bytes)))
    throw std::invalid_argument("parts straddle what is sent or received");
}

}  // namespace

Sent send_strip(const Kernels& kernels, int fd, std::string_view head, const StripOf& strip,
                int64_t part_bytes, bool ends, int64_t stall_ns, uint64_t* fold) {
  check_range(strip, 0, strip.bytes(), part_bytes);
  std::vector<iovec> pieces{piece(head.data(), head.size())};
  if (fold != nullptr) *fold = kSumFirst;
  int64_t begin = 0;
  do {
    const int64_t end = std::min(begin + chunk_of(part_bytes), strip.bytes());
    if (fold != nullptr)
      for (int64_t byte = begin; byte < end; byte += part_bytes)
        *fold = mix_sum(*fold, kernels.sums.part(strip.at(byte), part_bytes));
    append_pieces(strip, begin, end, pieces);
    const bool last = end == strip.bytes();
    const uint64_t tail[2] = {0, fold != nullptr ? *fold : 0};
    if (last && ends) pieces.push_back(piece(tail, sizeof tail));
    const Sent sent = send_all(fd, pieces, !(last && ends), now_ns() + stall_ns);
    if (sent != Sent::kDone) return sent;
    pieces.clear();
    begin = end;
  } while (begin < strip.bytes());
  return Sent::kDone;
}

Sent exchange(const Kernels& kernels, int fd, std::string_view request, const Taken& taken,
              Said& said, int64_t until_ns) {
  const auto& [strip, first, end, part_bytes, sums, fold] = taken;
  check_range(strip, first, end, part_bytes);
  std::vector<iovec> pieces{piece(request.data(), request.size())};
  Sent sent = send_all(fd, pieces, false, until_ns);
  if (sent != Sent::kDone) return sent;
  bool headed = false;
  const auto check = [&, size = end - first](size_t done) {
    if (headed || done < sizeof said.head) return Sent::kDone;
    headed = true;
    if (said.head[0] != 0) return Sent::kRefused;
    uint64_t promised;
    std::memcpy(&promised, said.head + 8, sizeof promised);
    return int64_t(promised) == size ? Sent::kDone : Sent::kBroken;
  };
  if (fold != nullptr) *fold = kSumFirst;
  uint64_t* to = sums;
  int64_t begin = first;
  do {
    const int64_t stop = std::min(begin + chunk_of(part_bytes), end);
    pieces.clear();
    if (!headed) pieces.push_back(piece(said.head, sizeof said.head));
    append_pieces(strip, begin, stop, pieces);
    if (stop == end) pieces.push_back(piece(said.tail, sizeof said.tail));
    sent = through([&](msghdr& message) { return recvmsg(fd, &message, 0); }, pieces, until_ns,
                   check);
    if (sent != Sent::kDone) return sent;
    if (sums != nullptr || fold != nullptr)
      for (int64_t byte = begin; byte < stop; byte += part_bytes) {
        const uint64_t sum = kernels.sums.part(strip.at(byte), part_bytes);
        if (to != nullptr) *to++ = sum;
        if (fold != nullptr) *fold = mix_sum(*fold, sum);
      }
    begin = stop;
  } while (begin < end);
  return Sent::kDone;
}

}  // namespace tercet
