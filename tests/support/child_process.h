// Other processes that a test needs. None outlives its object, nor the test if that is killed.
#pragma once

#include <sys/types.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "support/eventually.h"

namespace muster::test {

class ChildProcess {
 public:
  /// Runs a program with pipes to its input and from its output; there may be other threads. Throws
  /// if no process can be created. A missing program ends with 127.
  static ChildProcess Run(const std::vector<std::string>& command);

  /// Runs `body` in a fork of this process, which must have no other threads; its result is the
  /// exit status. The descriptors are the child's ends of the pipes.
  static ChildProcess Fork(const std::function<int(int input, int output)>& body);

  ChildProcess(ChildProcess&& other) noexcept;
  ChildProcess& operator=(ChildProcess&&) = delete;
  /// Kills it if it still runs.
  ~ChildProcess();

  pid_t pid() const { return pid_; }

  /// The next line of its output, without its end; nothing at the end of the output or of the
  /// patience.
  std::optional<std::string> ReadLine(milliseconds patience = kPatience);

  /// Closes its input, which is the request to finish.
  void CloseInput();

  /// Its exit status (negative: the signal that killed it). Waits for the end, and kills it when
  /// the patience ends.
  int Wait(milliseconds patience = kPatience);

  /// Memory that it has in RAM.
  size_t ResidentBytes() const;

 private:
  ChildProcess(pid_t pid, int to_child, int from_child)
      : pid_(pid), to_child_(to_child), from_child_(from_child) {}

  pid_t pid_;
  int to_child_;
  int from_child_;
  std::string unread_;
};

}  // namespace muster::test
