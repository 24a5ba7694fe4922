#include "os/uv/uv_loop.h"

#include <sys/timerfd.h>

#include <algorithm>
#include <future>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/assert.h"
#include "base/text.h"
#include "os/posix/owned_fd.h"
#include "os/posix/posix_clock.h"

namespace muster {

namespace {

// Large enough to read big values in few calls.
constexpr size_t kReadBufferBytes = 64 * 1024;

class UvTimer final : public Timer {
 public:
  enum class Kind { kOnce, kPeriodic };

  UvTimer(uv_loop_t* loop, Duration period, Kind kind, std::function<void()> tick)
      : shot_(new Shot{.tick = std::move(tick)}) {
    const auto ms = static_cast<uint64_t>(std::max<int64_t>(1, Milliseconds(period)));
    uv_timer_init(loop, &shot_->handle);
    shot_->handle.data = shot_;
    uv_timer_start(
        &shot_->handle,
        [](uv_timer_t* handle) {
          // A copy: the tick may destroy the timer, and with it the function that is running.
          const std::function<void()> keep = static_cast<Shot*>(handle->data)->tick;
          keep();
        },
        ms, kind == Kind::kPeriodic ? ms : 0);
  }
  ~UvTimer() override { CloseAndDelete(shot_, &Shot::handle); }

 private:
  struct Shot {
    uv_timer_t handle{};
    std::function<void()> tick{};
  };
  Shot* shot_;
};

// A kernel timer on CLOCK_BOOTTIME; libuv's timers are on CLOCK_MONOTONIC.
class UvAlarm final : public Timer {
 public:
  /// Null: no descriptor is left, or no memory for it.
  static std::unique_ptr<UvAlarm> Open(UvLoop& loop, Instant when,
                                       const std::function<void()>& ring) {
    auto shot = std::make_unique<Shot>(
        Shot{.loop = loop,
             .clock = OwnedFd(timerfd_create(CLOCK_BOOTTIME, TFD_NONBLOCK | TFD_CLOEXEC)),
             .when = when,
             .ring = ring});
    if (!shot->clock.is_open()) return nullptr;
    if (uv_poll_init(loop.raw(), &shot->handle, shot->clock.get()) != 0) return nullptr;
    return std::unique_ptr<UvAlarm>(new UvAlarm(shot.release()));
  }
  ~UvAlarm() override { CloseAndDelete(shot_, &Shot::handle); }

 private:
  struct Shot {
    uv_poll_t handle{};
    UvLoop& loop;
    OwnedFd clock;
    const Instant when;
    const std::function<void()> ring;
  };

  explicit UvAlarm(Shot* shot) : shot_(shot) {
    shot->handle.data = shot;
    Set(*shot);
    uv_poll_start(&shot->handle, UV_READABLE, [](uv_poll_t* handle, int, int) {
      Shot& due = *static_cast<Shot*>(handle->data);
      due.loop.CountSuspension();
      // The loop's clock counts whole milliseconds, and may be one behind.
      if (due.loop.Now() < due.when) return Set(due);
      uv_poll_stop(handle);
      // It may destroy the alarm, and with it the function that is running.
      const std::function<void()> keep = due.ring;
      keep();
    });
  }

  // Relative: libraries that fake the wall clock shift every absolute time.
  static void Set(const Shot& shot) {
    const Duration left = std::max<Duration>(shot.when - BootTime(), std::chrono::milliseconds(1));
    const itimerspec spec{.it_interval = {}, .it_value = ToTimespec(left)};
    MUSTER_ASSERT(timerfd_settime(shot.clock.get(), 0, &spec, nullptr) == 0);
  }

