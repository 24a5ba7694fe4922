// Programs that tests start while other threads are busy: those of a loop, or gRPC's.
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "support/child_process.h"

namespace muster::test {
namespace {

/// Threads that allocate all the time: at any moment one of them has the allocator's locks.
class Hoarders {
 public:
  Hoarders() {
    for (size_t i = 0; i < 4; ++i) threads_.emplace_back([this] { Hoard(); });
  }
  ~Hoarders() {
    enough_ = true;
    for (std::thread& each : threads_) each.join();
  }
  Hoarders(const Hoarders&) = delete;
  Hoarders& operator=(const Hoarders&) = delete;

 private:
  void Hoard() const {
    while (!enough_) {
      std::vector<std::unique_ptr<char[]>> hoard(4096);
      for (size_t i = 0; i < hoard.size(); ++i) hoard[i] = std::make_unique<char[]>(8U << (i % 4));
    }
  }

  std::atomic<bool> enough_{false};
  std::vector<std::thread> threads_;
};

TEST(ChildProcessTest, AProgramStartsWhateverOtherThreadsHold) {
  const Hoarders hoarders;
  for (int i = 0; i < 50; ++i) {
    int status = -1;
    // In a thread that has no memory of its own cached yet.
    std::thread([&status] { status = ChildProcess::Run({"true"}).Wait(seconds(10)); }).join();
    ASSERT_EQ(status, 0) << "start " << i;
  }
}

TEST(ChildProcessTest, AProgramThatIsNotThereEndsAsInAShell) {
  EXPECT_EQ(ChildProcess::Run({"/no/such/program"}).Wait(), 127);
}

}  // namespace
}  // namespace muster::test
