// A small process that outlives its launcher for one purpose: when that has died without a word,
// even by kill -9, nothing that its workers have started stays.
//
// Workers themselves die with the launcher (their parent-death signal). The guardian ends what they
// leave behind: everyone in their cgroup, who carries their mark, or is in a session that one of
// them led, and all descendants of these. What has shed all of that, and has lost its parent too,
// is found only where there is a cgroup.
//
// It holds nothing of the launcher's open but its own end of a socket. Nobody needs it to live: if
// it is killed, the parent-death signal is what remains. One thread at a time.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "base/result.h"
#include "os/posix/cgroup.h"
#include "os/posix/owned_fd.h"

namespace muster {

class Guardian {
 public:
  /// Forks it; call this before there are other threads. `mark` is that of all workers, with a dot
  /// at its end; `cgroup`, if any, theirs. kUnavailable.
  static Result<std::unique_ptr<Guardian>> Start(const std::string& mark, const Cgroup* cgroup);

  /// Bids it farewell and waits for its end, which is at once.
  ~Guardian();
  Guardian(const Guardian&) = delete;
  Guardian& operator=(const Guardian&) = delete;

  /// 0 once it has been reaped.
  pid_t pid() const { return pid_; }
  /// Somebody may have killed it. Returns whether that was so.
  bool ReapIfEnded();

  /// A worker, a child of ours that has just been started, leads the session `leader`. Never
  /// blocks.
  void Watch(pid_t leader);
  /// Nobody is left in that session: its number may get a new owner. Never blocks.
  void Forget(pid_t leader);

 private:
  Guardian(pid_t pid, OwnedFd line) : pid_(pid), line_(std::move(line)) {}
  void Say(int32_t kind, pid_t leader, uint64_t started);

  pid_t pid_;
  OwnedFd line_;
};

}  // namespace muster
