#include "launch/logs/console_writer.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>

namespace muster {

ConsoleWriter::ConsoleWriter(int fd) : fd_(fd), is_terminal_(isatty(fd) == 1) {
  struct stat found {};
  const bool known = fstat(fd, &found) == 0;
  is_socket_ = known && S_ISSOCK(found.st_mode);
  may_block_ = known && (S_ISFIFO(found.st_mode) || is_terminal_);
  write_max_ = may_block_ ? size_t{PIPE_BUF} : 4 * kQueuedEnough;
}

void ConsoleWriter::Add(std::string_view prefix, std::string_view line) {
  if (broken_ != 0) return;
  queue_ += prefix;
  queue_ += line;
  if (!line.ends_with('\n')) queue_ += '\n';
}

// A pipe that is ready has room for PIPE_BUF bytes, so the write that follows does not block. (It
// could block if another process was faster. Then it waits for the reader, like any program.)
bool ConsoleWriter::Writable() const {
  if (!may_block_) return true;
  pollfd wanted{.fd = fd_, .events = POLLOUT, .revents = 0};
  return poll(&wanted, 1, 0) > 0;
}

/// Ends at the last line end within the size of one write.
size_t ConsoleWriter::NextWrite() const {
  const size_t size = std::min(queued(), write_max_);
  const size_t end = std::string_view(queue_).substr(sent_, size).rfind('\n');
  return end == std::string_view::npos ? size : end + 1;
}

void ConsoleWriter::Flush() {
  while (queued() > 0 && Writable()) {
    const char* const bytes = queue_.data() + sent_;
    const size_t size = NextWrite();
    const ssize_t count =
        is_socket_ ? send(fd_, bytes, size, MSG_DONTWAIT | MSG_NOSIGNAL) : write(fd_, bytes, size);
    if (count >= 0) {
      sent_ += static_cast<size_t>(count);
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      break;
    } else if (errno != EINTR) {
      broken_ = errno;
      sent_ = queue_.size();
    }
  }
  if (queued() == 0 || sent_ >= kQueuedEnough) {
    queue_.erase(0, sent_);
    sent_ = 0;
  }
}

}  // namespace muster
