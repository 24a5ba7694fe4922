// Workers as real processes.
//
// Each worker leads its own session and process group and is a child of this process. Three
// mechanisms control the processes that workers start, including abandoned ones: - a cgroup of
// version 2, where this process may make one: no member can leave it; - this process is a child
// subreaper, so that it becomes the parent of orphans; and every worker has a mark in its
// environment, which descendants inherit (process_tree.h); - workers die with this process
// (parent-death signal), and a guardian, a process of its own, ends what they leave then
// (guardian.h). Not controlled are a process with the rights of another user; and, if there is no
// cgroup and this process is killed, a process that has left its session, its environment and its
// parents. A program with the rights of its file's owner (setuid) loses the parent-death signal;
// the guardian still finds its session.
//
// A separate thread detects the ends of workers through descriptors of the processes, and reports
// them in the order in which they happened. Only uninterruptible sleep is polled, on request.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/result.h"
#include "base/time.h"
#include "launch/workers/guardian.h"
#include "os/ports/worker_runner.h"
#include "os/posix/cgroup.h"
#include "os/posix/owned_fd.h"
#include "os/posix/process_tree.h"

namespace muster {

struct WorkerProcessesOptions {
  bool use_cgroup = true;  ///< Where that is allowed.
  /// Called on the thread of `on_end`, repeatedly, while a worker has been in uninterruptible sleep
  /// at every look for `stuck_after`. 0: nothing looks.
  std::function<void(size_t worker, int64_t pid)> on_stuck{};
  Duration stuck_after{};
};

class WorkerProcesses final : public WorkerRunner {
 public:
  /// For killed processes to end; survivors are left behind.
  static constexpr Duration kSweepMax = 5s;

  /// Call it on the main thread before there are others: they inherit that SIGCHLD is blocked, and
  /// the guardian is forked here. At most one at a time. It reaps children of this process that are
  /// in other sessions; children in this session are left to the code that started them.
  ///
  /// `on_end` is called on a thread of its own, perhaps before Start() returns, and never after the
  /// destructor has begun. It must not wait for the thread of the destructor.
  ///
  /// kUnavailable: out of processes or descriptors, or the kernel is older than Linux 5.3.
  static Result<std::unique_ptr<WorkerProcesses>> Open(OnEnd on_end,
                                                       const WorkerProcessesOptions& options = {});

  /// Kills all workers and what they have started, and waits for that, but not for longer than
  /// kSweepMax. On the thread that called Open().
  ~WorkerProcesses() override;
  WorkerProcesses(WorkerProcesses&&) = delete;

  /// On a thread that lives as long as the worker, such as the main one: the kernel kills the
  /// worker when the thread that started it ends. Returns when the program runs. A predecessor that
  /// is still alive after SIGKILL is left behind; any other must have ended.
  Result<int64_t> Start(size_t worker, const WorkerCommand& command) override;
  /// Does nothing for workers that have ended. Does not wait. Any thread.
  void Signal(size_t worker, int signal) override;
  /// Workers that have been sent SIGKILL count as ended. Orphans without a mark are ended when no
  /// worker is left that could own them. Blocks for at most kSweepMax, and so does a Start() during
  /// it. Any thread.
  void Sweep() override;
  /// Any thread.
  std::vector<std::string> Leftovers(int signal) override;

 private:
  struct Worker {
    size_t number = 0;
    pid_t pid = 0;
    std::string mark{};
    OwnedFd handle{};
    bool was_killed = false;       // SIGKILL was requested
    bool is_to_be_killed = false;  // and not yet done
    std::optional<std::chrono::steady_clock::time_point> stuck_since{};
  };

  /// Of a worker that has ended.
  struct Remains {
    pid_t zombie = 0;  // Not reaped while its session has members, so that its pid, which is the
                       // number of the session, is not reused. 0: reaped.
    std::string mark{};
    bool is_fresh = true;  // it is not known yet whether its session is empty
  };

  struct End {
    size_t number;
    pid_t pid;
    int code;
  };

  WorkerProcesses(OnEnd on_end, const WorkerProcessesOptions& options);
  Status Prepare();

  void Watch();
  std::vector<End> TakeEnds(const std::vector<pid_t>& ready);
  void KillRequested();
  void ReportStuck();
  void Wake();

  // With mutex_ held:
  void ReapOrphans();
  bool IsOrphan(const ProcessFacts& child) const;
  void ReleaseEmptySessions();
  void Release(Remains& remains);

  void EndEverything();
  ProcessFamily Everything() const;
  void RestoreProcess();

  const OnEnd on_end_;
  const WorkerProcessesOptions options_;
  const std::string token_;
  const pid_t session_;
  struct sigaction child_action_before_ {};
  sigset_t mask_before_{};
  int was_subreaper_ = 0;
  bool is_prepared_ = false;
  std::unique_ptr<Cgroup> cgroup_;
  std::unique_ptr<Guardian> guardian_;
  OwnedFd wake_;
  OwnedFd child_signals_;
  OwnedFd events_;  // epoll: both of them, and the workers

  std::mutex turn_;   // Start() and Sweep() exclude each other: a sweep must know what to spare
  std::mutex mutex_;  // guards what follows, the guardian, and all reaping
  bool cgroup_works_ = true;  // until the system refuses to start a worker there
  bool stopping_ = false;
  uint64_t starts_ = 0;
  pid_t starting_ = 0;  // forked, not yet a worker
  std::vector<Worker> workers_;
  std::chrono::steady_clock::time_point looked_at_{};  ///< For uninterruptible sleep.
  std::vector<Remains> remains_;

  std::thread thread_;
};

}  // namespace muster
