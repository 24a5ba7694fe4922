// Lines on their way to a descriptor whose reader may have stopped reading.
//
// A thread of its own writes, so that no caller waits for the reader. Lines
// that find the queue full are dropped and counted, and the count is written once there is room
// again. Nothing about the descriptor is changed: O_NONBLOCK would hold for every process that
// shares the open file.
#pragma once

#include <chrono>
#include <memory>
#include <string_view>

namespace muster {

class LineWriter {
 public:
  /// Borrows `fd`. The thread starts with the first line.
  explicit LineWriter(int fd);
  /// What is queued is still written, as long as there is a reader; does not wait for that.
  ~LineWriter();
  LineWriter(const LineWriter&) = delete;
  LineWriter& operator=(const LineWriter&) = delete;

  /// Queues `text`, one line or several with their ends. Any thread. Never blocks.
  void Write(std::string_view text);

  /// Waits until everything is written. False: the reader took nothing for as long as `patience`.
  bool Flush(std::chrono::milliseconds patience);

 private:
  struct State;
  std::shared_ptr<State> state_;  // shared with the thread, which may be in a write that never ends
};

/// That of standard error, for the whole process. Never destroyed; a forked child has its own.
LineWriter& StandardError();

}  // namespace muster
