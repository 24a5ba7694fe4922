// libuv's event loop behind the Loop port, and what belongs to it.
#pragma once

#include <uv.h>

#include <atomic>
#include <mutex>
#include <thread>
#include <vector>

#include "os/ports/system.h"
#include "os/uv/uv_outbox.h"

namespace muster {

class UvLoop final : public Loop {
 public:
  /// kUnavailable: out of descriptors, or of memory.
  static Result<std::unique_ptr<UvLoop>> Open();
  /// The loop must not be running. Closes everything that is still open on it.
  ~UvLoop() override;

  /// Runs on the calling thread, which becomes the loop's, until Stop().
  void Run();
  /// Ends Run() after the work posted so far. Any thread.
  void Stop();

  Instant Now() const override;
  bool IsCurrent() const override { return std::this_thread::get_id() == thread_.load(); }
  void Post(std::function<void()> work) override;
  std::unique_ptr<Timer> Every(Duration period, std::function<void()> tick) override;
  std::unique_ptr<Timer> After(Duration delay, std::function<void()> work) override;
  std::unique_ptr<Timer> At(Instant when, std::function<void()> ring) override;

  /// Now() includes each suspension that ended before this call. Loop thread only.
  void CountSuspension() const;

  uv_loop_t* raw() { return &loop_; }

  /// The outbox of this loop's streams. Flushed before the loop waits for events.
  UvOutbox& outbox() { return outbox_; }

  /// The buffer for the reads of all streams of this loop: one read is consumed before the next one
  /// starts.
  uv_buf_t read_buffer() {
    return uv_buf_init(read_buffer_.data(), static_cast<unsigned>(read_buffer_.size()));
  }

 private:
  UvLoop();
  std::vector<std::function<void()>> TakePosted();

  bool open_ = false;
  uv_loop_t loop_;
  uv_async_t wake_;
  uv_prepare_t before_wait_;
  UvOutbox outbox_;
  std::vector<char> read_buffer_;
  // Changed by Now(), which only the loop's thread calls.
  mutable std::chrono::milliseconds suspended_seen_at_ = std::chrono::milliseconds::min() / 2;
  mutable Duration suspended_{};  // CLOCK_BOOTTIME less CLOCK_MONOTONIC, which is libuv's
  std::atomic<std::thread::id> thread_;
  std::mutex mutex_;
  std::vector<std::function<void()>> posted_;  // guarded by mutex_
};

/// Closes `owner->*handle`, and deletes its owner when libuv no longer uses the handle.
template <typename Owner, typename Handle>
void CloseAndDelete(Owner* owner, Handle Owner::*handle) {
  (owner->*handle).data = owner;
  uv_close(reinterpret_cast<uv_handle_t*>(&(owner->*handle)),
           [](uv_handle_t* closed) { delete static_cast<Owner*>(closed->data); });
}

/// Outgoing TCP connections on a loop, behind the Connector port.
class UvConnector final : public Connector {
 public:
  explicit UvConnector(UvLoop& loop) : loop_(loop) {}

  std::unique_ptr<Attempt> Connect(const Endpoint& to, const ConnectOptions& options,
                                   std::function<void(Result<StreamPtr>)> done) override;

 private:
  UvLoop& loop_;
};

/// A UvLoop on its own thread. The destructor stops and joins it.
class UvThread final : public LoopThread {
 public:
  /// kUnavailable: out of descriptors, memory or threads.
  static Result<std::unique_ptr<UvThread>> Open();
  ~UvThread() override;

  UvLoop& loop() override { return *loop_; }
  UvConnector& connector() override { return connector_; }
  void RunAndWait(const std::function<void()>& work) override;

 private:
  explicit UvThread(std::unique_ptr<UvLoop> loop);

  const std::unique_ptr<UvLoop> loop_;
  UvConnector connector_{*loop_};
  std::thread thread_;
};

}  // namespace muster
