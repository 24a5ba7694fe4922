// What the program does with its own process: signals, descriptor limits, files that others wait
// for.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "os/posix/owned_fd.h"

namespace muster::cli {

/// From its construction on, SIGINT and SIGTERM wait to be asked for, in all threads started later.
/// Make it first.
class StopSignals {
 public:
  StopSignals();
  /// Blocks until one of them comes; returns its number.
  int Await() const;
  /// The same, but not for longer than this.
  std::optional<int> AwaitFor(std::chrono::milliseconds time) const;
};

/// Where 0, 1 or 2 is closed, /dev/null is opened instead: what is opened next must not be taken
/// for one of them.
void OpenStandardDescriptors();

// What the program reports on stderr contains names and words of peers and workers: whatever a
// terminal would take for a command is escaped here, for all of it.

/// To stderr, in order, by a thread of its own: never blocks. What a reader who does not read has
/// no room for is dropped and counted.
void TellStderr(std::string_view text);

/// Waits for what TellStderr() was given, as long as somebody reads. Before the process ends
/// without exit().
void FlushStderr();

/// To stderr, after all that came before, and waits for the reader: for the last words of a
/// command.
void ReportStderr(std::string_view text);

/// They wait, in all threads started later, for somebody who heeds them.
void BlockSignals(const std::vector<int>& signals);

/// These signals wait for us in all threads started later, and `heed` is called for each that
/// comes, on a thread of its own. Make it first.
class SignalWatch {
 public:
  /// std::runtime_error: no descriptors to be had.
  SignalWatch(const std::vector<int>& signals, std::function<void(int signal)> heed);
  ~SignalWatch();
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;

 private:
  void Watch();

  const std::function<void(int)> heed_;
  int signals_ = -1;  // a signalfd
  int end_ = -1;      // an eventfd
  std::thread thread_;
};

/// Raises the soft limit of open files to the hard one: thousands of nodes are thousands of
/// descriptors.
void RaiseDescriptorLimit();

/// A file with a port number in it, for whoever started us. It appears whole or not at all, and
/// goes with this object.
class PortFile {
 public:
  /// Does nothing with an empty path. std::runtime_error if it cannot be written, or a symbolic
  /// link lies there.
  PortFile(std::string path, uint16_t port);
  ~PortFile();
  PortFile(const PortFile&) = delete;
  PortFile& operator=(const PortFile&) = delete;

 private:
  const std::string path_;
  OwnedFd file_;  // open, so that no other file gets its number
};

/// One line to stderr, with the time in front; a peer's words in it cannot forge another. As
/// TellStderr().
void LogToStderr(bool warning, std::string_view line);

}  // namespace muster::cli
