// What the program does with its own process: signals, descriptor limits, files that others wait
// for.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

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

/// Raises the soft limit of open files to the hard one: thousands of nodes are thousands of
/// descriptors.
void RaiseDescriptorLimit();

/// A file with a port number in it, for whoever started us. It appears whole or not at all, and
/// goes with this object.
class PortFile {
 public:
  /// Does nothing with an empty path. std::runtime_error if it cannot be written.
  PortFile(std::string path, uint16_t port);
  ~PortFile();
  PortFile(const PortFile&) = delete;
  PortFile& operator=(const PortFile&) = delete;

 private:
  const std::string path_;
};

/// One line to stderr, with the time in front.
void LogToStderr(bool warning, std::string_view line);

}  // namespace muster::cli
