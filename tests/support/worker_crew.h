// Real workers for tests, and what other processes can know about them.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "launch/workers/worker_processes.h"
#include "os/posix/process_tree.h"
#include "support/eventually.h"
#include "support/temp_dir.h"

namespace muster::test {

inline std::vector<std::string> OwnEnvironment() {
  std::vector<std::string> entries;
  for (char** entry = environ; *entry != nullptr; ++entry) entries.emplace_back(*entry);
  return entries;
}

inline WorkerCommand Command(std::vector<std::string> arguments) {
  return {.arguments = std::move(arguments), .environment = OwnEnvironment()};
}

inline WorkerCommand Shell(const std::string& script) { return Command({"/bin/sh", "-c", script}); }

inline bool IsAlive(int64_t pid) {
  const std::optional<ProcessFacts> facts = FactsOf(static_cast<pid_t>(pid));
  return facts && !facts->IsDead();
}

inline bool IsGone(int64_t pid) { return !IsAlive(pid); }

/// The number in a file that is about to be written; 0 if it is not.
inline int64_t AwaitPid(const std::string& path) {
  EventuallyTrue([&] { return ReadFile(path).ends_with('\n'); });
  return std::strtoll(ReadFile(path).c_str(), nullptr, 10);
}

/// Dead or alive, except `known`.
inline std::vector<pid_t> ChildrenBut(pid_t known) {
  std::vector<pid_t> children;
  for (const ProcessFacts& process : AllProcesses()) {
    if (process.parent == getpid() && process.pid != known) children.push_back(process.pid);
  }
  return children;
}

inline size_t OpenDescriptors() {
  const std::filesystem::directory_iterator folder("/proc/self/fd");
  return static_cast<size_t>(std::distance(begin(folder), end(folder)));
}

/// Leaves a process behind in a session of its own, whose parent is gone, and which writes its pid
/// to `file`. `prefix` goes before its program, e.g. "env -i".
inline std::string Daemon(const std::string& file, const std::string& prefix = "") {
  return "(setsid " + prefix + " /bin/sh -c 'echo $$ > " + file +
         "; exec sleep 60' </dev/null >/dev/null 2>&1 &); while ! [ -s " + file +
         " ]; do sleep 0.01; done; ";
}

/// A runner, and the ends that it reports.
class WorkerCrew {
 public:
  explicit WorkerCrew(const WorkerProcessesOptions& options = {}) {
    const std::vector<pid_t> before = ChildrenBut(0);
    auto opened = WorkerProcesses::Open(
        [this](size_t worker, int64_t pid, int code) {
          const std::lock_guard lock(mutex_);
          ends_[pid] = {worker, code};
          changed_.notify_all();
        },
        options);
    runner_ = std::move(opened).value();
    for (const pid_t child : ChildrenBut(0)) {
      if (std::ranges::find(before, child) == before.end()) guardian_ = child;
    }
  }

  pid_t guardian() const { return guardian_; }

  WorkerProcesses* operator->() { return runner_.get(); }

  /// Starts it, and aborts if it does not start.
  int64_t Start(size_t worker, const WorkerCommand& command) {
    return runner_->Start(worker, command).value();
  }

  /// How it ended; nothing if it did not within the patience.
  std::optional<int> AwaitEnd(int64_t pid) {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, kPatience, [&] { return ends_.contains(pid); })) return {};
    return ends_[pid].second;
  }

  size_t WorkerOf(int64_t pid) {
    const std::lock_guard lock(mutex_);
    return ends_[pid].first;
  }

  bool HasEnded(int64_t pid) {
    const std::lock_guard lock(mutex_);
    return ends_.contains(pid);
  }

  /// Runs `command` to its end; its output.
  std::string OutputOf(WorkerCommand command) {
    const TempDir folder;
    command.output_path = folder.File("out");
    AwaitEnd(Start(0, command));
    return ReadFile(command.output_path);
  }

 private:
  pid_t guardian_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<int64_t, std::pair<size_t, int>> ends_;  // by pid: worker and code
  std::unique_ptr<WorkerProcesses> runner_;         // last: its thread uses the others
};

}  // namespace muster::test
