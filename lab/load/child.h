// A server that a benchmark starts: a child process that prints its address in its first line, ends
// on SIGTERM, and dies with this process.
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
  /// before starting threads, on the thread that lives longest. kUnavailable: it ended, or printed
  /// nothing within `patience`.
  static Result<std::unique_ptr<Child>> Start(const std::vector<std::string>& command,
                                              Duration patience);

  /// Sends SIGTERM, and SIGKILL if it has not ended within seconds. Reaps it.
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
