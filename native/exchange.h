// Strips through sockets: sent and received in bulk, summed while they are in the cache. What the
// bytes around them mean is the business of wires/tcp_protocol.py. Sockets block for a tick at most
// (SO_RCVTIMEO, SO_SNDTIMEO); then the deadline is looked at.
#pragma once

#include <cstdint>
#include <string_view>

#include "kernels.h"
#include "sums.h"

namespace tercet {

enum class Sent : int { kDone = 0, kLate = 1, kBroken = 2, kRefused = 3 };

// What the other side says around the bytes (HEAD and TAIL of wires/tcp_protocol.py).
struct Said {
  uint8_t head[24] = {};  // end, size, wait
  uint8_t tail[16] = {};  // end, fold
};

// Where an answer goes: bytes [begin, end) of a strip. `sums`, unless null, gets those of all parts;
// `fold`, unless null, what they fold to.
struct Taken {
  StripOf strip;
  int64_t begin, end, part_bytes;
  uint64_t* sums;
  uint64_t* fold;
};

// Sends a head, the strip, and, if it `ends` here, a tail that says that all is well. No call waits
// longer than `stall_ns` for the other side to take something. `fold`, unless null, gets that of
// the parts, and the tail has it.
Sent send_strip(const Kernels&, int fd, std::string_view head, const StripOf&, int64_t part_bytes,
                bool ends, int64_t stall_ns, uint64_t* fold);

// Sends a request and receives a head; unless that refuses, the bytes and a tail as well.
Sent exchange(const Kernels&, int fd, std::string_view request, const Taken&, Said&,
              int64_t until_ns);

}  // namespace tercet
