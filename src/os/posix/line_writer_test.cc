#include "os/posix/line_writer.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <string>

#include "base/limits.h"
#include "base/text.h"
#include "os/posix/owned_fd.h"

namespace muster {
namespace {

using std::chrono::milliseconds;

struct Pipe {
  Pipe() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) abort();
    reading = OwnedFd(ends[0]);
    writing = OwnedFd(ends[1]);
  }

  /// Reads until the text ends with `last`.
  std::string ReadUntil(std::string_view last) {
    std::string heard;
    while (!heard.ends_with(last)) {
      pollfd ready{.fd = reading.get(), .events = POLLIN, .revents = 0};
      if (poll(&ready, 1, 60'000) <= 0) return heard;
      char buffer[65536];
      const ssize_t count = read(reading.get(), buffer, sizeof buffer);
      if (count <= 0) return heard;
      heard.append(buffer, static_cast<size_t>(count));
    }
    return heard;
  }

  OwnedFd reading;
  OwnedFd writing;
};

std::string Line(int number) { return Concat("line ", number, " ", std::string(100, 'x'), "\n"); }

TEST(LineWriterTest, LinesArriveInOrder) {
  Pipe pipe;
  LineWriter writer(pipe.writing.get());
  std::string all;
  for (int i = 0; i < 100; ++i) {
    writer.Write(Line(i));
    all += Line(i);
  }
  EXPECT_TRUE(writer.Flush(milliseconds(60'000)));
  EXPECT_EQ(pipe.ReadUntil(Line(99)), all);
}

TEST(LineWriterTest, WithoutAReaderLinesAreDroppedAndCountedAndNobodyWaits) {
  Pipe pipe;
  LineWriter writer(pipe.writing.get());
  // More than the pipe and the queue can hold together.
  const int lines = static_cast<int>(4 * kQueuedLogBytesMax / Line(0).size());
  for (int i = 0; i < lines; ++i) writer.Write(Line(i));
  EXPECT_FALSE(writer.Flush(milliseconds(1)));
  int shown = 0;
  int dropped = 0;
  while (shown + dropped < lines) {  // a line may have found room in between
    std::istringstream heard(pipe.ReadUntil("\n"));
    for (std::string line; std::getline(heard, line);) {
      int count = 0;
      if (std::sscanf(line.c_str(), "muster: %d lines dropped: they could not", &count) == 1) {
        dropped += count;
      } else {
        ASSERT_TRUE(line.starts_with("line ")) << line;
        ++shown;
      }
    }
    ASSERT_TRUE(shown > 0);
  }
  EXPECT_EQ(shown + dropped, lines);
  EXPECT_GT(dropped, lines / 2);
  writer.Write("and on\n");
  EXPECT_EQ(pipe.ReadUntil("on\n"), "and on\n");
}

TEST(LineWriterTest, AReaderThatHasGoneIsNoReasonToEnd) {
  Pipe pipe;
  LineWriter writer(pipe.writing.get());
  pipe.reading.Close();
  for (int i = 0; i < 3; ++i) {
    writer.Write("nobody\n");
    EXPECT_TRUE(writer.Flush(milliseconds(60'000)));
  }
}

TEST(LineWriterTest, AForkedChildWritesItself) {
  Pipe pipe;
  StandardError().Write("");  // creates the writer before the fork
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    dup2(pipe.writing.get(), STDERR_FILENO);
    StandardError().Write("from the child\n");
    _exit(StandardError().Flush(milliseconds(60'000)) ? 0 : 1);
  }
  EXPECT_EQ(pipe.ReadUntil("child\n"), "from the child\n");
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace muster
