// Finds processes that belong together in /proc, and ends them.
//
// Stateless; any thread. A process is identified by its pid and its start time, and signals are
// sent through a pidfd, so that a reused pid is noticed.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/time.h"
#include "os/posix/owned_fd.h"

namespace muster {

struct ProcessFacts {
  pid_t pid = 0;
  pid_t parent = 0;
  pid_t group = 0;
  pid_t session = 0;
  char state = '?';      ///< As in ps: R, S, D, Z.
  int64_t threads = 0;   ///< Threads that are alive.
  uint64_t started = 0;  ///< In ticks since the machine was started.

  /// ps shows a process whose first thread has ended as a zombie, although other threads run.
  bool IsDead() const { return (state == 'Z' || state == 'X') && threads <= 1; }
};

/// Nothing: there is no such process (any more).
std::optional<ProcessFacts> FactsOf(pid_t pid);

/// The processes that this process may see, in no order. Empty if there is no /proc.
std::vector<ProcessFacts> AllProcesses();

/// A descriptor of the process (pidfd): readable when it has ended. Not open: errno contains the
/// reason.
OwnedFd OpenProcess(pid_t pid);

/// Sends nothing if `process` has ended, even if its pid is in use again.
void SignalProcess(const ProcessFacts& process, int signal);

/// The variable whose value marks processes. Marks are separated by commas, because a launcher that
/// runs as a worker adds its own mark to that of the outer launcher.
inline constexpr std::string_view kMarkVariable = "MUSTER_AGENT";

/// `environment` is "NAME=value" entries with zero bytes between them. A mark that ends in a dot
/// matches all marks that begin with it.
bool CarriesMark(std::string_view environment, const std::vector<std::string>& marks);

/// The leader of a session. Its pid alone may be in use again.
struct Leader {
  Leader(pid_t leader, uint64_t when = 0) : pid(leader), started(when) {}  // NOLINT: a pid will do
  pid_t pid;
  /// As ProcessFacts::started. 0: not known; for a child that has not been reaped, whose pid cannot
  /// be reused.
  uint64_t started;
};

/// A set of processes: those that match one of these criteria, and all their descendants. Never
/// this process itself.
struct ProcessFamily {
  std::vector<Leader> leaders{};     ///< These, and the members of a session or group they led.
  std::vector<std::string> marks{};  ///< Processes started with one of them in the environment.
  bool orphans = false;  ///< Children of this process in other sessions: another process started
                         ///< them and has ended.
  std::vector<pid_t> spared{};  ///< Not these, nor descendants that are found only through them.
};

/// The members that are alive. The mark of a process cannot be read if it runs under another user,
/// or has overwritten its environment. The environment of a process in uninterruptible sleep is not
/// read, because the read might not return.
std::vector<ProcessFacts> FindFamily(const ProcessFamily& family);

/// Kills the members until none is found or `limit` has passed; returns whether none is left. All
/// are stopped before the first is killed: a process that keeps forking cannot escape, and no child
/// is lost because its parent ended first. For a leader that /proc does not show (hidepid, or no
/// /proc at all), the process group is killed.
bool EndFamily(const ProcessFamily& family, Duration limit);

}  // namespace muster
