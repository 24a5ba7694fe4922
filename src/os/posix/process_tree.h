// Processes that belong together, found in /proc and ended together.
//
// Nothing here has state; any thread. A process is named by its pid and the time of its start, and
// signals go through a descriptor of it: a pid that has got a new owner is noticed.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/time.h"

namespace muster {

struct ProcessFacts {
  pid_t pid = 0;
  pid_t parent = 0;
  pid_t group = 0;
  pid_t session = 0;
  char state = '?';      ///< As in ps: R, S, D, Z.
  int64_t threads = 0;   ///< That are alive.
  uint64_t started = 0;  ///< In ticks since the machine was started.

  /// A process whose first thread has ended is a zombie to ps; while others run, it lives.
  bool IsDead() const { return (state == 'Z' || state == 'X') && threads <= 1; }
};

/// Nothing: there is no such process (any more).
std::optional<ProcessFacts> FactsOf(pid_t pid);

/// Those that this process may see, in no order. Empty where there is no /proc.
std::vector<ProcessFacts> AllProcesses();

/// Sends nothing if `process` has ended, even if its pid has a new owner.
void SignalProcess(const ProcessFacts& process, int signal);

/// The variable whose value marks processes: marks with commas between them, as a launcher that a
/// worker starts adds its own to ours.
inline constexpr std::string_view kMarkVariable = "MUSTER_AGENT";

/// `environment` is "NAME=value" entries with zero bytes between them. A mark that ends in a dot
/// stands for all that begin with it.
bool CarriesMark(std::string_view environment, const std::vector<std::string>& marks);

/// Who led a session: its number alone may have a new owner by now.
struct Leader {
  Leader(pid_t leader, uint64_t when = 0) : pid(leader), started(when) {}  // NOLINT: a pid will do
  pid_t pid;
  /// As ProcessFacts::started. 0: not known; for a child that nobody has waited for yet, whose
  /// number is its own.
  uint64_t started;
};

/// Who is looked for: those to whom one of these applies, and all their descendants; never this
/// process itself.
struct Kinship {
  std::vector<Leader> leaders{};     ///< These, and who is in a session or group that they led.
  std::vector<std::string> marks{};  ///< Who was started with one of them in its environment.
  bool adopted = false;  ///< Children of this process that are in other sessions: somebody else
                         ///< started them, and left them to us.
  std::vector<pid_t> spared{};  ///< Not these, nor, through them, their descendants.
};

/// Who is alive of them now. A process may hide its mark (it runs under another user, or has
/// written over its environment); that of one in uninterruptible sleep is not asked for, because
/// asking might not return.
std::vector<ProcessFacts> FindKin(const Kinship& kin);

/// Kills them until none is found, or `limit` has passed; returns whether none is left. They are
/// stopped before the first one is killed: those that keep starting others cannot run away, and no
/// trace is lost with a parent that dies first. Of a leader that /proc does not show (hidepid, or
/// no /proc at all), the process group is killed.
bool EndKin(const Kinship& kin, Duration limit);

}  // namespace muster
