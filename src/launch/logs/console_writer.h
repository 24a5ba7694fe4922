// The console of a launcher: what it shows of its workers' output. On the follower's thread.
#pragma once

#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

namespace muster {

/// Writes lines of many workers to one descriptor, without waiting for its reader.
///
/// Complete lines are collected and written together. A write ends at the end of a line, unless one
/// line is longer than a write may be. A write into a pipe is at most PIPE_BUF bytes, which the
/// kernel does not mix with those of other processes: lines of workers that write to the same pipe
/// are not split.
class ConsoleWriter {
 public:
  /// Borrows `fd`, and changes nothing about it: its open file may be a terminal that others share.
  /// `has_state` is shared by the consoles of a terminal: its cursor is at the beginning of a
  /// state.
  ConsoleWriter(int fd, bool& has_state)
      : fd_(fd), is_terminal_(isatty(fd) == 1), has_state_(has_state) {
    struct stat found {};
    const bool known = fstat(fd, &found) == 0;
    is_socket_ = known && S_ISSOCK(found.st_mode);
    may_block_ = known && (S_ISFIFO(found.st_mode) || is_terminal_);
  }
  ConsoleWriter(ConsoleWriter&&) = delete;

  /// Queues a line; adds a line end if it has none. The state of an unfinished line (`is_state`) is
  /// replaced by the next line or state on a terminal, and a line elsewhere. Does nothing once
  /// broken.
  void Add(std::string_view prefix, std::string_view line, bool is_state = false) {
    if (broken_ != 0) return;
    const bool replaces = is_terminal_ && std::exchange(has_state_, is_state);
    if (replaces) queue_ += "\x1b[K";
    queue_ += prefix;
    queue_ += line;
    if (is_state && is_terminal_) {
      queue_ += '\r';
    } else if (!line.ends_with('\n')) {
      queue_ += '\n';
    }
  }

  /// Writes as much as can be written now. SIGPIPE must be blocked.
  void Flush() {
    while (queued() > 0 && Writable()) {
      const std::string_view next = NextWrite();
      const ssize_t count = is_socket_
                                ? send(fd_, next.data(), next.size(), MSG_DONTWAIT | MSG_NOSIGNAL)
                                : write(fd_, next.data(), next.size());
      if (count >= 0) {
        sent_ += static_cast<size_t>(count);
      } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
        break;
      } else if (errno != EINTR) {
        broken_ = errno;
        sent_ = queue_.size();
      }
    }
    if (queued() > 0 && sent_ < kQueuedEnough) return;
    queue_.erase(0, std::exchange(sent_, 0));
  }

  bool is_terminal() const { return is_terminal_; }
  /// Whether enough is queued: add nothing until the reader has caught up.
  bool full() const { return queued() >= kQueuedEnough; }
  /// Something is queued, and the descriptor takes no more of it now: wait for POLLOUT.
  bool waiting() const { return queued() > 0; }
  /// The errno of the write that failed finally; zero: none has.
  int broken() const { return broken_; }

 private:
  static constexpr size_t kQueuedEnough = 256 * 1024;

  size_t queued() const { return queue_.size() - sent_; }

  // A pipe that is ready has room for PIPE_BUF bytes, so the write that follows does not block. (It
  // could block if another process was faster. Then it waits for the reader, like any program.)
  bool Writable() const {
    pollfd wanted{.fd = fd_, .events = POLLOUT, .revents = 0};
    return !may_block_ || poll(&wanted, 1, 0) > 0;
  }

  /// Ends at the last line end within the size of one write.
  std::string_view NextWrite() const {
    const size_t size_max = may_block_ ? size_t{PIPE_BUF} : 4 * kQueuedEnough;
    const std::string_view next = std::string_view(queue_).substr(sent_, size_max);
    const size_t end = next.rfind('\n');
    return end == next.npos ? next : next.substr(0, end + 1);
  }

  const int fd_;
  const bool is_terminal_;
  bool& has_state_;
  bool is_socket_ = false;
  bool may_block_ = false;  // A write may wait for a reader: poll first.
  std::string queue_;
  size_t sent_ = 0;  // of the queue
  int broken_ = 0;
};

}  // namespace muster
