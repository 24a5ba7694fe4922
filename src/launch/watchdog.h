// Timers that workers set for themselves, and what happens when they expire.
//
// Workers of PyTorch (its file timer) write requests into a named pipe, a JSON object in each line:
//
//   {"version": 1, "pid": 4242, "scope_id": "forward", "expiration_time": 1767225600.5, "signal":
//   9}
//
// A timer belongs to a process and a scope. A new request for both replaces it; one with a negative
// time releases it. Lines are at most PIPE_BUF bytes long, so that the kernel does not mix them.
// Requests that cannot be parsed are ignored: a broken worker cannot break the launcher.
//
// When a timer expires, its process gets the signal, and nothing else happens: if the process dies,
// the worker has failed and is handled like any failed worker. (torchrun sends the signal also to
// itself, and with SIGKILL leaves all other workers running.) Only descendants of this process get
// a signal. It is a subreaper, so abandoned processes are descendants, too; a pid that is wrong, or
// of another pid namespace, is not.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/time.h"
#include "os/ports/clock.h"
#include "os/posix/owned_fd.h"

namespace muster {

struct TimerRequest {
  int64_t pid = 0;
  std::string scope{};
  std::optional<WallTime> expires_at{};  ///< None: the timer is released.
  int signal = 0;                        ///< 0: none is sent.

  bool operator==(const TimerRequest&) const = default;
};

/// kProtocol, with the reason.
Result<TimerRequest> ParseTimerRequest(std::string_view line);

/// The timers that are currently set. Pure.
class TimerBook {
 public:
  /// More is a leak in a worker. Each costs memory and time.
  static constexpr size_t kTimersMax = 4096;

  /// False: there are too many timers, and this one is not among them.
  bool Take(TimerRequest request);

  /// Of the timer that expires next.
  std::optional<WallTime> Due() const;

  /// For each process with an expired timer, one timer: the earliest with a signal, or the earliest
  /// if none has one. All timers of these processes are forgotten.
  std::vector<TimerRequest> TakeExpired(WallTime now);

  size_t size() const { return timers_.size(); }

 private:
  std::map<std::pair<int64_t, std::string>, TimerRequest> timers_;  // by process and scope
};

struct TimerExpiry {
  TimerRequest timer{};
  bool was_sent = false;  ///< The signal.
};

class Watchdog {
 public:
  /// Creates the pipe at `path`, replacing an existing file, and starts a thread. `log` is called
  /// on it. kUnavailable, with the path and the reason.
  static Result<std::unique_ptr<Watchdog>> Open(std::string path, Clock& clock,
                                                std::function<void(const std::string&)> log);
  /// Removes the pipe.
  ~Watchdog();
  Watchdog(Watchdog&&) = delete;

  const std::string& path() const { return path_; }

  /// Those since the last call. Any thread.
  std::vector<TimerExpiry> TakeExpiries();

 private:
  Watchdog(std::string path, Clock& clock, std::function<void(const std::string&)> log);

  void Run();
  int MillisecondsToWait() const;
  void ReadRequests();
  void TakeLine(std::string_view line);
  void ExpireTimers();
  void WarnOnce(const std::string& about);

  const std::string path_;
  Clock& clock_;
  const std::function<void(const std::string&)> log_;
  const OwnedFd requests_;
  // Held open here: without any writer the pipe would always be at its end.
  const OwnedFd open_end_;
  const OwnedFd stop_;

  // Used by the thread only.
  TimerBook book_;
  std::string pending_;       // the beginning of a line
  bool is_skipping_ = false;  // the rest of a line that is too long
  bool has_warned_ = false;

  std::mutex mutex_;
  std::vector<TimerExpiry> expiries_;  // guarded by it

  std::thread thread_;
};

}  // namespace muster
