// A program that runs as long as its owner: it also ends with this process, in whatever way that
// ends.
//
// The kernel sends the parent-death signal when the thread that started the child ends, not when
// the process ends. So each child has its own thread, which starts it and waits for its end. Any
// thread, one at a time.
#pragma once

#include <sys/types.h>

#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/result.h"
#include "base/time.h"

namespace muster {

class KeptChild {
 public:
  /// Returns when the program runs. Its output goes to the file `output_path`, which is emptied.
  /// kNotFound, kInvalid: there is no such program, or it cannot be run. kUnavailable.
  static Result<std::unique_ptr<KeptChild>> Start(const std::vector<std::string>& command,
                                                  const std::string& output_path);

  /// Kills it.
  ~KeptChild();

  pid_t pid() const { return pid_; }
  /// How it ended, if it has: "exit status 1", "signal 9".
  std::optional<std::string> end() const;
  void Signal(int number);
  /// Waits for its end, and kills it if that takes longer than `grace`.
  void AwaitEnd(Duration grace);

 private:
  KeptChild() = default;
  void Run(const std::vector<std::string>& command, const std::string& output_path);

  pid_t pid_ = 0;
  mutable std::mutex mutex_;
  std::optional<int> status_;  // guarded by mutex_; as waitpid() returns it
  std::promise<Status> started_;
  std::promise<void> ended_;
  std::future<void> is_ended_ = ended_.get_future();
  std::thread thread_;
};

}  // namespace muster
