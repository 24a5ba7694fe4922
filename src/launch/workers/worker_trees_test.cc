// The processes that workers start, and how they end.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include "launch/workers/worker_processes.h"
#include "os/posix/cgroup.h"
#include "support/child_process.h"
#include "support/eventually.h"
#include "support/machine.h"
#include "support/temp_dir.h"
#include "support/worker_crew.h"

namespace muster {
namespace {

using namespace muster::test;  // NOLINT: the words of these tests

/// With a cgroup, and without.
class WorkerTreesTest : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    if (GetParam()) MUSTER_REQUIRE(CgroupNeed());
  }
  WorkerProcessesOptions options() const { return {.use_cgroup = GetParam()}; }
  std::string File(std::string_view name) const { return folder_.File(name); }

  const TempDir folder_;
};

INSTANTIATE_TEST_SUITE_P(Nets, WorkerTreesTest, testing::Bool(),
                         [](const auto& test) { return test.param ? "Cgroup" : "NoCgroup"; });

// A child in the background, in the worker's own group.
std::string Background(const std::string& file) {
  return "sleep 60 </dev/null >/dev/null 2>&1 & echo $! > " + file + "; ";
}

TEST_P(WorkerTreesTest, Launch091_ChildrenOfAWorkerThatIsStoppedDieWithIt) {
  WorkerCrew crew(options());
  const int64_t pid = crew.Start(0, Shell(Background(File("child")) + "wait"));
  const int64_t child = AwaitPid(File("child"));
  ASSERT_TRUE(IsAlive(child));
  crew->Signal(0, SIGTERM);
  EXPECT_EQ(crew.AwaitEnd(pid), -SIGTERM);
  EXPECT_TRUE(EventuallyTrue([&] { return IsGone(child); }));
}

TEST_P(WorkerTreesTest, Launch151_WhatAFailedWorkerLeavesBehindIsGoneAfterASweep) {
  WorkerCrew crew(options());
  const int64_t pid = crew.Start(0, Shell(Background(File("child")) + Daemon(File("daemon")) +
                                          Daemon(File("stranger"), "env -i") + "exit 3"));
  ASSERT_EQ(crew.AwaitEnd(pid), 3);
  const std::vector<int64_t> left = {AwaitPid(File("child")), AwaitPid(File("daemon")),
                                     AwaitPid(File("stranger"))};
  for (const int64_t process : left) EXPECT_TRUE(IsAlive(process));
  crew->Sweep();
  for (const int64_t process : left) EXPECT_TRUE(IsGone(process));
  EXPECT_FALSE(FactsOf(static_cast<pid_t>(pid)));
}

TEST_P(WorkerTreesTest, Launch151_WhatWorkersLeaveBehindIsGoneWithTheRunner) {
  int64_t daemon = 0;
  int64_t stranger = 0;
  {
    WorkerCrew crew(options());
    const int64_t pid = crew.Start(
        0, Shell(Daemon(File("daemon")) + Daemon(File("stranger"), "env -i") + "exit 3"));
    ASSERT_EQ(crew.AwaitEnd(pid), 3);
    daemon = AwaitPid(File("daemon"));
    stranger = AwaitPid(File("stranger"));
    ASSERT_TRUE(IsAlive(daemon) && IsAlive(stranger));
  }
  EXPECT_FALSE(FactsOf(static_cast<pid_t>(daemon))) << "ended, and reaped";
  EXPECT_FALSE(FactsOf(static_cast<pid_t>(stranger)));
}

TEST_P(WorkerTreesTest, ASweepSparesWhatBelongsToWorkersThatRun) {
  WorkerCrew crew(options());
  const int64_t ended = crew.Start(0, Shell(Daemon(File("left")) + "exit 0"));
  const int64_t running = crew.Start(
      1, Shell(Daemon(File("daemon")) + Daemon(File("stranger"), "env -i") + "exec sleep 60"));
  ASSERT_EQ(crew.AwaitEnd(ended), 0);
  const int64_t daemon = AwaitPid(File("daemon"));
  const int64_t stranger = AwaitPid(File("stranger"));
  crew->Sweep();
  EXPECT_TRUE(IsGone(AwaitPid(File("left"))));
  EXPECT_TRUE(IsAlive(running));
  EXPECT_TRUE(IsAlive(daemon));
  EXPECT_TRUE(IsAlive(stranger));
  crew->Signal(1, SIGTERM);
  ASSERT_EQ(crew.AwaitEnd(running), -SIGTERM);
  crew->Sweep();
  EXPECT_TRUE(IsGone(daemon));
  EXPECT_TRUE(IsGone(stranger));
}

