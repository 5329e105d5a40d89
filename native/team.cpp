#include "team.h"

#include <chrono>

#if defined(__linux__)
#include <pthread.h>
#include <sched.h>
#endif

namespace tercet {
namespace {

constexpr int64_t kBusyNs = 30'000;  // longer than any wait within a step
constexpr int kPausesPerLook = 64;  // a look at the clock costs as much as a few pauses

inline void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

void pin(std::thread& thread, int cpu) {
#if defined(__linux__)
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  // Refused where the process may not use that core any more: then it runs where it may.
  pthread_setaffinity_np(thread.native_handle(), sizeof set, &set);
#else
  (void)thread, (void)cpu;
#endif
}

inline uint64_t chunks_of(uint64_t ticket) { return ticket >> 16 & 0xffff; }
inline uint64_t next_of(uint64_t ticket) { return ticket & 0xffff; }

}  // namespace

Team::Team(int threads, const std::vector<int>& cpus, int64_t spin_ns)
    : threads_(threads), spin_ns_(spin_ns) {
  for (int thread = 1; thread < threads; ++thread) {
    members_.emplace_back([this, thread] { live(thread); });
    if (!cpus.empty()) pin(members_.back(), cpus[thread % cpus.size()]);
  }
}

Team::~Team() {
  over_.store(true);
  alarm_.fetch_add(1);
  alarm_.notify_all();
  for (std::thread& member : members_) member.join();
}

void Team::run(Work& work, int64_t region, int64_t chunks) {
  if (chunks <= 0) return;
  if (threads_ == 1 || chunks == 1) {  // what one thread does needs no other to know
    for (int64_t chunk = 0; chunk < chunks; ++chunk) work.run(region, chunk, 0);
    return;
  }
  work_ = &work;
  region_ = region;
  done_.store(0, std::memory_order_relaxed);
  const uint64_t number = (ticket_.load(std::memory_order_relaxed) >> 32) + 1;
  // Sequentially consistent, as the counting of sleepers is: one of the two sees the other.
  ticket_.store(number << 32 | uint64_t(chunks) << 16);
  if (chunks > 1 && sleepers_.load() > 0) {
    alarm_.fetch_add(1);
    alarm_.notify_all();
  }
  while (take(0)) {
  }
  int64_t pauses = 0;
  while (done_.load(std::memory_order_acquire) != chunks) {
    pause();
    // Whoever holds the last chunk may need this very core.
    if (++pauses % (16 * kPausesPerLook) == 0) std::this_thread::yield();
  }
}

bool Team::take(int thread) {
  uint64_t ticket = ticket_.load(std::memory_order_acquire);
  while (next_of(ticket) < chunks_of(ticket)) {
    if (ticket_.compare_exchange_weak(ticket, ticket + 1, std::memory_order_acq_rel,
                                      std::memory_order_acquire)) {
      work_->run(region_, int64_t(next_of(ticket)), thread);
      done_.fetch_add(1, std::memory_order_release);
      return true;
    }
  }
  return false;
}

void Team::live(int thread) {
  int64_t idle_since = now_ns();
  while (!over_.load(std::memory_order_relaxed)) {
    if (take(thread)) {
      while (take(thread)) {
      }
      idle_since = now_ns();
    }
    for (int i = 0; i < kPausesPerLook; ++i) {
      const uint64_t ticket = ticket_.load(std::memory_order_relaxed);
      if (next_of(ticket) < chunks_of(ticket)) break;
      pause();
    }
    const int64_t idle_ns = now_ns() - idle_since;
    if (idle_ns > kBusyNs) std::this_thread::yield();  // whoever needs the core between steps has it
    if (idle_ns > spin_ns_) {
      sleep(ticket_.load());
      idle_since = now_ns();
    }
  }
}

void Team::sleep(uint64_t seen) {
  const uint32_t alarm = alarm_.load();
  sleepers_.fetch_add(1);
  // A region that was opened before this thread counted as a sleeper rang no alarm for it.
  if (ticket_.load() == seen && !over_.load()) alarm_.wait(alarm);
  sleepers_.fetch_sub(1);
}

}  // namespace tercet
