// The team: every chunk once, whoever is awake; an idle team sleeps.
#include "team.h"

#include <time.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "check.h"

namespace {

using tercet::Team;

class Counting final : public tercet::Work {
 public:
  explicit Counting(size_t chunks) : counts(chunks) {}
  void run(int64_t region, int64_t chunk, int thread) override {
    CHECK(region == expected && thread >= 0);
    counts[size_t(chunk)].fetch_add(1, std::memory_order_relaxed);
  }
  int64_t expected = 0;
  std::vector<std::atomic<int>> counts;
};

// Each chunk writes a number that the next region's chunks read: what regions promise.
class Chain final : public tercet::Work {
 public:
  explicit Chain(size_t chunks) : before(chunks, 0), after(chunks, 0) {}
  void run(int64_t region, int64_t chunk, int) override {
    auto& from = region % 2 ? after : before;
    auto& to = region % 2 ? before : after;
    long sum = 1;
    for (long value : from) sum += value % 1000;
    to[size_t(chunk)] = sum;
  }
  std::vector<long> before, after;
};

double cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return double(now.tv_sec) + 1e-9 * double(now.tv_nsec);
}

}  // namespace

CASE(every_chunk_is_done_once) {
  for (int threads : {1, 2, 4}) {
    Team team(threads, {}, 20'000);
    for (int64_t chunks : {0, 1, 2, 3, 64, 1000}) {
      Counting work{size_t(chunks)};
      for (work.expected = 0; work.expected < 50; ++work.expected)
        team.run(work, work.expected, chunks);
      for (const auto& count : work.counts) CHECK(count == 50);
    }
  }
}

CASE(a_region_sees_all_that_the_one_before_wrote) {
  Chain alone(9), together(9);
  Team one(1, {}, 0), team(3, {}, 10'000);
  for (int64_t region = 0; region < 2000; ++region) {
    one.run(alone, region, 9);
    team.run(together, region, 9);
  }
  CHECK(alone.before == together.before && alone.after == together.after);
}

CASE(sleepers_are_woken) {
  Team team(3, {}, 0);
  Chain work(5);
  for (int64_t region = 0; region < 40; ++region) {
    team.run(work, region, 5);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  CHECK(work.before[0] > 0);
}

CASE(an_idle_team_uses_no_processor) {
  Team team(4, {}, 50'000);
  Chain work(5);
  team.run(work, 0, 5);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  const double before = cpu_seconds();
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  CHECK(cpu_seconds() - before < 0.1);
}