TEST_P(WorkerTreesTest, SigkillReachesThoseThatAWorkerHasLetGoOfAndNobodyElse) {
  WorkerCrew crew(options());
  const int64_t killed =
      crew.Start(0, Shell(Background(File("child")) + Daemon(File("daemon")) +
                          "setsid env -i sleep 60 & echo $! > " + File("stranger") + "; wait"));
  const int64_t other = crew.Start(1, Shell(Daemon(File("other")) + "exec sleep 60"));
  const std::vector<int64_t> tree = {AwaitPid(File("child")), AwaitPid(File("daemon")),
                                     AwaitPid(File("stranger"))};
  const int64_t daemon_of_other = AwaitPid(File("other"));
  for (const int64_t process : tree) ASSERT_TRUE(IsAlive(process));
  crew->Signal(0, SIGKILL);
  EXPECT_EQ(crew.AwaitEnd(killed), -SIGKILL);
  for (const int64_t process : tree) EXPECT_TRUE(EventuallyTrue([&] { return IsGone(process); }));
  EXPECT_TRUE(IsAlive(other));
  EXPECT_TRUE(IsAlive(daemon_of_other));
}

TEST_P(WorkerTreesTest, AProcessThatKeepsStartingOthersIsCaught) {
  WorkerCrew crew(options());
  // Limited: if it is not caught, the machine must survive the test.
  const int64_t pid = crew.Start(0, Command({"python3", "-c", R"(
import os, sys, time
if os.fork(): os._exit(0)
os.setsid()
for i in range(400):
    if os.fork() == 0:
        os.setsid()
        time.sleep(60)
        os._exit(0)
    if i == 20:
        with open(sys.argv[1], 'w') as f: f.write(f'{os.getpid()}\n')
    time.sleep(0.005)
time.sleep(60)
)",
                                             File("bomb")}));
  ASSERT_EQ(crew.AwaitEnd(pid), 0);
  const int64_t bomb = AwaitPid(File("bomb"));
  ASSERT_TRUE(IsAlive(bomb));
  crew->Sweep();
  EXPECT_TRUE(IsGone(bomb));
  EXPECT_TRUE(EventuallyTrue([&] { return ChildrenBut(crew.guardian()).empty(); }));
}

TEST_P(WorkerTreesTest, OrphansComeToUsAndAreReapedWhenTheyEnd) {
  WorkerCrew crew(options());
  ASSERT_EQ(mkfifo(File("gate").c_str(), 0600), 0);
  const int64_t pid = crew.Start(0, Shell("(setsid sh -c 'echo $$ > " + File("orphan") +
                                          "; read line < " + File("gate") + "' &); exec sleep 60"));
  const auto orphan = static_cast<pid_t>(AwaitPid(File("orphan")));
  ASSERT_TRUE(EventuallyTrue([&] {
    const auto facts = FactsOf(orphan);
    return facts && facts->parent == getpid();
  }));
  WriteFile(File("gate"), "go\n");
  EXPECT_TRUE(EventuallyTrue([&] { return !FactsOf(orphan).has_value(); }));
  EXPECT_TRUE(IsAlive(pid));
}

