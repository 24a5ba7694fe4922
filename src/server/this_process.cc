// The environment of handlers in a real process: clock, threads, sockets, a port to serve at.
#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

#include "base/interruption.h"
#include "base/text.h"
#include "muster/store_server.h"
#include "os/ports/system.h"
#include "os/posix/entropy.h"
#include "os/posix/host.h"
#include "os/posix/posix_clock.h"
#include "os/posix/posix_dialer.h"
#include "os/posix/process.h"
#include "os/uv/uv_connector.h"
#include "os/uv/uv_loop.h"
#include "store/periodic_timer.h"
#include "store/socket_with_port.h"
#include "store/throw.h"

namespace muster {

namespace {

class StdMonitor final : public Monitor {
 public:
  explicit StdMonitor(const Clock& clock) : clock_(clock) {}

  void lock() override { mutex_.lock(); }
  void unlock() override { mutex_.unlock(); }
  void WaitUntil(Instant until) override {
    std::unique_lock lock(mutex_, std::adopt_lock);
    if (CanBeInterrupted()) {
      const Instant now = clock_.Now();
      if (IsCheckDue(now)) {
        lock.unlock();
        CheckInterruption(now);
        lock.lock();
        until = now;  // the condition may have become true meanwhile
      }
      until = UntilNextCheck(until);
    }
    if (until == Instant::Never()) {
      news_.wait(lock);
    } else if (const Duration left = until - clock_.Now(); left > 0s) {
      news_.wait_for(lock, left);
    }
    lock.release();  // the caller's again
  }
  void NotifyAll() override { news_.notify_all(); }

 private:
  const Clock& clock_;
  std::mutex mutex_;
  std::condition_variable news_;
};

class UvLoopThread final : public LoopThread {
 public:
  UvLoopThread() : thread_(ValueOrThrow(UvThread::Open())) {
    thread_->RunAndWait([this] { connector_ = std::make_unique<UvConnector>(thread_->loop()); });
  }
  ~UvLoopThread() override {
    thread_->RunAndWait([this] { connector_.reset(); });
  }

  Loop& loop() override { return thread_->loop(); }
  Connector& connector() override { return *connector_; }
  void RunAndWait(const std::function<void()>& work) override { thread_->RunAndWait(work); }

 private:
  std::unique_ptr<UvThread> thread_;
  std::unique_ptr<UvConnector> connector_;  // on the loop's thread only
};

class BoundPort final : public ReservedPort {
 public:
  /// The cores of a node are for its workers. On one with hundreds of cores, as many threads would
  /// take longer to start than a round takes to form.
  static constexpr unsigned kLoopsMax = 4;
  /// So are its descriptors: rank 0 keeps one in reserve.
  static constexpr uint64_t kReserve = 1;

  uint16_t port() const override { return socket_.port(); }
  // The socket stays open: a client that connects between two servers waits for the second.
  void Serve() override {
    if (socket_.fd() < 0) return;
    server_.reset();
    server_ = std::make_unique<StoreServer>(
        StoreServerOptions{.listen_fd = ValueOrThrow(DuplicateDescriptor(socket_.fd())),
                           .threads = static_cast<int>(std::min(
                               kLoopsMax, std::max(1u, std::thread::hardware_concurrency()))),
                           .descriptor_reserve = kReserve});
  }
  void Free() override {
    server_.reset();
    if (socket_.fd() >= 0) CloseSocket(socket_.Release());
  }

 private:
  SocketWithPort socket_;
  std::unique_ptr<StoreServer> server_;
};

class StdThread final : public Thread {
 public:
  explicit StdThread(std::function<void()> body) : thread_(std::move(body)) {}
  ~StdThread() override { thread_.join(); }

 private:
  std::thread thread_;
};

class PeriodicCall final : public Timer {
 public:
  PeriodicCall(std::string name, std::chrono::milliseconds period, std::function<void()> tick)
      : timer_(period, std::move(tick)) {
    timer_.SetName(std::move(name));
    timer_.Start();
  }

 private:
  PeriodicTimer timer_;
};

class RealProcess final : public System {
 public:
  Clock& clock() override { return clock_; }
  Dialer& dialer() override { return dialer_; }
  uint32_t process_id() const override { return ProcessId(); }
  // Address and process id are not unique: launchers in containers are all process 1, and some
  // share an address. The first number is random, the next ones count up.
  int64_t NextNodeId() override { return nodes_++; }
  uint64_t Seed() override {
    return static_cast<uint64_t>(clock_.Wall()) ^ (uint64_t{ProcessId()} << 40) ^
           static_cast<uint64_t>(clock_.Now().since_start.count());
  }

  std::unique_ptr<Monitor> MakeMonitor() override { return std::make_unique<StdMonitor>(clock_); }
  std::unique_ptr<Timer> CallEvery(std::string name, std::chrono::milliseconds period,
                                   std::function<void()> tick) override {
    return std::make_unique<PeriodicCall>(std::move(name), period, std::move(tick));
  }
  std::unique_ptr<Thread> StartThread(std::function<void()> body) override {
    return std::make_unique<StdThread>(std::move(body));
  }
  std::unique_ptr<LoopThread> StartLoop() override { return std::make_unique<UvLoopThread>(); }
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
