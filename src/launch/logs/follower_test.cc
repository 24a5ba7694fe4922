#include "launch/logs/follower.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <latch>
#include <map>
#include <mutex>
#include <set>
#include <thread>

#include "base/prng.h"
#include "base/text.h"
#include "support/eventually.h"
#include "support/followed_log.h"
#include "support/temp_dir.h"

namespace muster {
namespace {

using test::Console;
using test::EventuallyTrue;
using test::LiveFollowerTest;
using test::Log;
using test::OpenFollower;
using test::ReadFile;
using test::TempDir;
using test::Terminal;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

/// The messages to the user.
struct Words {
  std::mutex mutex{};
  std::vector<std::string> lines{};

  LogSink Sink() {
    return [this](LogLevel, std::string_view line) {
      const std::lock_guard lock(mutex);
      lines.emplace_back(line);
    };
  }
  std::vector<std::string> Lines() {
    const std::lock_guard lock(mutex);
    return lines;
  }
};

std::vector<std::string_view> LinesOf(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const size_t size = std::min(text.find('\n'), text.size() - 1) + 1;
    lines.push_back(text.substr(0, size));
    text.remove_prefix(size);
  }
  return lines;
}

/// What the console shows of a file with these bytes.
std::string EchoOf(std::string_view bytes, const std::string& prefix = "[p]:") {
  const TempDir temp;
  const Log log(temp.File("log"));
  log.Write(bytes);
  Console console;
  const auto follower = OpenFollower();
  EXPECT_TRUE(follower->Follow({.path = log.path(), .prefix = prefix, .console = console.fd()}));
  std::thread finisher([&] {
    follower->Finish();
    console.CloseWriter();
  });
  console.ReadToEnd();
  finisher.join();
  EXPECT_EQ(ReadFile(log.path()), bytes) << "the file is the worker's";
  return console.Seen();
}

TEST(FollowerTest, EveryLineGetsThePrefix) {
  EXPECT_EQ(EchoOf("a\nb\n\nc\n"), "[p]:a\n[p]:b\n[p]:\n[p]:c\n");
  EXPECT_EQ(EchoOf("a\nb\n", ""), "a\nb\n");
  EXPECT_EQ(EchoOf(""), "");
}

TEST(FollowerTest, Launch110EachStreamIsShownOnItsOwnConsole) {
  const TempDir temp;
  const Log out(temp.File("stdout.log"));
  const Log err(temp.File("stderr.log"));
  Console shown_out;
  Console shown_err;
  const auto follower = OpenFollower();
  ASSERT_TRUE(
      follower->Follow({.path = out.path(), .prefix = "[default0]:", .console = shown_out.fd()}));
  ASSERT_TRUE(
      follower->Follow({.path = err.path(), .prefix = "[default0]:", .console = shown_err.fd()}));
  out.Write("hello\nworld\n");
  err.Write("oops\n");
  follower->Finish();
  EXPECT_EQ(shown_out.Seen(), "[default0]:hello\n[default0]:world\n");
  EXPECT_EQ(shown_err.Seen(), "[default0]:oops\n");
  EXPECT_EQ(ReadFile(out.path()), "hello\nworld\n");
  EXPECT_EQ(ReadFile(err.path()), "oops\n");
}

TEST(FollowerTest, Launch121AFinalLineWithoutEndIsShownAndGetsOne) {
  EXPECT_EQ(EchoOf("a\nb"), "[p]:a\n[p]:b\n");
  EXPECT_EQ(EchoOf("b"), "[p]:b\n");
}

TEST(FollowerTest, Launch122BytesThatAreNoTextPassUnchanged) {
  const std::string junk("\xff\xfe\0\x80 \xc3\n\xe2\x82\n\x1b[2J\x07\n", 16);
  EXPECT_EQ(EchoOf(junk, ""), junk);
}

TEST(FollowerTest, ACarriageReturnIsPartOfTheLine) {
  EXPECT_EQ(EchoOf(" 1%\r50%\r99%\r\nend\r"), "[p]: 1%\r50%\r99%\r\n[p]:end\r\n");
}

TEST(FollowerTest, ALineIsShownWholeUpToAMebibyte) {
  const std::string longest(Follower::kLineBytesMax, 'x');
  EXPECT_TRUE(EchoOf(longest + "\nend\n") == "[p]:" + longest + "\n[p]:end\n");
}

TEST(FollowerTest, ALongerLineIsShownInPieces) {
  const std::string longest(Follower::kLineBytesMax, 'x');
  EXPECT_TRUE(EchoOf(longest + longest + "yz\nend\n") ==
              "[p]:" + longest + "\n[p]:" + longest + "\n[p]:yz\n[p]:end\n");
  EXPECT_TRUE(EchoOf(longest + "y") == "[p]:" + longest + "\n[p]:y\n");
}

INSTANTIATE_TEST_SUITE_P(Inotify, LiveFollowerTest, testing::Values(true, false),
                         [](const auto& told) { return told.param ? "Told" : "ByTick"; });

TEST_P(LiveFollowerTest, LinesAreShownWhileTheWorkerRuns) {
  const TempDir temp;
  const Log log(temp.File("log"));
  Console console;
  const auto follower = OpenFollower(Options());
  ASSERT_TRUE(follower->Follow({.path = log.path(), .prefix = "> ", .console = console.fd()}));
  for (int i = 0; i < 20; ++i) {
    log.Write(Concat("step ", i, "\n"));
    EXPECT_TRUE(console.Shows(Concat("> step ", i, "\n"))) << i;
  }
}

TEST_P(LiveFollowerTest, ALineThatComesInPiecesIsShownWhenItIsWhole) {
  const TempDir temp;
  const Log slow(temp.File("slow"));
  const Log quick(temp.File("quick"));
  Console console;
  const auto follower = OpenFollower(Options());
  ASSERT_TRUE(follower->Follow({.path = slow.path(), .prefix = "s:", .console = console.fd()}));
  ASSERT_TRUE(follower->Follow({.path = quick.path(), .prefix = "q:", .console = console.fd()}));
  for (const std::string piece : {"ab", "cd", "ef"}) {
    slow.Write(piece);
    // By the second of these lines the piece has been seen.
    for (const std::string suffix : {"1", "2"}) {
      quick.Write(piece + suffix + "\n");
      ASSERT_TRUE(console.Shows("q:" + piece + suffix + "\n"));
    }
    EXPECT_THAT(console.Seen(), Not(HasSubstr("s:")));
  }
  slow.Write("\n");
  EXPECT_TRUE(console.Shows("s:abcdef\n"));
}

TEST_P(LiveFollowerTest, AFileMayComeLater) {
  const TempDir temp;
  Console console;
  const auto follower = OpenFollower(Options());
  ASSERT_TRUE(follower->Follow({.path = temp.File("log"), .console = console.fd()}));
  const Log log(temp.File("log"));
  log.Write("here\n");
  EXPECT_TRUE(console.Shows("here\n"));
}

TEST_P(LiveFollowerTest, Launch120WhatIsWrittenRightBeforeTheEndIsShown) {
  const TempDir temp;
  for (int i = 0; i < 50; ++i) {
    const Log log(temp.File("log"));
    Console console;
    const auto follower = OpenFollower(Options());
    ASSERT_TRUE(follower->Follow({.path = log.path(), .console = console.fd()}));
    log.Write("a\n");
    if (i % 2 == 0) {
      ASSERT_TRUE(console.Shows("a\n"));
    }
    log.Write("last words");
    follower->Finish();
    ASSERT_EQ(console.Seen(), "a\nlast words\n") << i;
  }
}

TEST(FollowerTest, Launch116LinesWithANeedleAreCollectedWithTheirPrefix) {
  const TempDir temp;
  const Log first(temp.File("0"));
  const Log second(temp.File("1"));
  Console console;
  const std::string filtered = temp.File("filtered_stdout.log");
  const std::vector<std::string> filters = {"out", "bad"};
  const auto follower = OpenFollower();
  ASSERT_TRUE(follower->Follow({.path = first.path(),
                                .prefix = "[out0]:",
                                .console = console.fd(),
                                .filters = filters,
                                .duplicate_to = filtered}));
  ASSERT_TRUE(follower->Follow({.path = second.path(),
                                .prefix = "[out1]:",
                                .console = console.fd(),
                                .filters = filters,
                                .duplicate_to = filtered}));
  first.Write("an out line\nnothing\nBad\n");
  ASSERT_TRUE(console.Shows("Bad\n"));
  second.Write("so bad, so out\nou\nt\nout");
  follower->Finish();
  EXPECT_EQ(ReadFile(filtered), "[out0]:an out line\n[out1]:so bad, so out\n[out1]:out\n");
  EXPECT_THAT(console.Seen(), HasSubstr("[out0]:nothing\n"));
}

TEST(FollowerTest, AnEmptyNeedleIsInEveryLineAndAConsoleIsNotNeeded) {
  const TempDir temp;
  const Log log(temp.File("log"));
  log.Write("a\n\nb");
  const auto follower = OpenFollower();
  ASSERT_TRUE(follower->Follow(
      {.path = log.path(), .prefix = ":", .filters = {""}, .duplicate_to = temp.File("f")}));
  follower->Finish();
  EXPECT_EQ(ReadFile(temp.File("f")), ":a\n:\n:b\n");
}

TEST(FollowerTest, AFileThatCannotBeOpenedIsAnErrorThatNamesIt) {
  const TempDir temp;
  const auto follower = OpenFollower();
  EXPECT_THAT(follower->Follow({.path = temp.File("no/log"), .console = 1}).error().message,
              AllOf(HasSubstr(temp.File("no/log")), HasSubstr("No such file")));
  EXPECT_THAT(follower->Follow({.path = temp.File("log"), .duplicate_to = temp.File("no/f")})
                  .error()
                  .message,
              AllOf(HasSubstr(temp.File("no/f")), HasSubstr("No such file")));
}

TEST(FollowerTest, WhenTheReaderIsGoneTheRestGoesOn) {
  const TempDir temp;
  const Log log(temp.File("log"));
  const Log other(temp.File("other"));
  Console gone;
  Console stays;
  Words words;
  const auto follower = OpenFollower({.tick = 1h, .log = words.Sink()});
  ASSERT_TRUE(follower->Follow({.path = log.path(),
                                .console = gone.fd(),
                                .filters = {""},
                                .duplicate_to = temp.File("filtered")}));
  ASSERT_TRUE(follower->Follow({.path = other.path(), .console = stays.fd()}));
  log.Write("1\n");
  ASSERT_TRUE(gone.Shows("1\n"));
  gone.CloseReader();
  log.Write("2\n");
  ASSERT_TRUE(EventuallyTrue([&] { return !words.Lines().empty(); }));
  log.Write("3\n");
  other.Write("4\n");
  follower->Finish();
  EXPECT_EQ(ReadFile(temp.File("filtered")), "1\n2\n3\n");
  EXPECT_EQ(stays.Seen(), "4\n");
  EXPECT_THAT(words.Lines(), ElementsAre(AllOf(HasSubstr("Broken pipe"), HasSubstr("workers go on"),
                                               Not(HasSubstr("\n")))));
}

TEST(FollowerTest, AFullDiskIsOneLineAndTheEchoGoesOn) {
  const TempDir temp;
  const Log log(temp.File("log"));
  Console console;
  Words words;
  const auto follower = OpenFollower({.tick = 1h, .log = words.Sink()});
  ASSERT_TRUE(follower->Follow(
      {.path = log.path(), .console = console.fd(), .filters = {""}, .duplicate_to = "/dev/full"}));
  log.Write("1\n2\n3\n");
  follower->Finish();
  EXPECT_EQ(console.Seen(), "1\n2\n3\n");
  EXPECT_THAT(words.Lines(),
              ElementsAre(AllOf(HasSubstr("'/dev/full'"), HasSubstr("No space left on device"))));
}

TEST(FollowerTest, AConsoleOnAFullDiskIsOneLineToo) {
  const TempDir temp;
  const Log log(temp.File("log"));
  Console console(-1, open("/dev/full", O_WRONLY | O_CLOEXEC));
  Words words;
  const auto follower = OpenFollower({.tick = 1h, .log = words.Sink()});
  ASSERT_TRUE(follower->Follow({.path = log.path(), .console = console.fd()}));
  for (int i = 0; i < 1000; ++i) log.Write("a line\n");
  follower->Finish();
  EXPECT_THAT(words.Lines(), ElementsAre(HasSubstr("No space left on device")));
}

TEST(FollowerTest, AConsoleThatNobodyReadsHoldsUpNoOther) {
  const TempDir temp;
  const Log flood(temp.File("flood"));
  const Log log(temp.File("log"));
  Console stuck;
  Console read;
  auto follower = OpenFollower();
  ASSERT_TRUE(follower->Follow({.path = flood.path(), .console = stuck.fd()}));
  ASSERT_TRUE(follower->Follow({.path = log.path(), .console = read.fd()}));
  for (int i = 0; i < 100; ++i) flood.Write(std::string(50'000, 'x') + "\n");
  for (int i = 0; i < 10; ++i) {
    log.Write(Concat("step ", i, "\n"));
    EXPECT_TRUE(read.Shows(Concat("step ", i, "\n")));
  }
  follower.reset();  // And it can be destroyed.
  EXPECT_THAT(LinesOf(stuck.Seen())[0], HasSubstr("x\n"));
}

TEST(FollowerTest, NonBlockingPipesAndSocketsGetEverything) {
  int pair[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
  Console socket(pair[0], pair[1]);
  ASSERT_EQ(pipe2(pair, O_CLOEXEC | O_NONBLOCK), 0);
  ASSERT_EQ(fcntl(pair[0], F_SETFL, 0), 0);  // The reader of the tests waits.
  Console pipe(pair[0], pair[1]);
  const TempDir temp;
  const Log log(temp.File("log"));
  std::string all;
  Prng prng(3);
  while (all.size() < 3'000'000) all += std::string(prng.Below(9000), 'x') + "\n";
  log.Write(all);
  for (Console* console : {&socket, &pipe}) {
    const auto follower = OpenFollower();
    ASSERT_TRUE(follower->Follow({.path = log.path(), .console = console->fd()}));
    std::thread finisher([&] {
      follower->Finish();
      console->CloseWriter();
    });
    EXPECT_TRUE(console->ReadToEnd(5000) == all);
    finisher.join();
  }
}

// Workers whose output is not teed have the same pipe as their own.
TEST(FollowerTest, LinesOfOthersIntoTheSamePipeAreNotTornEither) {
  const TempDir temp;
  const Log log(temp.File("log"));
  const std::string ours = "[p]:" + std::string(700, 'o') + "\n";
  const std::string theirs = std::string(1100, 't') + "\n";
  Console console;
  const auto follower = OpenFollower();
  ASSERT_TRUE(follower->Follow({.path = log.path(), .prefix = "[p]:", .console = console.fd()}));
  std::thread writer([&] {
    const int fd = console.fd();
    for (int i = 0; i < 3000; ++i) {
      log.Write(ours.substr(4));
      EXPECT_EQ(write(fd, theirs.data(), theirs.size()), static_cast<ssize_t>(theirs.size()));
    }
    follower->Finish();
    console.CloseWriter();
  });
  console.ReadToEnd(1000);
  writer.join();
  std::map<std::string_view, int> seen;
  for (const std::string_view line : LinesOf(console.Seen())) ++seen[line];
  EXPECT_EQ(seen.size(), 2u);
  EXPECT_EQ(seen[ours], 3000);
  EXPECT_EQ(seen[theirs], 3000);
}

TEST(FollowerTest, AnAttemptMaySettleWhileTheNextOneRuns) {
  const TempDir temp;
  Console console;
  const auto follower = OpenFollower();
  for (int attempt = 0; attempt < 5; ++attempt) {
    const std::string directory = temp.File("attempt_0");
    std::filesystem::create_directory(directory);
    ASSERT_TRUE(follower->Follow(
        {.path = directory + "/log", .prefix = Concat(attempt, ':'), .console = console.fd()}));
    const Log log(directory + "/log");
    log.Write(Concat("a", attempt, "\nb", attempt));
    follower->Settle();
    std::filesystem::rename(directory, Concat(directory, '.', attempt));
  }
  follower->Finish();
  const auto lines = LinesOf(console.Seen());
  std::multiset<std::string> seen(lines.begin(), lines.end());
  EXPECT_EQ(seen.size(), 10u);
  for (int attempt = 0; attempt < 5; ++attempt) {
    EXPECT_EQ(seen.count(Concat(attempt, ":a", attempt, "\n")), 1u);
    EXPECT_EQ(seen.count(Concat(attempt, ":b", attempt, "\n")), 1u);
  }
}

TEST(FollowerTest, PrefixesAreColouredOnTerminalsOnly) {
  Console terminal = Terminal();
  Console pipe;
  const TempDir temp;
  const Log log(temp.File("log"));
  log.Write("x\n");
  const auto show = [&](bool color, size_t worker, const Console& console) {
    const auto follower = OpenFollower({.color = color, .tick = 1h});
    ASSERT_TRUE(follower->Follow({.path = log.path(),
                                  .prefix = "[w]:",
                                  .console = console.fd(),
                                  .worker = worker,
                                  .filters = {"x"},
                                  .duplicate_to = temp.File("filtered")}));
    follower->Finish();
  };
  show(true, 0, terminal);
  show(true, 1, terminal);
  show(true, 6, terminal);
  show(false, 0, terminal);
  show(true, 0, pipe);
  EXPECT_TRUE(
      terminal.Shows("\x1b[36m[w]:\x1b[0mx\n\x1b[33m[w]:\x1b[0mx\n\x1b[36m[w]:\x1b[0mx\n[w]:x\n"));
  EXPECT_EQ(pipe.Seen(), "[w]:x\n");
  EXPECT_EQ(ReadFile(temp.File("filtered")), "[w]:x\n[w]:x\n[w]:x\n[w]:x\n[w]:x\n");
}

/// Writes `lines` lines of all sizes with few or many calls; each contains its writer and its
/// number.
void WriteMany(const Log& log, size_t worker, int lines) {
  Prng prng(worker);
  std::string pending;
  for (int i = 0; i < lines; ++i) {
    pending += Concat(worker, ' ', i, ' ');
    pending.append(prng.Below(10) == 0 ? 6000 : prng.Below(400), 'x');
    pending += "|\n";
    const size_t portion =
        prng.Below(pending.size() + 1);  // Lines are torn while they are written.
    log.Write(std::string_view(pending).substr(0, portion));
    pending.erase(0, portion);
  }
  log.Write(pending);
}

TEST(FollowerTest, AHundredWorkersAtFullSpeedAndASlowReaderLoseAndTearNothing) {
  constexpr size_t kWorkers = 100;
  constexpr int kLines = 300;
  const TempDir temp;
  Console console;
  const auto follower = OpenFollower();
  std::latch written(kWorkers);
  std::vector<std::thread> workers;
  for (size_t worker = 0; worker < kWorkers; ++worker) {
    const std::string path = temp.File(Concat(worker));
    ASSERT_TRUE(follower->Follow(
        {.path = path, .prefix = Concat('[', worker, "]:"), .console = console.fd()}));
    workers.emplace_back([&, worker, path] {
      WriteMany(Log(path), worker, kLines);
      written.count_down();
    });
  }
  written.wait();  // No byte has been read so far, and no worker has waited for a reader.
  std::thread finisher([&] {
    follower->Finish();
    console.CloseWriter();
  });
  console.ReadToEnd(1000);
  finisher.join();
  for (auto& worker : workers) worker.join();

  std::vector<std::string> seen(kWorkers);
  for (const std::string_view line : LinesOf(console.Seen())) {
    const auto worker = static_cast<size_t>(*ParseCounter(line.substr(1)));
    const std::string prefix = Concat('[', worker, "]:");
    ASSERT_TRUE(line.starts_with(prefix) && worker < kWorkers) << line;
    seen[worker] += line.substr(prefix.size());
  }
  for (size_t worker = 0; worker < kWorkers; ++worker) {
    EXPECT_TRUE(seen[worker] == ReadFile(temp.File(Concat(worker)))) << worker;
  }
}

bool HaveTheSameContent(const std::string& one, const std::string& other) {
  std::ifstream left(one, std::ios::binary);
  std::ifstream right(other, std::ios::binary);
  std::string left_block(1 << 20, '\0');
  std::string right_block(1 << 20, '\0');
  while (left && right) {
    left.read(left_block.data(), 1 << 20);
    right.read(right_block.data(), 1 << 20);
    if (left.gcount() != right.gcount() || left_block != right_block) return false;
  }
  return !left && !right;
}

TEST(FollowerTest, AHundredMegabytesArriveAsTheyWereWritten) {
  const TempDir temp;
  const Log log(temp.File("log"));
  Console console(-1, open(temp.File("shown").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  const auto follower = OpenFollower();
  ASSERT_TRUE(follower->Follow({.path = log.path(), .console = console.fd()}));
  Prng prng(11);
  std::string block;
  while (block.size() < 1'000'000) block += Concat(prng.Next(), prng.Below(4) == 0 ? "\n" : "\r");
  for (int i = 0; i < 100; ++i) {
    log.Write(Concat("block ", i));
    log.Write(block);
  }
  log.Write("\n");
  follower->Finish();
  EXPECT_GT(std::filesystem::file_size(log.path()), 100'000'000u);
  EXPECT_TRUE(HaveTheSameContent(temp.File("shown"), log.path()));
}

}  // namespace
}  // namespace muster
