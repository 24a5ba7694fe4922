// Timers that workers set on themselves, and what happens to those that do not come back in time.
//
// Workers of PyTorch (its file timer) write requests into a named pipe, a JSON object in each line:
//
//   {"version": 1, "pid": 4242, "scope_id": "forward", "expiration_time": 1767225600.5, "signal":
//   9}
//
// A timer belongs to a process and a scope; a new request for both replaces it, and one with a
// negative time releases it. Lines are at most PIPE_BUF bytes long, or the system would not keep
// them whole. What cannot be understood is left out: a broken worker cannot break the launcher.
//
// When a timer expires, its process gets the signal, and that is all: if it dies of it, a worker
// has failed as workers do, and is reported and started again as such. (torchrun sends the signal
// to itself as well, and with SIGKILL leaves all other workers behind.) Only descendants of this
// process are sent anything. It is a subreaper, so those that workers have let go of are among
// them; a number that was mistyped, or comes from another namespace of processes, is not.
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
  int signal = 0;                        ///< 0: nobody is to be sent anything.

  bool operator==(const TimerRequest&) const = default;
};

/// kProtocol: this is no request; says why.
Result<TimerRequest> ParseTimerRequest(std::string_view line);

/// Who has set which timers. Pure.
class TimerBook {
 public:
  /// More is a leak of somebody's; each costs memory, and is looked at whenever we are.
  static constexpr size_t kTimersMax = 4096;

  /// False: there are too many timers, and this one is not among them.
  bool Take(TimerRequest request);

  /// Of the timer that expires next.
  std::optional<WallTime> Due() const;

  /// One timer of each process that has one whose time has come: the earliest with a signal, or,
  /// if none has one, the earliest. All timers of these processes are forgotten.
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
  /// Makes the pipe at `path`, in place of a file that is there, and starts a thread. `say` is
  /// called on it. kUnavailable: says which path, and why.
  static Result<std::unique_ptr<Watchdog>> Open(std::string path, Clock& clock,
                                                std::function<void(const std::string&)> say);
  /// Removes the pipe.
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  const std::string& path() const { return path_; }

  /// Since it was last asked. Any thread.
  std::vector<TimerExpiry> TakeExpiries();

 private:
  Watchdog(std::string path, Clock& clock, std::function<void(const std::string&)> say,
           OwnedFd requests, OwnedFd open_end, OwnedFd stop);

  void Live();
  int MillisecondsToWait() const;
  void ReadRequests();
  void TakeLine(std::string_view line);
  void LookAtTimers();
  void Complain(const std::string& about);

  const std::string path_;
  Clock& clock_;
  const std::function<void(const std::string&)> say_;
  const OwnedFd requests_;
  const OwnedFd open_end_;  // Ours: a pipe that nobody writes to would be at its end all the time.
  const OwnedFd stop_;

  // The thread's own.
  TimerBook book_;
  std::string pending_;       // the beginning of a line
  bool is_skipping_ = false;  // the rest of a line that is too long
  bool has_complained_ = false;

  std::mutex mutex_;
  std::vector<TimerExpiry> expiries_;  // guarded by it

  std::thread thread_;
};

}  // namespace muster
