#include "launch/watchdog.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <limits.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <mutex>
#include <string>
#include <vector>

#include "base/text.h"
#include "os/posix/posix_clock.h"
#include "os/posix/process_tree.h"
#include "support/child_process.h"
#include "support/eventually.h"
#include "support/temp_dir.h"

namespace muster {
namespace {

using namespace muster::test;  // NOLINT: the words of these tests

constexpr WallTime At(int64_t seconds) { return WallTime{seconds * 1'000'000}; }

TimerRequest Timer(int64_t pid, std::string scope, int64_t seconds, int signal = SIGKILL) {
  return {.pid = pid, .scope = std::move(scope), .expires_at = At(seconds), .signal = signal};
}

std::string Line(int64_t pid, const std::string& scope, const std::string& time, int signal = 9) {
  return Concat(R"({"version": 1, "pid": )", pid, R"(, "scope_id": ")", scope,
                R"(", "expiration_time": )", time, R"(, "signal": )", signal, "}");
}

// --- requests

TEST(TimerRequestTest, ARequestIsReadAsPyTorchWritesIt) {
  const auto read = ParseTimerRequest(Line(42, "forward", "1700000000.25"));
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->pid, 42);
  EXPECT_EQ(read->scope, "forward");
  EXPECT_EQ(read->expires_at, WallTime{1'700'000'000'250'000});
  EXPECT_EQ(read->signal, 9);
}

TEST(TimerRequestTest, ANegativeTimeReleases) {
  EXPECT_EQ(ParseTimerRequest(Line(42, "x", "-1", 0))->expires_at, std::nullopt);
  EXPECT_EQ(ParseTimerRequest(Line(42, "x", "-0.5", 0))->expires_at, std::nullopt);
}

TEST(TimerRequestTest, SignalsThatDoNotExistAreNone) {
  for (const int signal : {0, -9, 65, 1'000'000})
    EXPECT_EQ(ParseTimerRequest(Line(1, "x", "5", signal))->signal, 0) << signal;
}

TEST(TimerRequestTest, TimesOfAnySizeAreTimes) {
  EXPECT_GT(*ParseTimerRequest(Line(1, "x", "1e300"))->expires_at, At(1'000'000'000'000 - 1));
  EXPECT_EQ(*ParseTimerRequest(Line(1, "x", "0"))->expires_at, At(0));
}

TEST(TimerRequestTest, WhatIsNoRequestIsRefused) {
  for (const char* line : {
           "",
           "hello",
           "[1]",
           "null",
           R"({"version": 1})",
           R"({"version": 2, "pid": 1, "scope_id": "x", "expiration_time": 1, "signal": 9})",
           R"({"version": 1, "pid": 0, "scope_id": "x", "expiration_time": 1, "signal": 9})",
           R"({"version": 1, "pid": -1, "scope_id": "x", "expiration_time": 1, "signal": 9})",
           R"({"version": 1, "pid": 1.5, "scope_id": "x", "expiration_time": 1, "signal": 9})",
           R"({"version": 1, "pid": "1", "scope_id": "x", "expiration_time": 1, "signal": 9})",
           R"({"version": 1, "pid": 18446744073709551615, "scope_id": "x", "expiration_time": 1,
              "signal": 9})",
           R"({"version": 1, "pid": 1, "scope_id": 7, "expiration_time": 1, "signal": 9})",
           R"({"version": 1, "pid": 1, "scope_id": "x", "expiration_time": NaN, "signal": 9})",
           R"({"version": 1, "pid": 1, "scope_id": "x", "expiration_time": "1", "signal": 9})",
           R"({"version": 1, "pid": 1, "scope_id": "x", "expiration_time": 1})",
           R"({"version": 1, "pid": 1, "scope_id": "x", "expiration_time": 1, "signal": 9)",
       }) {
    EXPECT_FALSE(ParseTimerRequest(line)) << line;
  }
}

// --- the book

