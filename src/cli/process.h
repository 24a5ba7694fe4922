// What the program does with its own process: signals, stderr, descriptor limits, port files.
#pragma once

#include <atomic>
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

/// Blocks SIGINT and SIGTERM, in all threads started later, until they are received here. Create it
/// first.
class StopSignals {
 public:
  StopSignals();
  /// Blocks until one of them arrives, but not for longer than this. Returns its number.
  std::optional<int> AwaitFor(std::chrono::milliseconds time) const;
};

/// Opens /dev/null where 0, 1 or 2 is closed, so that no file gets the number of a standard stream.
void OpenStandardDescriptors();

// Messages on stderr contain texts of peers and workers: bytes that a terminal would interpret are
// escaped here.

/// "muster: LINE" to stderr, in order, by a separate thread: never blocks. Lines without room,
/// because the reader is too slow, are dropped and counted.
void PrintNotice(std::string_view line);

/// Waits until the messages of PrintNotice() are written, unless their reader stops reading. For a
/// process that ends without exit().
void FlushStderr();

/// To stderr, after all earlier messages, and waits for the reader: for the last message of a
/// command.
void ReportStderr(std::string_view text);

/// Blocks these signals in all threads started later, for a SignalWatch.
void BlockSignals(const std::vector<int>& signals);

/// Blocks these signals in all threads started later, and calls `on_signal` for each that arrives,
/// on a separate thread. Create it first.
class SignalWatch {
 public:
  /// std::runtime_error: no thread is available.
  SignalWatch(const std::vector<int>& signals, std::function<void(int signal)> on_signal);
  ~SignalWatch();
  SignalWatch(SignalWatch&&) = delete;

 private:
  const std::vector<int> signals_;
  std::atomic<bool> is_ending_ = false;
  std::thread thread_;  // none without signals
};

/// Raises the soft limit of open files to the hard one: thousands of nodes are thousands of
/// descriptors.
void RaiseDescriptorLimit();

/// A file with a port number, for the parent of this process. It is written atomically, and removed
/// with this object.
class PortFile {
 public:
  /// Does nothing with an empty path. std::runtime_error if it cannot be written, or a symbolic
  /// link lies there.
  PortFile(std::string path, uint16_t port);
  ~PortFile();
  PortFile(PortFile&&) = delete;

 private:
  const std::string path_;
  OwnedFd file_;  // open, so that no other file gets its number
};

/// One line to stderr, prefixed with the time; a peer's text in it cannot forge another line. As
/// PrintNotice().
void LogToStderr(bool warning, std::string_view line);

}  // namespace muster::cli