TEST_P(WorkerTreesTest, ChildrenThatOthersInThisProcessStartedAreTheirsToReap) {
  WorkerCrew crew(options());
  const pid_t theirs = fork();
  if (theirs == 0) _exit(7);
  ASSERT_TRUE(EventuallyTrue([&] {
    const auto facts = FactsOf(theirs);
    return facts && facts->IsDead();
  }));
  // An orphan behind it in the kernel's list is reaped even so.
  const int64_t pid = crew.Start(0, Shell("(setsid sh -c 'echo $$ > " + File("orphan") + "' &)"));
  ASSERT_EQ(crew.AwaitEnd(pid), 0);
  const auto orphan = static_cast<pid_t>(AwaitPid(File("orphan")));
  EXPECT_TRUE(EventuallyTrue([&] { return !FactsOf(orphan).has_value(); }));
  int status = 0;
  EXPECT_EQ(waitpid(theirs, &status, 0), theirs);
  EXPECT_EQ(WEXITSTATUS(status), 7);
}

TEST_P(WorkerTreesTest, AWorkerWhoseSessionIsInhabitedKeepsItsPidUntilTheSweep) {
  WorkerCrew crew(options());
  const int64_t pid = crew.Start(0, Shell(Background(File("child")) + "exit 0"));
  const int64_t next = crew.Start(1, Shell("exit 0"));
  ASSERT_EQ(crew.AwaitEnd(pid), 0);
  ASSERT_EQ(crew.AwaitEnd(next), 0);
  ASSERT_TRUE(EventuallyTrue([&] { return !FactsOf(static_cast<pid_t>(next)).has_value(); }));
  EXPECT_TRUE(FactsOf(static_cast<pid_t>(pid)))
      << "or a stranger could lead a session of that name";
  crew->Sweep();
  EXPECT_FALSE(FactsOf(static_cast<pid_t>(pid)));
}

// ----------------------------------------------------------------------------------------------
// when the launcher dies

/// A launcher in its own process: starts a worker with a whole family, and prints their pids and
/// whether it has a cgroup. Then it executes the commands that it receives.
ChildProcess Launcher(const WorkerProcessesOptions& options, const TempDir& folder) {
  return ChildProcess::Fork([&](int input, int output) -> int {
    WorkerCrew crew(options);
    const std::string script = Background(folder.File("child")) + Daemon(folder.File("daemon")) +
                               Daemon(folder.File("stranger"), "env -i") + "wait; exec sleep 60";
    const int64_t worker = crew.Start(0, Shell(script));
    dprintf(output, "%d\n%ld\n%ld\n%ld\n%ld\n%d\n", crew.guardian(), worker,
            AwaitPid(folder.File("child")), AwaitPid(folder.File("daemon")),
            AwaitPid(folder.File("stranger")), options.use_cgroup ? 1 : 0);
    char byte;
    while (read(input, &byte, 1) > 0) {
    }
    _exit(0);  // without a shutdown message
  });
}

struct Family {
  explicit Family(ChildProcess& launcher) {
    const auto number = [&] { return std::stoll(launcher.ReadLine().value()); };
    guardian = number();
    worker = number();
    child = number();
    daemon = number();
    stranger = number();
    uses_cgroup = number() != 0;
  }

  /// The processes that must end with the launcher. Without a cgroup, a process that has left its
  /// session, its environment and its parents cannot be found.
  std::vector<int64_t> Ours() const {
    std::vector<int64_t> ours = {worker, child, daemon, guardian};
    if (uses_cgroup) ours.push_back(stranger);
    return ours;
  }

  ~Family() {
    if (IsAlive(stranger)) kill(static_cast<pid_t>(stranger), SIGKILL);
  }

  int64_t guardian, worker, child, daemon, stranger;
  bool uses_cgroup;
};

/// The folder of a launcher's cgroup; empty if there is none.
std::string CgroupOf(pid_t launcher) {
  const auto ours =
      OwnCgroupFolder(ReadFile("/proc/self/mountinfo"), ReadFile("/proc/self/cgroup"));
  if (!ours) return "";
  const std::string name = "muster-" + std::to_string(launcher) + "-";
  for (const auto& entry : std::filesystem::directory_iterator(*ours)) {
    if (entry.path().filename().string().starts_with(name)) return entry.path().string();
  }
  return "";
}