TEST(TimerBookTest, ATimerExpiresAtItsTimeAndOnce) {
  TimerBook book;
  book.Take(Timer(1, "a", 10));
  EXPECT_EQ(book.Due(), At(10));
  EXPECT_TRUE(book.TakeExpired(At(9)).empty());
  EXPECT_EQ(book.TakeExpired(At(10)), std::vector{Timer(1, "a", 10)});
  EXPECT_TRUE(book.TakeExpired(At(11)).empty());
  EXPECT_EQ(book.Due(), std::nullopt);
}

TEST(TimerBookTest, Launch137_AReleasedTimerHasNoEffect) {
  TimerBook book;
  book.Take(Timer(1, "a", 10));
  book.Take(Timer(1, "b", 20));
  book.Take({.pid = 1, .scope = "a"});
  EXPECT_TRUE(book.TakeExpired(At(15)).empty());
  EXPECT_EQ(book.Due(), At(20)) << "the other one is still set";
  book.Take({.pid = 1, .scope = "never set"});
  EXPECT_EQ(book.size(), 1U);
}

TEST(TimerBookTest, ANewRequestReplacesTheOld) {
  TimerBook book;
  book.Take(Timer(1, "a", 10));
  book.Take(Timer(1, "a", 30));
  EXPECT_TRUE(book.TakeExpired(At(20)).empty());
  book.Take(Timer(1, "a", 15));
  EXPECT_EQ(book.TakeExpired(At(20)).size(), 1U);
}

TEST(TimerBookTest, OfSeveralTheEarliestWithASignalCounts) {
  TimerBook book;
  book.Take(Timer(1, "silent", 5, 0));
  book.Take(Timer(1, "late", 9, SIGTERM));
  book.Take(Timer(1, "early", 7, SIGUSR1));
  book.Take(Timer(1, "not yet", 30));
  book.Take(Timer(2, "silent", 5, 0));
  book.Take(Timer(3, "not yet", 30));
  EXPECT_EQ(book.TakeExpired(At(10)),
            (std::vector{Timer(1, "early", 7, SIGUSR1), Timer(2, "silent", 5, 0)}));
  EXPECT_EQ(book.size(), 1U) << "all timers of those who had one are forgotten";
}

TEST(TimerBookTest, ThereAreNeverTooMany) {
  TimerBook book;
  for (size_t i = 0; i < TimerBook::kTimersMax; ++i)
    EXPECT_TRUE(book.Take(Timer(1, Concat(i), 10)));
  EXPECT_FALSE(book.Take(Timer(1, "one more", 10)));
  EXPECT_TRUE(book.Take(Timer(1, "7", 20))) << "this one is there";
  EXPECT_TRUE(book.Take({.pid = 1, .scope = "8"}));
  EXPECT_TRUE(book.Take(Timer(1, "one more", 10))) << "there is room again";
}

// --- the pipe

class WatchdogTest : public ::testing::Test {
 protected:
  void Open() {
    auto made = Watchdog::Open(path_, clock_, [this](const std::string& line) {
      const std::lock_guard lock(mutex_);
      said_ += line + "\n";
    });
    ASSERT_TRUE(made) << made.error().message;
    watchdog_ = std::move(*made);
  }

