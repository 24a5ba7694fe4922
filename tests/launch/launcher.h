// A launcher in this process: the parts that `muster run` connects (src/cli/run.cc), with all of
// their threads, real workers, real signals and a real rendezvous.
#pragma once

#include <signal.h>

#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "base/time.h"
#include "cli/progress.h"
#include "launch/job_host.h"
#include "support/temp_dir.h"

namespace muster::test {

/// Make it before there are threads. SIGTERM and SIGINT that are sent to this process wait for its
/// launcher. Signals that come too late for it are dropped with this object.
class SignalsHeld {
 public:
  SignalsHeld();
  ~SignalsHeld();
  SignalsHeld(const SignalsHeld&) = delete;

  static std::vector<int> Numbers() { return {SIGTERM, SIGINT}; }

 private:
  sigset_t before_{};
};

struct LauncherOptions {
  std::string script{};  ///< The script that /bin/sh runs in each worker. The test's folder is in
                         ///< $SEEN.
  std::string name = "launcher";  ///< Of its logs.
  std::string endpoint{};         ///< Where the nodes meet.
  int nodes_min = 1;
  int nodes_max = 1;
  size_t workers = 2;
  int64_t max_restarts = 0;
  Duration grace = 10s;        ///< Between SIGTERM and SIGKILL.
  Duration contact_max = 10s;  ///< How long a rendezvous may be out of reach.
  bool has_watchdog = false;
  int join_seconds = 60;
};

class Launcher {
 public:
  Launcher(LauncherOptions options, const TempDir& folder)
      : options_(std::move(options)), folder_(folder) {}

  /// Call it on the main thread; returns the exit status. `meanwhile` runs on a thread of its own
  /// from the beginning, and must end by itself.
  int Run(const std::function<void()>& meanwhile = {});

  // Afterwards.
  const std::vector<FailureRecord>& failures() const { return failures_; }
  int64_t restarts() const { return restarts_; }
  std::string said() const;
  /// The followed lines of all workers' streams, of an attempt.
  std::string Filtered(int attempt, const char* stream) const;

 private:
  JobOptions Job(const RendezvousHandler& handler, cli::WaitLine& wait_line);
  void Say(const std::string& line);

  const LauncherOptions options_;
  const TempDir& folder_;
  std::vector<FailureRecord> failures_;
  int64_t restarts_ = 0;
  std::string logs_;
  mutable std::mutex mutex_;
  std::string said_;  // guarded by it
};

}  // namespace muster::test