TEST_P(WorkerTreesTest, Launch150_KillingTheLauncherLeavesNoWorkerNorWhatItStarted) {
  ChildProcess launcher = Launcher(options(), folder_);
  const Family family(launcher);
  for (const int64_t process : family.Ours()) ASSERT_TRUE(IsAlive(process));
  const pid_t pid = launcher.pid();
  EXPECT_EQ(CgroupOf(pid).empty(), !GetParam());
  const Stopwatch watch;
  kill(pid, SIGKILL);
  for (const int64_t process : family.Ours())
    EXPECT_TRUE(EventuallyTrue([&] { return IsGone(process); })) << process;
  EXPECT_LT(watch.Elapsed(), seconds(1));
  EXPECT_EQ(launcher.Wait(), -SIGKILL);
  EXPECT_EQ(CgroupOf(pid), "");
}

TEST_P(WorkerTreesTest, Launch150_TheParentDeathSignalHoldsEvenIfTheGuardianIsKilledFirst) {
  ChildProcess launcher = Launcher(options(), folder_);
  const Family family(launcher);
  kill(static_cast<pid_t>(family.guardian), SIGKILL);
  ASSERT_TRUE(EventuallyTrue([&] { return IsGone(family.guardian); }));
  kill(launcher.pid(), SIGKILL);
  EXPECT_TRUE(EventuallyTrue([&] { return IsGone(family.worker); }));
  // The test does what the guardian would have done.
  for (const int64_t left : {family.child, family.daemon, family.stranger}) {
    if (IsAlive(left)) kill(static_cast<pid_t>(left), SIGKILL);
  }
  const std::string cgroup = CgroupOf(launcher.pid());
  EXPECT_TRUE(EventuallyTrue([&] { return cgroup.empty() || rmdir(cgroup.c_str()) == 0; }));
}

TEST_P(WorkerTreesTest, ALauncherThatExitsWithoutAWordLeavesNothingEither) {
  ChildProcess launcher = Launcher(options(), folder_);
  const Family family(launcher);
  launcher.CloseInput();
  for (const int64_t process : family.Ours())
    EXPECT_TRUE(EventuallyTrue([&] { return IsGone(process); })) << process;
  EXPECT_EQ(launcher.Wait(), 0);
}

TEST_P(WorkerTreesTest, TheGuardianHoldsNothingOfOursAndHeedsNoRequestToEnd) {
  WorkerCrew crew(options());
  const std::string guardian = "/proc/" + std::to_string(crew.guardian());
  EXPECT_TRUE(EventuallyTrue([&] { return ReadFile(guardian + "/comm") == "muster-guardian\n"; }));
  const auto held = [&] {
    std::vector<std::string> files;
    for (const auto& entry : std::filesystem::directory_iterator(guardian + "/fd")) {
      std::error_code gone;  // it may still be closing inherited descriptors
      const auto file = std::filesystem::read_symlink(entry.path(), gone);
      if (!gone) files.push_back(file.string());
    }
    return files;
  };
  ASSERT_TRUE(EventuallyTrue([&] { return held().size() == 5; }));
  const std::vector<std::string> files = held();
  EXPECT_EQ(std::ranges::count(files, "/dev/null"), 3);
  EXPECT_EQ(std::ranges::count(files, "anon_inode:[pidfd]"), 1);
  EXPECT_TRUE(std::ranges::any_of(files, [](auto& file) { return file.starts_with("socket:"); }));
  EXPECT_EQ(getsid(crew.guardian()), crew.guardian());
  EXPECT_EQ(ReadFile(guardian + "/environ").find("MUSTER_AGENT"), std::string::npos);
  ASSERT_TRUE(EventuallyTrue([&] {
    return ReadFile(guardian + "/status").find("SigIgn:\t0000000000005007") != std::string::npos;
  }));
}

TEST_P(WorkerTreesTest, WorkersComeAndGoWithoutTheGuardian) {
  WorkerCrew crew(options());
  kill(crew.guardian(), SIGKILL);
  EXPECT_TRUE(EventuallyTrue([&] { return !FactsOf(crew.guardian()); })) << "it is not reaped";
  EXPECT_EQ(crew.AwaitEnd(crew.Start(0, Shell(Daemon(File("daemon")) + "exit 4"))), 4);
  crew->Sweep();
  EXPECT_TRUE(IsGone(AwaitPid(File("daemon"))));
}

}  // namespace
}  // namespace muster
