// A small process that outlives its launcher for one purpose: when the launcher dies without a
// shutdown message, even by kill -9, nothing that its workers have started stays alive.
//
// Workers themselves die with the launcher (parent-death signal). The guardian ends the processes
// that they leave: all processes in their cgroup, with their mark, or in a session that one of them
// led, and the descendants of these. A process without any of these whose parent has ended is found
// only through a cgroup.
//
// The guardian keeps no descriptor of the launcher open except its end of a socket. If it is
// killed, the parent-death signal remains. One thread at a time.
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

  /// Sends the shutdown message and waits for the guardian to end, which it does immediately.
  ~Guardian();
  Guardian(Guardian&&) = delete;

  /// 0 once it has been reaped.
  pid_t pid() const { return pid_; }
  /// Whether it had been killed, and has now been reaped.
  bool ReapIfEnded();

  /// Adds the session `leader`, a worker that has just been started. Never blocks.
  void Watch(pid_t leader);
  /// Removes it: the session is empty, and its number may be reused. Never blocks.
  void Forget(pid_t leader);

 private:
  Guardian(pid_t pid, OwnedFd socket) : pid_(pid), socket_(std::move(socket)) {}
  void Send(int32_t kind, pid_t leader, uint64_t started);

  pid_t pid_;
  OwnedFd socket_;
};

}  // namespace muster
