// Writes lines to a descriptor whose reader may have stopped reading.
//
// A separate thread writes, so that no caller waits for the reader. If the queue is full, lines are
// dropped and counted, and the count is written once there is room again. Nothing about the
// descriptor is changed: O_NONBLOCK would hold for every process that shares the open file.
#pragma once

#include <chrono>
#include <memory>
#include <string_view>

namespace muster {

class LineWriter {
 public:
  /// Borrows `fd`. The thread starts with the first line.
  explicit LineWriter(int fd);
  /// Does not wait: queued lines are still written as long as there is a reader.
  ~LineWriter();
  LineWriter(LineWriter&&) = delete;

  /// Queues `text`, one line or several with their ends. Any thread. Never blocks.
  void Write(std::string_view text);

  /// Waits until everything is written. False: the reader read nothing for `patience`.
  bool Flush(std::chrono::milliseconds patience);

 private:
  struct State;
  std::shared_ptr<State> state_;  // shared with the thread, which may be in a write that never ends
};

/// The writer of standard error, for the whole process. Never destroyed; a forked child has its
/// own.
LineWriter& StandardError();

}  // namespace muster
