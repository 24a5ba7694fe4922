// A follower of logs with its two ends: logs that workers write, and consoles that are read.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <stdlib.h>
#include <termios.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "base/time.h"
#include "launch/logs/follower.h"
#include "support/eventually.h"

namespace muster::test {

/// Works like a worker: writes into its file, independent of the follower.
class Log {
 public:
  explicit Log(std::string path)
      : path_(std::move(path)), fd_(open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600)) {}
  ~Log() { close(fd_); }
  Log(const Log&) = delete;
  Log& operator=(const Log&) = delete;

  void Write(std::string_view bytes) const {
    EXPECT_EQ(write(fd_, bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
  }
  const std::string& path() const { return path_; }

 private:
  const std::string path_;
  const int fd_;
};

/// A console with a reader: a pipe, or the given pair of descriptors.
class Console {
 public:
  Console() {
    int ends[2];
    EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
    read_ = ends[0];
    write_ = ends[1];
  }
  Console(int reading, int writing) : read_(reading), write_(writing) {}
  ~Console() {
    CloseReader();
    CloseWriter();
  }
  Console(const Console&) = delete;
  Console& operator=(const Console&) = delete;

  int fd() const { return write_; }
  void CloseReader() { CloseOne(read_); }
  void CloseWriter() { CloseOne(write_); }

  /// The text so far.
  const std::string& Seen() {
    pollfd wanted{.fd = read_, .events = POLLIN, .revents = 0};
    while (poll(&wanted, 1, 0) > 0 && (wanted.revents & POLLIN) != 0 && ReadOnce(65536)) continue;
    return seen_;
  }
  bool Shows(const std::string& text) {
    return EventuallyTrue([&] { return Seen().find(text) != std::string::npos; });
  }
  /// All of it, in small portions; the writing end must get closed at some time.
  const std::string& ReadToEnd(size_t portion = 65536) {
    while (ReadOnce(portion)) continue;
    return seen_;
  }

 private:
  static void CloseOne(int& fd) {
    if (fd >= 0) close(fd);
    fd = -1;
  }
  bool ReadOnce(size_t portion) {
    std::string block(portion, '\0');
    const ssize_t count = read(read_, block.data(), block.size());
    if (count > 0) seen_.append(block, 0, static_cast<size_t>(count));
    return count > 0;
  }

  int read_ = -1;
  int write_ = -1;
  std::string seen_;
};

/// A terminal that shows what is written to it as it is.
inline Console Terminal() {
  const int master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
  EXPECT_TRUE(master >= 0 && grantpt(master) == 0 && unlockpt(master) == 0);
  const int terminal = open(ptsname(master), O_RDWR | O_NOCTTY | O_CLOEXEC);
  termios settings{};
  EXPECT_EQ(tcgetattr(terminal, &settings), 0);
  cfmakeraw(&settings);  // Ends of lines stay what they are.
  EXPECT_EQ(tcsetattr(terminal, TCSANOW, &settings), 0);
  return Console(master, terminal);
}

/// With a very long tick: whatever waits for it would wait without end. Unfinished lines are not
/// shown, however long a busy machine takes to finish them.
inline std::unique_ptr<Follower> OpenFollower(FollowerOptions options = {.tick = 1h,
                                                                         .unfinished_max = 1h}) {
  return std::move(Follower::Open(std::move(options))).value();
}

/// With inotify nothing may depend on the tick, and without it nothing may depend on its events.
class LiveFollowerTest : public testing::TestWithParam<bool> {
 protected:
  static FollowerOptions Options() {
    return {.use_inotify = GetParam(),
            .tick = GetParam() ? Duration(1h) : Duration(100ms),
            .unfinished_max = 1h};
  }
};
}  // namespace muster::test
