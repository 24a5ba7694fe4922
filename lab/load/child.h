// A server that a benchmark starts for itself: a child process that says in its first line where it
// listens, ends on SIGTERM, and dies with us if we die first.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/time.h"
#include "load/descriptor.h"

namespace muster::load {

class Child {
 public:
  /// Starts `command` (its first word is the program's path) and waits for its first line. Call it
  /// before starting threads, on the thread that will live longest. kUnavailable: it ended, or said
  /// nothing within `patience`.
  static Result<std::unique_ptr<Child>> Start(const std::vector<std::string>& command,
                                              Duration patience);

  /// Asks it to end (SIGTERM), and makes it end (SIGKILL) if it has not within seconds. Reaps it.
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  pid_t pid() const { return pid_; }
  const std::string& first_line() const { return first_line_; }

 private:
  Child(pid_t pid, Descriptor output) : pid_(pid), output_(std::move(output)) {}
  Status ReadFirstLine(Duration patience);

  const pid_t pid_;
  Descriptor output_;
  std::string first_line_;
};

}  // namespace muster::load
