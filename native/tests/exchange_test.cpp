// Strips through sockets: what is sent arrives where it belongs, and ends that lie or stall are told.
#include "exchange.h"

#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <numeric>
#include <stdexcept>
#include <thread>

#include "check.h"

namespace {

using namespace tercet;

constexpr int64_t kPart = 4096, kUnit = 3 * kPart, kUnits = 400;  // several chunks, and a rest
constexpr int64_t kSize = kUnit * kUnits;
constexpr int64_t kSecond = 1'000'000'000;

int64_t in(int64_t ns) {
  return ns + std::chrono::duration_cast<std::chrono::nanoseconds>(
                  std::chrono::steady_clock::now().time_since_epoch())
                  .count();
}

// Two ends that block for 10 ms at most, as those of the wire do for a tick.
struct Pair {
  int near, far;

  Pair() {
    int ends[2];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    near = ends[0], far = ends[1];
    const timeval tick{0, 10'000};
    for (int end : ends) {
      CHECK(setsockopt(end, SOL_SOCKET, SO_RCVTIMEO, &tick, sizeof tick) == 0);
      CHECK(setsockopt(end, SOL_SOCKET, SO_SNDTIMEO, &tick, sizeof tick) == 0);
    }
  }
  ~Pair() { close(near), close_far(); }
  void close_far() {
    if (far >= 0) close(far);
    far = -1;
  }
};

std::string head_of(uint64_t end, uint64_t size) {
  const uint64_t words[3] = {end, size, 77};
  return {reinterpret_cast<const char*>(words), sizeof words};
}

// Units in a shuffled order, with room between them, and where they go.
struct Memories {
  std::vector<uint8_t> source = std::vector<uint8_t>(size_t((kUnit + 64) * kUnits));
  std::vector<uint8_t> target = std::vector<uint8_t>(size_t(kSize));
  std::vector<int32_t> order = std::vector<int32_t>(size_t(kUnits));
  int32_t zero = 0;

  Memories() {
    std::mt19937_64 generator(3);
    for (uint8_t& byte : source) byte = uint8_t(generator());
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), generator);
  }
  StripOf from() { return {source.data(), 64, kUnit + 64, kUnit, order.data(), kUnits}; }
  StripOf from(int64_t first, int64_t count) {
    return {source.data(), 64, kUnit + 64, kUnit, order.data() + first, count};
  }
  StripOf to() { return {target.data(), 0, 0, kSize, &zero, 1}; }
  bool came(int64_t first, int64_t count) {
    for (int64_t unit = first; unit < first + count; ++unit)
      if (std::memcmp(&target[size_t(unit * kUnit)], from().at(unit * kUnit), kUnit) != 0)
        return false;
    return true;
  }
};

void take_request(int far, size_t size) {
  std::vector<char> said(size);
  for (size_t at = 0; at < size;) {
    const ssize_t count = recv(far, said.data() + at, size - at, 0);
    CHECK(count > 0 || (count < 0 && errno == EAGAIN));
    if (count > 0) at += size_t(count);
  }
}

void say(int far, const std::string& said) {
  CHECK(send(far, said.data(), said.size(), 0) == ssize_t(said.size()));
}

}  // namespace

CASE(strips_arrive_in_their_places_and_both_ends_sum_alike) {
  Memories memories;
  Pair pair;
  std::vector<uint64_t> expected(size_t(kSize / kPart)), sums(expected.size());
  sum_parts(kernels, memories.from(), kPart, expected.data());
  const uint64_t all = fold_sums(expected.data(), int64_t(expected.size()), kSumFirst);
  uint64_t sent_fold = 0, fold = 0;
  std::thread far([&] {
    take_request(pair.far, 3);
    CHECK(send_strip(kernels, pair.far, head_of(0, kSize), memories.from(), kPart, true, kSecond,
                     &sent_fold) == Sent::kDone);
  });
  Said said;
  const Taken taken{memories.to(), 0, kSize, kPart, sums.data(), &fold};
  CHECK(exchange(kernels, pair.near, "ask", taken, said, in(20 * kSecond)) == Sent::kDone);
  far.join();
  CHECK(memories.came(0, kUnits));
  CHECK(sums == expected && fold == all && sent_fold == all);
  uint64_t waited, told;
  std::memcpy(&waited, said.head + 16, 8), std::memcpy(&told, said.tail + 8, 8);
  CHECK(said.head[0] == 0 && said.tail[0] == 0 && waited == 77 && told == all);
}

