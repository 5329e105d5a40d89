// A fixed team of threads that works through regions, each cut into chunks.
//
// A region is done when all its chunks are done; then the next one begins. Threads take chunks as
// they come, so a thread that the system has put aside delays nobody, unless it holds a chunk. The
// caller is one of the team.
//
//   region 0  [c0 c1 c2]   region 1 [c0]   region 2 [c0 c1 c2 c3] ...
//   thread 0   c0    c2             c0               c0    c2 c3
//   thread 1      c1        (waits)                     c1
//
// Between steps threads spin for a short while, then sleep: an idle team costs nothing.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

namespace tercet {

class Work {
 public:
  virtual ~Work() = default;
  virtual void run(int64_t region, int64_t chunk, int thread) = 0;
};

class Team {
 public:
  static constexpr int64_t kChunksMax = 0xffff;

  // `cpus`: where the threads shall run (the caller's own is left alone), or empty.
  Team(int threads, const std::vector<int>& cpus, int64_t spin_ns);
  ~Team();
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  int threads() const { return threads_; }
  // All chunks of the region are done when this returns. Not to be called by two threads.
  void run(Work& work, int64_t region, int64_t chunks);

 private:
  void live(int thread);
  bool take(int thread);  // one chunk, if there is one
  void sleep(uint64_t seen);

  const int threads_;
  const int64_t spin_ns_;
  Work* work_ = nullptr;    // written before the ticket, read by those who took a chunk
  int64_t region_ = 0;
  alignas(64) std::atomic<uint64_t> ticket_{0};  // region's number << 32 | chunks << 16 | next one
  alignas(64) std::atomic<int64_t> done_{0};
  alignas(64) std::atomic<uint32_t> alarm_{0};
  std::atomic<int> sleepers_{0};
  std::atomic<bool> over_{false};
  std::vector<std::thread> members_;
};

}  // namespace tercet
