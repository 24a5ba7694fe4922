// The launcher's threads together, with real workers: the agent's, the rendezvous thread, the one
// that shows output, the watchdog's, the one that reaps, and the one that handles signals. Other
// tests check what they do; here ThreadSanitizer checks how.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <string>

#include "launch/launcher.h"
#include "muster/store_server.h"
#include "support/background.h"
#include "support/child_process.h"
#include "support/raw_socket.h"

#ifdef __SANITIZE_THREAD__
// A child that is killed, or that ends with _exit(), would lose its reports.
extern "C" const char* __tsan_default_options() { return "halt_on_error=1"; }
#endif

namespace muster::test {

namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::SizeIs;

/// Workers write their names, and wait until so many have, in all attempts together.
constexpr const char* kWords = R"sh(
  : > "$SEEN/worker.$$"
  count() { set -- "$SEEN"/worker.*; echo $#; }
  await() { while [ "$(count)" -lt "$1" ]; do sleep 0.02; done; }
)sh";

class LauncherTest : public ::testing::Test {
 protected:
  LauncherTest() : socket_(BindLoopback()) {}

  /// From here on there are threads, so all forks have happened.
  void Serve() {
    server_ =
        std::make_unique<StoreServer>(StoreServerOptions{.listen_fd = socket_.fd, .threads = 2});
  }

  LauncherOptions Options(const std::string& script) const {
    return {.script = kWords + script, .endpoint = "127.0.0.1:" + std::to_string(socket_.port)};
  }

  /// A second node, in a process of its own. Its status is the launcher's, or 66 after a race.
  ChildProcess Second(LauncherOptions options) const {
    options.name = "second";
    return ChildProcess::Fork([&](int, int) { return Launcher(options, folder_).Run(); });
  }

  int WorkersSeen() const {
    int count = 0;
    for (const auto& entry : std::filesystem::directory_iterator(folder_.File("")))
      count += entry.path().filename().string().starts_with("worker.") ? 1 : 0;
    return count;
  }
  bool AwaitWorkers(int count) const {
    return EventuallyTrue([&] { return WorkersSeen() >= count; });
  }
  int LinesIn(const std::string& text) const {
    return static_cast<int>(std::count(text.begin(), text.end(), '\n'));
  }