CASE(several_connections_fill_one_strip_at_once) {
  Memories memories;
  std::vector<std::thread> threads;
  std::vector<Pair> pairs(4);
  for (int64_t number = 0; number < 4; ++number) {
    const int64_t first = number * 100;
    const Pair& pair = pairs[size_t(number)];
    threads.emplace_back([&, first] {
      take_request(pair.far, 3);
      CHECK(send_strip(kernels, pair.far, head_of(0, 100 * kUnit), memories.from(first, 100), kPart,
                       true, kSecond, nullptr) == Sent::kDone);
    });
    threads.emplace_back([&, first] {
      Said said;
      const Taken taken{memories.to(), first * kUnit, (first + 100) * kUnit, kPart, nullptr, nullptr};
      CHECK(exchange(kernels, pair.near, "ask", taken, said, in(20 * kSecond)) == Sent::kDone);
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(memories.came(0, kUnits));
}

CASE(nothing_is_sent_and_received_as_well) {
  Memories memories;
  Pair pair;
  uint64_t fold = 0;
  CHECK(send_strip(kernels, pair.far, head_of(0, 0), memories.from(0, 0), kPart, true, kSecond,
                   nullptr) == Sent::kDone);
  Said said;
  const Taken taken{memories.to(), 0, 0, kPart, nullptr, &fold};
  CHECK(exchange(kernels, pair.near, "ask", taken, said, in(kSecond)) == Sent::kDone);
  CHECK(fold == kSumFirst);
}

CASE(an_answer_that_refuses_lies_or_breaks_off_is_told_apart) {
  Memories memories;
  const auto asked = [&](const std::string& answer, bool ends) {
    Pair pair;
    say(pair.far, answer);
    if (ends) pair.close_far();
    Said said;
    const Taken taken{memories.to(), 0, kUnit, kPart, nullptr, nullptr};
    return exchange(kernels, pair.near, "ask", taken, said, in(kSecond / 10));
  };
  CHECK(asked(head_of(3, 0), false) == Sent::kRefused);
  CHECK(asked(head_of(0, kUnit + kPart), false) == Sent::kBroken);
  CHECK(asked(head_of(0, kUnit) + std::string(100, 'x'), false) == Sent::kLate);
  CHECK(asked(head_of(0, kUnit) + std::string(100, 'x'), true) == Sent::kBroken);
  CHECK(asked("", false) == Sent::kLate);
}

CASE(who_takes_nothing_holds_up_a_sender_for_so_long) {
  Memories memories;
  Pair pair;
  CHECK(send_strip(kernels, pair.far, head_of(0, kSize), memories.from(), kPart, true, kSecond / 20,
                   nullptr) == Sent::kLate);
}

CASE(parts_that_straddle_what_is_sent_or_received_are_refused) {
  Memories memories;
  int refused = 0;
  try {
    send_strip(kernels, -1, "", memories.from(), kPart + 1, true, kSecond, nullptr);
  } catch (const std::invalid_argument&) {
    ++refused;
  }
  Said said;
  for (const auto& [begin, end] : {std::pair<int64_t, int64_t>{0, kSize + kPart}, {1, kPart}, {-kPart, 0}})
    try {
      exchange(kernels, -1, "ask", {memories.to(), begin, end, kPart, nullptr, nullptr}, said, 0);
    } catch (const std::invalid_argument&) {
      ++refused;
    }
  CHECK(refused == 4);
}
