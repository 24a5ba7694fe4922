// Calls on threads of their own: a call that blocks in a store while the test continues.
#pragma once

#include <signal.h>

#include <atomic>
#include <functional>
#include <future>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "support/eventually.h"

namespace muster::test {

/// The kernel's number of the calling thread, and whether that thread sleeps in the kernel.
int KernelThreadId();
bool KernelThreadSleeps(int thread_id);

/// One call on its own thread. The destructor joins, so the test must make sure that the call ends.
template <typename T>
class Background {
 public:
  explicit Background(std::function<T()> call)
      : task_(std::move(call)), result_(task_.get_future()) {
    thread_ = std::thread([this] {
      thread_id_.store(KernelThreadId());
      task_();
    });
  }
  ~Background() { thread_.join(); }
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;

  /// What the call returned, or threw. Waits for it, with a limit.
  T Result() {
    if (result_.wait_for(kPatience) != std::future_status::ready) {
      throw std::runtime_error("a call that should have ended is still running");
    }
    return result_.get();
  }

  bool IsDone() const { return result_.wait_for(seconds(0)) == std::future_status::ready; }

  /// Waits until the thread sleeps in the kernel: it waits for another party. It may also sleep for
  /// a moment for a lesser reason, so a test must hold in that case, too; then it proves less.
  bool UntilBlocked() {
    return EventuallyTrue([this] {
      const int id = thread_id_.load();
      return IsDone() || (id != 0 && KernelThreadSleeps(id));
    });
  }

  /// Delivers a signal to the thread, which must not have ended.
  void Signal(int number) { pthread_kill(thread_.native_handle(), number); }

 private:
  std::packaged_task<T()> task_;
  std::future<T> result_;
  std::atomic<int> thread_id_{0};
  std::thread thread_;
};

/// Runs `work(0)` to `work(count - 1)`, each on its own thread and all at once; rethrows the first
/// failure when all have ended.
void InParallel(int count, const std::function<void(int index)>& work);

}  // namespace muster::test