  Shot* shot_;
};

constexpr std::chrono::milliseconds kSuspendedLook{5};

}  // namespace

UvLoop::UvLoop() : read_buffer_(kReadBufferBytes) {}

Result<std::unique_ptr<UvLoop>> UvLoop::Open() {
  std::unique_ptr<UvLoop> loop(new UvLoop);
  const auto failure = [](int status) {
    return MakeError(Code::kUnavailable, "no event loop: ", std::string_view(uv_strerror(status)));
  };
  if (const int status = uv_loop_init(&loop->loop_); status != 0) return failure(status);
  const int status = uv_async_init(&loop->loop_, &loop->wake_, [](uv_async_t* wake) {
    for (const auto& run : static_cast<UvLoop*>(wake->data)->TakePosted()) run();
  });
  if (status != 0) {
    uv_loop_close(&loop->loop_);
    return failure(status);
  }
  loop->wake_.data = loop.get();
  uv_prepare_init(&loop->loop_, &loop->before_wait_);  // these two cannot fail
  uv_prepare_start(&loop->before_wait_, [](uv_prepare_t* prepare) {
    static_cast<UvLoop*>(prepare->data)->outbox_.Flush();
  });
  loop->before_wait_.data = loop.get();
  loop->open_ = true;
  return loop;
}

UvLoop::~UvLoop() {
  if (!open_) return;
  // Work that has not run may own streams and timers of this loop: it is destroyed first, while
  // they can still close.
  TakePosted();
  uv_close(reinterpret_cast<uv_handle_t*>(&wake_), nullptr);
  uv_close(reinterpret_cast<uv_handle_t*>(&before_wait_), nullptr);
  uv_run(&loop_, UV_RUN_DEFAULT);
  MUSTER_ASSERT(uv_loop_close(&loop_) == 0);
}

void UvLoop::Run() {
  thread_ = std::this_thread::get_id();
  uv_run(&loop_, UV_RUN_DEFAULT);
  thread_ = std::thread::id();
}

void UvLoop::Stop() {
  Post([this] { uv_stop(&loop_); });
}

// libuv's time and timers stop while the machine is suspended. Leases, which are compared with
// Now(), do not: the difference is read again every 5 ms, and not in every turn of a busy loop.
Instant UvLoop::Now() const {
  const std::chrono::milliseconds turn(uv_now(&loop_));
  if (turn - suspended_seen_at_ >= kSuspendedLook) {
    suspended_seen_at_ = turn;
    CountSuspension();
  }
  return Instant{turn + suspended_};
}

void UvLoop::CountSuspension() const {
  // In this order: time that passes between the two reads makes the difference too small once, and
  // never permanently too large.
  const Duration since_boot = BootTime().since_start;
  const Duration awake = std::chrono::nanoseconds(uv_hrtime());
  suspended_ = std::max(since_boot - awake, suspended_);
}

void UvLoop::Post(std::function<void()> work) {
  {
    const std::lock_guard lock(mutex_);
    posted_.push_back(std::move(work));
    if (posted_.size() > 1) return;  // the loop has been woken already
  }
  uv_async_send(&wake_);
}

std::vector<std::function<void()>> UvLoop::TakePosted() {
  const std::lock_guard lock(mutex_);
  return std::exchange(posted_, {});
}

std::unique_ptr<Timer> UvLoop::Every(Duration period, std::function<void()> tick) {
  MUSTER_ASSERT(IsCurrent());
  return std::make_unique<UvTimer>(&loop_, period, UvTimer::Kind::kPeriodic, std::move(tick));
}

std::unique_ptr<Timer> UvLoop::After(Duration delay, std::function<void()> work) {
  MUSTER_ASSERT(IsCurrent());
  return std::make_unique<UvTimer>(&loop_, delay, UvTimer::Kind::kOnce, std::move(work));
}

std::unique_ptr<Timer> UvLoop::At(Instant when, std::function<void()> ring) {
  MUSTER_ASSERT(IsCurrent());
  if (auto alarm = UvAlarm::Open(*this, when, ring)) return alarm;
  // A timer that does not count suspensions is better than none. It rings a millisecond late,
  // because the loop's clock may be one behind.
  const Duration left = std::max<Duration>(when - Now(), Duration::zero());
  return After(left + std::chrono::milliseconds(1), std::move(ring));
}

UvThread::UvThread(std::unique_ptr<UvLoop> loop)
    : loop_(std::move(loop)), thread_([this] { loop_->Run(); }) {}

UvThread::~UvThread() {
  loop_->Stop();
  thread_.join();
}

Result<std::unique_ptr<UvThread>> UvThread::Open() {
  MUSTER_TRY(std::unique_ptr<UvLoop> loop, UvLoop::Open());
  try {
    return std::unique_ptr<UvThread>(new UvThread(std::move(loop)));
  } catch (const std::system_error& error) {
    return MakeError(Code::kUnavailable, "no thread for an event loop: ", error.what());
  }
}

void UvThread::RunAndWait(const std::function<void()>& work) {
  std::promise<void> done;
  loop_->Post([&] {
    work();
    done.set_value();
  });
  done.get_future().wait();
}

}  // namespace muster
