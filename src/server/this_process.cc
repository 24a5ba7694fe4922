// The environment of handlers in a real process: clock, threads, sockets, a port to serve at.
#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <stop_token>
#include <thread>
#include <utility>

#include "base/text.h"
#include "muster/store_server.h"
#include "os/ports/system.h"
#include "os/posix/cores.h"
#include "os/posix/entropy.h"
#include "os/posix/posix_clock.h"
#include "os/posix/posix_dialer.h"
#include "os/posix/process.h"
#include "os/uv/uv_loop.h"
#include "store/free_socket.h"
#include "store/throw.h"

namespace muster {

namespace {

class StdMonitor final : public Monitor {
 public:
  void lock() override { mutex_.lock(); }
  void unlock() override { mutex_.unlock(); }
  void WaitUntil(Instant until) override {
    std::unique_lock lock(mutex_, std::adopt_lock);
    WaitOn(news_, lock, until);
    lock.release();  // the caller's again
  }
  void NotifyAll() override { news_.notify_all(); }

 private:
  std::mutex mutex_;
  std::condition_variable news_;
};

class BoundPort final : public ReservedPort {
 public:
  /// The cores of a node are for its workers. On a node with hundreds of cores, starting as many
  /// threads would take longer than forming a round.
  static constexpr int kLoopsMax = 4;
  /// The same holds for its descriptors: rank 0 keeps one in reserve.
  static constexpr uint64_t kReserve = 1;

  uint16_t port() const override { return socket_.port(); }
  // The socket stays open: a client that connects between two servers waits for the second.
  void Serve() override {
    if (socket_.fd() < 0) return;
    server_.reset();
    server_ = std::make_unique<StoreServer>(
        StoreServerOptions{.listen_fd = ValueOrThrow(socket_.Duplicate()),
                           .threads = std::min(kLoopsMax, DefaultLoops()),
                           .descriptor_reserve = kReserve});
  }
  void Free() override {
    server_.reset();
    socket_.Close();
  }

 private:
  ListeningSocket socket_ = FreeSocket();
  std::unique_ptr<StoreServer> server_;
};

class StdThread final : public Thread {
 public:
  explicit StdThread(std::function<void()> body) : thread_(std::move(body)) {}

 private:
  std::jthread thread_;
};

class PeriodicCall final : public Timer {
 public:
  PeriodicCall(std::string name, std::chrono::milliseconds period, std::function<void()> tick)
      : name_(std::move(name)),
        period_(std::min(period, kPeriodMax)),
        tick_(std::move(tick)),
        thread_([this](const std::stop_token& stop) { Run(stop); }) {}

 private:
  // A longer period would overflow the clock.
  static constexpr std::chrono::milliseconds kPeriodMax = std::chrono::hours(24 * 365);

  void Run(const std::stop_token& stop) {
    NameThisThread(name_);
    std::mutex mutex;
    std::condition_variable_any never;
    while (true) {
      std::unique_lock lock(mutex);
      never.wait_for(lock, stop, period_, [] { return false; });
      if (stop.stop_requested()) return;
      try {
        tick_();
      } catch (...) {
        // A heartbeat that stops after one failure is worse than one that misses a beat. The
        // function can catch its own exceptions.
      }
    }
  }

  const std::string name_;
  const std::chrono::milliseconds period_;
  const std::function<void()> tick_;
  std::jthread thread_;
};

class RealProcess final : public System {
 public:
  Clock& clock() override { return clock_; }
  Dialer& dialer() override { return dialer_; }
  uint32_t process_id() const override { return ProcessId(); }
  // Address and process id are not unique: in containers every launcher is process 1, and some
  // share an address. The first number is random, the next ones count up from it.
  int64_t NextNodeId() override { return nodes_++; }
  uint64_t Seed() override { return RandomFromKernel(); }

  std::unique_ptr<Monitor> MakeMonitor() override { return std::make_unique<StdMonitor>(); }
  std::unique_ptr<Timer> CallEvery(std::string name, std::chrono::milliseconds period,
                                   std::function<void()> tick) override {
    return std::make_unique<PeriodicCall>(std::move(name), period, std::move(tick));
  }
  std::unique_ptr<Thread> StartThread(std::function<void()> body) override {
    return std::make_unique<StdThread>(std::move(body));
  }
  std::unique_ptr<LoopThread> StartLoop() override { return ValueOrThrow(UvThread::Open()); }
  std::unique_ptr<ReservedPort> ReservePort() override { return std::make_unique<BoundPort>(); }

 private:
  PosixClock clock_;
  PosixDialer dialer_{clock_};
  std::atomic<int64_t> nodes_ = static_cast<int64_t>(RandomFromKernel() >> 24);
};

}  // namespace

System& ThisProcess() {
  static RealProcess process;
  return process;
}

}  // namespace muster
