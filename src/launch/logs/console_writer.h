// Writes lines of many workers to one descriptor, without waiting for its reader.
//
// One thread. Complete lines are collected and written together. A write ends at the end of a line,
// unless one line is longer than a write may be. A write into a pipe is at most PIPE_BUF bytes,
// which the kernel does not mix with those of other processes: workers that write to the same pipe
// split no line.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace muster {

class ConsoleWriter {
 public:
  /// Borrows `fd`, and changes nothing about it: its open file may be a terminal that others share.
  explicit ConsoleWriter(int fd);
  ConsoleWriter(const ConsoleWriter&) = delete;
  ConsoleWriter& operator=(const ConsoleWriter&) = delete;

  /// Queues a line; one without an end gets one. Nothing, once broken.
  void Add(std::string_view prefix, std::string_view line);

  /// Writes as much as can be written now. SIGPIPE must be blocked.
  void Flush();

  bool is_terminal() const { return is_terminal_; }
  /// Enough is queued: add nothing until the reader has caught up.
  bool full() const { return queued() >= kQueuedEnough; }
  /// Something is queued, and the descriptor takes no more of it now: wait for POLLOUT.
  bool waiting() const { return queued() > 0; }
  /// The errno after which nothing is written any more; zero: there was none.
  int broken() const { return broken_; }

 private:
  static constexpr size_t kQueuedEnough = 256 * 1024;

  size_t queued() const { return queue_.size() - sent_; }
  bool Writable() const;
  size_t NextWrite() const;

  const int fd_;
  bool is_terminal_ = false;
  bool is_socket_ = false;
  bool may_block_ = false;  // A write may wait for a reader: poll first.
  size_t write_max_;
  std::string queue_;
  size_t sent_ = 0;  // of the queue
  int broken_ = 0;
};

}  // namespace muster