  const SignalsHeld held_;
  const TempDir folder_;
  const BoundSocket socket_;
  std::unique_ptr<StoreServer> server_;
};

TEST_F(LauncherTest, WorkersAreFollowedFailAndBeginAgain) {
  Serve();
  LauncherOptions options = Options(R"sh(
    await 4
    i=0; while [ $i -lt 50 ]; do echo "out $i"; echo "err $i" >&2; i=$((i + 1)); done
    [ "$RANK" = 2 ] && [ "$TORCHELASTIC_RESTART_COUNT" = 0 ] && exit 3
    await 8)sh");
  options.workers = 4;
  options.max_restarts = 1;
  Launcher launcher(options, folder_);
  EXPECT_EQ(launcher.Run(), 0) << launcher.said();
  EXPECT_EQ(launcher.restarts(), 1);
  for (const char* stream : {"stdout", "stderr"}) {
    EXPECT_EQ(LinesIn(launcher.Filtered(1, stream)), 4 * 50) << stream;
    EXPECT_GE(LinesIn(launcher.Filtered(0, stream)), 50) << "of the one that failed";
  }
  EXPECT_THAT(ReadFile(folder_.File("launcher.events")), HasSubstr("SUCCEEDED"));
}

TEST_F(LauncherTest, ASignalEndsAllWorkers) {
  Serve();
  LauncherOptions options = Options(R"sh(trap 'echo told; exit 7' TERM; await 99)sh");
  options.workers = 4;
  Launcher launcher(options, folder_);
  EXPECT_EQ(launcher.Run([&] {
    EXPECT_TRUE(AwaitWorkers(4));
    kill(getpid(), SIGTERM);
    kill(getpid(), SIGINT);  // the second makes no difference, and may arrive first
  }),
            1);
  EXPECT_THAT(launcher.said(), ContainsRegex("SIG(TERM|INT) came"));
}

TEST_F(LauncherTest, ASignalMayComeAtAnyMoment) {
  Serve();
  for (int round = 0; round < 5; ++round) {
    LauncherOptions options = Options("await 999");
    options.name = "launcher" + std::to_string(round);
    const int before = WorkersSeen();
    Launcher launcher(options, folder_);
    // At once; with one worker under way; with both.
    EXPECT_EQ(launcher.Run([&] {
      EXPECT_TRUE(AwaitWorkers(before + round % 3));
      kill(getpid(), SIGTERM);
    }),
              1);
  }
}

TEST_F(LauncherTest, AWorkerThatIgnoresTheSignalIsKilled) {
  Serve();
  LauncherOptions options =
      Options(R"sh(trap '' TERM; await 2; [ "$RANK" = 0 ] && exit 3; await 99)sh");
  options.grace = 100ms;
  Launcher launcher(options, folder_);
  EXPECT_EQ(launcher.Run(), 1);
  ASSERT_THAT(launcher.failures(), SizeIs(2));
  EXPECT_EQ(launcher.failures()[0].code, 3);
  EXPECT_EQ(launcher.failures()[1].code, -SIGKILL);
}

TEST_F(LauncherTest, TheWatchdogEndsALateWorkerWhileOthersSetTimers) {
  Serve();
  LauncherOptions options = Options(R"sh(
    timer() {
      printf '{"version": 1, "pid": %d, "scope_id": "%s", "expiration_time": %s, "signal": 9}\n' \
        $$ "$1" "$2" > "$TORCHELASTIC_TIMER_FILE"
    }
    await 4
    i=0; while [ $i -lt 50 ]; do timer "s$i" 9999999999.5; timer "s$i" -1; i=$((i + 1)); done
    if [ "$RANK" = 1 ] && [ "$TORCHELASTIC_RESTART_COUNT" = 0 ]; then timer late 1.5; await 99; fi
    await 8)sh");
  options.workers = 4;
  options.max_restarts = 1;
  options.has_watchdog = true;
  Launcher launcher(options, folder_);
  EXPECT_EQ(launcher.Run(), 0) << launcher.said();
  EXPECT_EQ(launcher.restarts(), 1);
  EXPECT_THAT(ReadFile(folder_.File("launcher.events")), HasSubstr("kill worker process"));
}

TEST_F(LauncherTest, TwoLaunchersBeginAgainAfterAFailureAndEndTogether) {
  LauncherOptions options = Options(R"sh(
    await 4
    [ "$GROUP_RANK" = 1 ] && mkdir "$SEEN/failed" 2>/dev/null && exit 3
    await 8)sh");
  options.nodes_min = options.nodes_max = 2;
  options.max_restarts = 1;
  ChildProcess second = Second(options);
  Serve();
  Launcher first(options, folder_);
  EXPECT_EQ(first.Run(), 0) << first.said();
  EXPECT_EQ(second.Wait(), 0);
  EXPECT_EQ(WorkersSeen(), 8);
}

TEST_F(LauncherTest, ALauncherContinuesAloneWhenTheOtherIsKilled) {
  LauncherOptions options = Options("await 6");
  options.nodes_max = 2;
  ChildProcess second = Second(options);
  Serve();
  Launcher first(options, folder_);
  EXPECT_EQ(first.Run([&] {
    EXPECT_TRUE(AwaitWorkers(4));
    kill(second.pid(), SIGKILL);
  }),
            0)
      << first.said();
  EXPECT_EQ(second.Wait(), -SIGKILL);
  EXPECT_THAT(first.said(), HasSubstr("has lost"));
}

TEST_F(LauncherTest, AFinalFailureEndsBoth) {
  LauncherOptions options = Options(R"sh(await 4; [ "$RANK" = 3 ] && exit 5; await 99)sh");
  options.nodes_min = options.nodes_max = 2;
  ChildProcess second = Second(options);
  Serve();
  Launcher first(options, folder_);
  EXPECT_EQ(first.Run(), 1);
  EXPECT_EQ(second.Wait(), 1);
}

TEST_F(LauncherTest, AServerThatEndsEndsTheJobWhenItStaysAway) {
  Serve();
  LauncherOptions options = Options("await 99");
  options.contact_max = 500ms;
  Launcher launcher(options, folder_);
  EXPECT_EQ(launcher.Run([&] {
    EXPECT_TRUE(AwaitWorkers(2));
    server_.reset();
  }),
            1);
}

TEST_F(LauncherTest, ASignalWhileItWaitsForOthersEndsTheWait) {
  Serve();
  LauncherOptions options = Options("await 99");
  options.nodes_min = options.nodes_max = 2;
  options.join_seconds = 2;  // the join itself cannot be cancelled
  Launcher launcher(options, folder_);
  EXPECT_EQ(launcher.Run([] { kill(getpid(), SIGTERM); }), 1);
  EXPECT_EQ(WorkersSeen(), 0);
}

}  // namespace

}  // namespace muster::test
