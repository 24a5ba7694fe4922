#include "store/periodic_timer.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <utility>

#include "base/text.h"
#include "os/posix/process.h"

namespace muster {

namespace {

// A longer interval would overflow the clock.
constexpr std::chrono::milliseconds kIntervalMax = std::chrono::hours(24 * 365);

/// Shared with the thread: a timer may be destroyed by its own tick.
struct Work {
  std::chrono::milliseconds interval;
  std::function<void()> tick;
  std::string name = "PeriodicTimer";
  std::mutex mutex;
  std::condition_variable wake;
  bool stopping = false;  // guarded by mutex

  void Stop() {
    const std::lock_guard lock(mutex);
    stopping = true;
    wake.notify_all();
  }

  /// Sleeps for an interval; whether it is time for a tick rather than for the end.
  bool IsTimeForTick() {
    std::unique_lock lock(mutex);
    return !wake.wait_for(lock, interval, [this] { return stopping; });
  }

  void Run() {
    NameThisThread(name);
    while (IsTimeForTick()) {
      try {
        tick();
      } catch (...) {
        // A heartbeat that stops after one failure is worse than one that misses a beat. The
        // function can catch its failures.
      }
    }
  }
};

}  // namespace

struct PeriodicTimer::Impl {
  std::shared_ptr<Work> work = std::make_shared<Work>();
  std::thread thread;
  bool started = false;

  bool IsInsideTick() const { return thread.get_id() == std::this_thread::get_id(); }
};

PeriodicTimer::PeriodicTimer(std::chrono::milliseconds interval, std::function<void()> tick)
    : impl_(std::make_unique<Impl>()) {
  if (interval.count() < 0) {
    throw std::invalid_argument(
        Concat("PeriodicTimer: the interval is ", interval.count(), " ms, allowed: 0 or more"));
  }
  if (!tick) throw std::invalid_argument("PeriodicTimer: there is no function to call");
  impl_->work->interval = std::min(interval, kIntervalMax);
  impl_->work->tick = std::move(tick);
}

PeriodicTimer::~PeriodicTimer() {
  if (!impl_->thread.joinable()) return;
  impl_->work->Stop();
  if (impl_->IsInsideTick()) {
    impl_->thread.detach();  // it ends with this tick, and cannot join itself
  } else {
    impl_->thread.join();
  }
}

void PeriodicTimer::SetName(std::string name) {
  if (impl_->started)
    throw std::logic_error("PeriodicTimer: it was started already; name it before Start()");
  impl_->work->name = std::move(name);
}

void PeriodicTimer::Start() {
  if (impl_->started) {
    throw std::logic_error(
        "PeriodicTimer: it was started already, and starts only once; make another one");
  }
  // Locked: the first tick may use or destroy this timer, and needs `thread` to be set.
  const std::shared_ptr<Work> work = impl_->work;
  const std::lock_guard lock(work->mutex);
  impl_->thread = std::thread([work] { work->Run(); });
  impl_->started = true;
}

void PeriodicTimer::Cancel() {
  if (!impl_->thread.joinable()) return;
  if (impl_->IsInsideTick()) {
    throw std::logic_error(
        "PeriodicTimer: cancelled by the function that it calls, which would wait for itself; "
        "cancel it from another thread");
  }
  impl_->work->Stop();
  impl_->thread.join();
}

}  // namespace muster
