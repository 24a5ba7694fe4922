// What the follower shows of lines that are not finished: progress bars.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "base/text.h"
#include "support/followed_log.h"
#include "support/temp_dir.h"

namespace muster {
namespace {

using namespace muster::test;  // NOLINT: the words of these tests
using testing::EndsWith;

INSTANTIATE_TEST_SUITE_P(Inotify, LiveFollowerTest, testing::Values(true, false),
                         [](const auto& told) { return told.param ? "Told" : "ByTick"; });

TEST_P(LiveFollowerTest, AProgressBarIsShownInItsLastStateAndWholeWhenItEnds) {
  const TempDir temp;
  const Log log(temp.File("log"));
  Console console;
  FollowerOptions options = Options();
  options.unfinished_max = 20ms;
  const auto follower = OpenFollower(options);
  ASSERT_TRUE(follower->Follow({.path = log.path(), .prefix = "p:", .console = console.fd()}));
  log.Write("start\n\r 1%\r 2%");
  EXPECT_TRUE(console.Shows("p:start\np: 2%\n"));
  log.Write("\r 98%\r 99%\r");
  EXPECT_TRUE(console.Shows("p: 2%\np: 99%\n"));
  log.Write("\nend\n");
  follower->Finish();
  EXPECT_THAT(console.Seen(), EndsWith("p: 99%\np:\r 1%\r 2%\r 98%\r 99%\r\np:end\n"));
}

TEST_P(LiveFollowerTest, OnATerminalAStateIsReplacedByWhatComesNext) {
  const TempDir temp;
  const Log bar(temp.File("bar"));
  const Log other(temp.File("other"));
  Console terminal = Terminal();
  FollowerOptions options = Options();
  options.unfinished_max = 20ms;
  const auto follower = OpenFollower(options);
  ASSERT_TRUE(follower->Follow({.path = bar.path(), .prefix = "p:", .console = terminal.fd()}));
  ASSERT_TRUE(follower->Follow({.path = other.path(), .prefix = "q:", .console = terminal.fd()}));
  bar.Write("\r 1%");
  EXPECT_TRUE(terminal.Shows("p: 1%\r"));
  bar.Write("\r 2%");
  EXPECT_TRUE(terminal.Shows("\r\x1b[Kp: 2%\r"));
  other.Write("step\n");
  EXPECT_TRUE(terminal.Shows("\r\x1b[Kq:step\n"));
  bar.Write("\r 3%\n");
  EXPECT_TRUE(terminal.Shows("q:step\np: 3%\n"));
}

TEST(FollowerTest, AnUnfinishedLineIsShownAndIsNotRepeatedAtTheEnd) {
  const TempDir temp;
  const Log log(temp.File("log"));
  Console console;
  const auto follower = OpenFollower({.tick = 1h, .unfinished_max = 20ms});
  ASSERT_TRUE(follower->Follow({.path = log.path(),
                                .prefix = "p:",
                                .console = console.fd(),
                                .filters = {""},
                                .duplicate_to = temp.File("filtered")}));
  log.Write("a question? ");
  EXPECT_TRUE(console.Shows("p:a question? \n"));
  follower->Finish();
  EXPECT_EQ(console.Seen(), "p:a question? \n");
  EXPECT_EQ(ReadFile(temp.File("filtered")), "p:a question? \n") << "lines, and no states";
}

/// How often the threads of this process have been scheduled, except this one.
int64_t Switches() {
  int64_t count = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    if (task.path().filename() == std::to_string(gettid())) continue;
    std::ifstream lines(task.path() / "status");
    for (std::string line; std::getline(lines, line);) {
      if (const size_t at = line.find("ctxt_switches:"); at != line.npos)
        count += *ParseCounter(line.substr(line.find_first_of("0123456789", at)));
    }
  }
  return count;
}

TEST(FollowerTest, AStateThatIsShownWakesNobody) {
  const TempDir temp;
  const Log log(temp.File("log"));
  Console console;
  const auto follower = OpenFollower({.tick = 1h, .unfinished_max = 1ms});
  ASSERT_TRUE(follower->Follow({.path = log.path(), .console = console.fd()}));
  log.Write(" 1%\r");
  ASSERT_TRUE(console.Shows(" 1%\n"));
  EXPECT_TRUE(EventuallyTrue([] {
    const int64_t before = Switches();
    const Stopwatch watch;
    return EventuallyTrue([&] { return watch.Elapsed() > milliseconds(100); }) &&
           Switches() == before;
  }));
}

}  // namespace
}  // namespace muster