  /// As workers do: open, write, close.
  void Write(const std::string& bytes) const {
    const int fd = open(path_.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC);
    ASSERT_GE(fd, 0);
    EXPECT_EQ(write(fd, bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
    close(fd);
  }

  std::string Soon(double seconds = 0) const {
    return std::to_string(static_cast<double>(clock_.Wall()) / 1e6 + seconds);
  }

  std::string said() {
    const std::lock_guard lock(mutex_);
    return said_;
  }

  /// To be started before the watchdog: forks come before threads.
  static ChildProcess Sleeper() {
    return ChildProcess::Fork([](int input, int) {
      char byte;
      while (read(input, &byte, 1) > 0) {
      }
      return 0;
    });
  }

  TempDir folder_;
  const std::string path_ = folder_.File("timers");
  PosixClock clock_;
  std::mutex mutex_;
  std::string said_;
  std::unique_ptr<Watchdog> watchdog_;
};

TEST_F(WatchdogTest, ThePipeIsThereAsLongAsTheWatchdog) {
  Open();
  struct stat found {};
  ASSERT_EQ(stat(path_.c_str(), &found), 0);
  EXPECT_TRUE(S_ISFIFO(found.st_mode));
  EXPECT_EQ(found.st_mode & 0777, 0600U);
  watchdog_.reset();
  EXPECT_NE(stat(path_.c_str(), &found), 0);
}

TEST_F(WatchdogTest, AnEmptyFileThatStandsThereIsReplaced) {
  close(open(path_.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
  Open();
  struct stat found {};
  ASSERT_EQ(stat(path_.c_str(), &found), 0);
  EXPECT_TRUE(S_ISFIFO(found.st_mode));
}

TEST_F(WatchdogTest, APathThatCannotBeIsToldWithTheReason) {
  const auto made = Watchdog::Open(folder_.File("no/such/folder"), clock_, [](auto&) {});
  ASSERT_FALSE(made);
  EXPECT_NE(made.error().message.find("no/such/folder"), std::string::npos);
  EXPECT_NE(made.error().message.find("No such file"), std::string::npos);
}

// A different signal from the one that is sent when the test times out.
constexpr int kSignal = SIGUSR2;

TEST_F(WatchdogTest, Launch136_AnExpiredTimerEndsItsProcessAndNobodyElse) {
  ChildProcess late = Sleeper();
  ChildProcess other = Sleeper();
  const pid_t pid = late.pid();
  Open();
  Write(Line(pid, "forward", Soon(0.05), kSignal) + "\n" +
        Line(other.pid(), "x", Soon(600), kSignal) + "\n");
  EXPECT_EQ(late.Wait(), -kSignal);
  EXPECT_FALSE(FactsOf(other.pid())->IsDead());
  std::vector<TimerExpiry> expiries;
  EXPECT_TRUE(EventuallyTrue([&] {
    for (auto& one : watchdog_->TakeExpiries()) expiries.push_back(std::move(one));
    return !expiries.empty();
  }));
  ASSERT_EQ(expiries.size(), 1U);
  EXPECT_EQ(expiries[0].timer.pid, pid);
  EXPECT_TRUE(expiries[0].was_sent);
  EXPECT_EQ(said(), Concat("timer 'forward' of pid ", pid, " has expired: SIGUSR2 is sent\n"));
}

TEST_F(WatchdogTest, StrangersAreLeftAlone) {
  Open();
  // This process is no descendant of itself; process 1 is not a child of any process here.
  Write(Line(getpid(), "mine", "0") + "\n" + Line(1, "init", "0") + "\n" +
        Line(4'000'000'000, "no pid at all", "0") + "\n");
  EXPECT_TRUE(EventuallyTrue([&] { return said().find("no pid at all") != std::string::npos; }));
  EXPECT_EQ(said().find("is sent"), std::string::npos) << said();
}

TEST_F(WatchdogTest, RubbishCostsOneComplaintAndNothingElse) {
  ChildProcess late = Sleeper();
  Open();
  Write("rubbish\n\n{}\n");
  Write(std::string(PIPE_BUF + 100, 'x'));
  Write("rest of it\n" + Line(late.pid(), "x", "0", kSignal) + "\n");
  EXPECT_EQ(late.Wait(), -kSignal);
  const std::string heard = said();
  EXPECT_EQ(heard.find("leaves out"), heard.rfind("leaves out")) << heard;
  EXPECT_NE(heard.find("'rubbish': not a JSON object"), std::string::npos) << heard;
}

TEST_F(WatchdogTest, ARequestInPiecesIsOneRequest) {
  ChildProcess late = Sleeper();
  Open();
  const std::string line = Line(late.pid(), "x", "0", kSignal);
  Write(line.substr(0, 20));
  Write(line.substr(20) + "\n");
  EXPECT_EQ(late.Wait(), -kSignal);
}

}  // namespace
}  // namespace muster
