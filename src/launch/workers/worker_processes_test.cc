#include "launch/workers/worker_processes.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <set>
#include <string>
#include <vector>

#include "support/child_process.h"
#include "support/eventually.h"
#include "support/machine.h"
#include "support/temp_dir.h"
#include "support/worker_crew.h"

namespace muster {
namespace {

using namespace muster::test;  // NOLINT: the words of these tests
using testing::HasSubstr;

/// With a cgroup, and without.
class WorkerProcessesTest : public testing::TestWithParam<bool> {
 protected:
  WorkerProcessesTest() : crew_(WorkerProcessesOptions{.use_cgroup = GetParam()}) {}
  void SetUp() override {
    if (GetParam()) MUSTER_REQUIRE(CgroupNeed());
  }

  Error FailureOf(const WorkerCommand& command) {
    Result<int64_t> pid = crew_->Start(0, command);
    EXPECT_FALSE(pid);
    return pid ? Error{Code::kInvalid, "it runs"} : pid.error();
  }

  const TempDir folder_;
  WorkerCrew crew_;
};

INSTANTIATE_TEST_SUITE_P(Nets, WorkerProcessesTest, testing::Bool(),
                         [](const auto& test) { return test.param ? "Cgroup" : "NoCgroup"; });

// ----------------------------------------------------------------------------------------------
// what a worker is

TEST_P(WorkerProcessesTest, Launch065_AWorkerLeadsItsGroupAndSessionAndIsOurChild) {
  WorkerCommand command = Command({"/bin/cat", "/proc/self/stat"});
  command.output_path = folder_.File("out");
  const int64_t pid = crew_.Start(0, command);
  ASSERT_EQ(crew_.AwaitEnd(pid), 0);
  const std::string number = std::to_string(pid);
  EXPECT_THAT(ReadFile(command.output_path),
              testing::StartsWith(number + " (cat) R " + std::to_string(getpid()) + " " + number +
                                  " " + number + " "));
}

TEST_P(WorkerProcessesTest, Launch066_AWorkerHasOnlyTheStandardDescriptors) {
  const int inheritable = open("/dev/null", O_RDONLY);
  const int far_away = fcntl(inheritable, F_DUPFD, 500);
  // 3 is ls's own, of the folder it lists: it was free.
  EXPECT_EQ(crew_.OutputOf(Command({"/bin/ls", "/proc/self/fd"})), "0\n1\n2\n3\n");
  close(inheritable);
  close(far_away);
}

TEST_P(WorkerProcessesTest, Launch067_SignalsAreAtTheirDefaultsEvenIfWeIgnoreOrBlockThem) {
  struct sigaction ignore {};
  ignore.sa_handler = SIG_IGN;
  std::vector<std::pair<int, struct sigaction>> before;
  for (const int signal : {SIGHUP, SIGPIPE, SIGTERM, SIGINT, SIGQUIT, SIGRTMIN + 3}) {
    sigaction(signal, &ignore, &before.emplace_back(signal, ignore).second);
  }
  sigset_t blocked;
  sigset_t mask_before;
  sigfillset(&blocked);
  pthread_sigmask(SIG_BLOCK, &blocked, &mask_before);
  const std::string status = crew_.OutputOf(Command({"/bin/cat", "/proc/self/status"}));
  pthread_sigmask(SIG_SETMASK, &mask_before, nullptr);
  for (const auto& [signal, action] : before) sigaction(signal, &action, nullptr);
  EXPECT_THAT(status, HasSubstr("SigIgn:\t0000000000000000"));
  EXPECT_THAT(status, HasSubstr("SigBlk:\t0000000000000000"));
  EXPECT_THAT(status, HasSubstr("SigCgt:\t0000000000000000"));
  EXPECT_THAT(status, HasSubstr("SigPnd:\t0000000000000000"));
}

TEST_P(WorkerProcessesTest, StandardInputPassesThrough) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  ASSERT_EQ(write(ends[1], "x\n", 2), 2);
  close(ends[1]);
  const int before = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 10);
  dup2(ends[0], STDIN_FILENO);
  const std::string output = crew_.OutputOf(Command({"cat"}));
  if (before >= 0) dup2(before, STDIN_FILENO);
  close(before);
  close(ends[0]);
  EXPECT_EQ(output, "x\n");
}

TEST_P(WorkerProcessesTest, TheEnvironmentIsWhatWasGivenAndAMark) {
  WorkerCommand command = Command({"/usr/bin/env"});
  command.environment = {"A=1", "B=two words"};
  EXPECT_THAT(crew_.OutputOf(command),
              testing::MatchesRegex("A=1\nB=two words\nMUSTER_AGENT=[^\n]*\n"));
}

TEST_P(WorkerProcessesTest, TheMarkOfAnOuterLauncherIsKept) {
  WorkerCommand command = Command({"/usr/bin/env"});
  command.environment = {"MUSTER_AGENT=outer.7", "Z=1"};
  EXPECT_THAT(crew_.OutputOf(command), testing::MatchesRegex("MUSTER_AGENT=outer.7,[^\n]+\nZ=1\n"));
}

TEST_P(WorkerProcessesTest, OutputAndErrorsGoToTheirFilesWhichAreEmptiedFirst) {
  WorkerCommand command = Shell("echo out; echo err >&2");
  command.output_path = folder_.File("out");
  command.error_path = folder_.File("err");
  WriteFile(command.output_path, "a long text of some attempt before\n");
  crew_.AwaitEnd(crew_.Start(0, command));
  EXPECT_EQ(ReadFile(command.output_path), "out\n");
  EXPECT_EQ(ReadFile(command.error_path), "err\n");
}

TEST_P(WorkerProcessesTest, OneFileForOutputAndErrorsHasBothInOrder) {
  WorkerCommand command = Shell("echo out; echo err >&2; echo again");
  command.output_path = command.error_path = folder_.File("both");
  crew_.AwaitEnd(crew_.Start(0, command));
  EXPECT_EQ(ReadFile(command.output_path), "out\nerr\nagain\n");
}

TEST_P(WorkerProcessesTest, AWorkerRunsOnlyOnTheCpusThatItIsGiven) {
  cpu_set_t ours;
  ASSERT_EQ(sched_getaffinity(0, sizeof ours, &ours), 0);
  int last = 0;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &ours)) last = cpu;
  }
  WorkerCommand command = Command({"/bin/cat", "/proc/self/status"});
  command.cpus = {last};
  EXPECT_THAT(crew_.OutputOf(command),
              HasSubstr("Cpus_allowed_list:\t" + std::to_string(last) + "\n"));
}

TEST_P(WorkerProcessesTest, AProgramIsLookedForOnThePathOfItsOwnEnvironment) {
  WriteFile(folder_.File("tool"), "#!/bin/sh\necho found\n");
  chmod(folder_.File("tool").c_str(), 0755);
  WorkerCommand command = Command({"tool"});
  command.environment = {"PATH=/nonexistent::" + folder_.File("") + ":/bin"};
  EXPECT_EQ(crew_.OutputOf(command), "found\n");
}

// ----------------------------------------------------------------------------------------------
// what cannot be started

TEST_P(WorkerProcessesTest, AProgramThatIsNowhereIsNamed) {
  const Error by_name = FailureOf(Command({"nosuch-program"}));
  EXPECT_EQ(by_name.code, Code::kNotFound);
  EXPECT_EQ(by_name.message, "cannot run 'nosuch-program': No such file or directory");
  const Error by_path = FailureOf(Command({"/nonexistent/tool"}));
  EXPECT_EQ(by_path.code, Code::kNotFound);
  EXPECT_EQ(by_path.message, "cannot run '/nonexistent/tool': No such file or directory");
}

TEST_P(WorkerProcessesTest, WhatIsNotAProgramIsRefusedWithTheReason) {
  const std::string plain = folder_.File("plain");
  WriteFile(plain, "no program\n");
  const Error not_executable = FailureOf(Command({plain}));
  EXPECT_EQ(not_executable.code, Code::kInvalid);
  EXPECT_EQ(not_executable.message, "cannot run '" + plain + "': Permission denied");
  chmod(plain.c_str(), 0755);
  const Error no_format = FailureOf(Command({plain}));
  EXPECT_EQ(no_format.code, Code::kInvalid);
  EXPECT_EQ(no_format.message, "cannot run '" + plain + "': Exec format error");
  const Error folder = FailureOf(Command({"/proc"}));
  EXPECT_EQ(folder.code, Code::kInvalid);
  EXPECT_EQ(folder.message, "cannot run '/proc': Is a directory");
}

TEST_P(WorkerProcessesTest, AMissingInterpreterIsNotTakenForAMissingScript) {
  const std::string script = folder_.File("script");
  WriteFile(script, "#!/nonexistent/interpreter\n");
  chmod(script.c_str(), 0755);
  const Error error = FailureOf(Command({script}));
  EXPECT_EQ(error.code, Code::kNotFound);
  EXPECT_THAT(error.message, HasSubstr("its interpreter does not exist"));
}

TEST_P(WorkerProcessesTest, AFileOnThePathThatMayNotBeRunIsPassedOver) {
  mkdir(folder_.File("first").c_str(), 0755);
  mkdir(folder_.File("second").c_str(), 0755);
  WriteFile(folder_.File("first/tool"), "not to be run");
  WorkerCommand command = Command({"tool"});
  command.environment = {"PATH=" + folder_.File("first") + ":" + folder_.File("second")};
  const Error error = FailureOf(command);
  EXPECT_EQ(error.code, Code::kInvalid);
  EXPECT_EQ(error.message, "cannot run 'tool': Permission denied");
  WriteFile(folder_.File("second/tool"), "#!/bin/sh\necho second\n");
  chmod(folder_.File("second/tool").c_str(), 0755);
  EXPECT_EQ(crew_.OutputOf(command), "second\n");
}

TEST_P(WorkerProcessesTest, CommandsThatMakeNoSenseAreRefused) {
  EXPECT_EQ(FailureOf(Command({})).code, Code::kInvalid);
  EXPECT_EQ(FailureOf(Command({""})).code, Code::kNotFound);
  EXPECT_EQ(FailureOf(Command({"/bin/echo", std::string("a\0b", 3)})).code, Code::kInvalid);
  WorkerCommand bound = Command({"/bin/true"});
  bound.cpus = {-1};
  EXPECT_EQ(FailureOf(bound).message, "there is no CPU -1");
  bound.cpus = {65'000};
  EXPECT_THAT(FailureOf(bound).message, HasSubstr("cannot bind '/bin/true' to its CPUs"));
}

TEST_P(WorkerProcessesTest, AnOutputThatCannotBeWrittenIsNamedAndNothingIsStarted) {
  WorkerCommand command = Shell("echo $$ > " + folder_.File("ran"));
  command.output_path = folder_.File("none/out");
  const Error error = FailureOf(command);
  EXPECT_EQ(error.code, Code::kInvalid);
  EXPECT_EQ(error.message, "cannot write a worker's output to '" + command.output_path +
                               "': No such file or directory");
  EXPECT_FALSE(FileExists(folder_.File("ran")));
}

TEST_P(WorkerProcessesTest, AFailedStartLeavesNoProcess) {
  FailureOf(Command({"/nonexistent/tool"}));
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), 0) << "the guardian lives";
  EXPECT_THAT(ChildrenBut(crew_.guardian()), testing::IsEmpty());
}

TEST_P(WorkerProcessesTest, AWorkerThatRunsIsNotStartedAgain) {
  const int64_t pid = crew_.Start(3, Command({"sleep", "60"}));
  const Result<int64_t> second = crew_->Start(3, Command({"/bin/true"}));
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().message, "worker 3 still runs as process " + std::to_string(pid));
}

// ----------------------------------------------------------------------------------------------
// how workers end

TEST_P(WorkerProcessesTest, AnEndIsReportedWithItsStatusOrSignal) {
  const int64_t well = crew_.Start(0, Command({"/bin/true"}));
  const int64_t badly = crew_.Start(1, Shell("exit 3"));
  const int64_t by_signal = crew_.Start(2, Shell("kill -SEGV $$"));
  EXPECT_EQ(crew_.AwaitEnd(well), 0);
  EXPECT_EQ(crew_.AwaitEnd(badly), 3);
  EXPECT_EQ(crew_.AwaitEnd(by_signal), -SIGSEGV);
  EXPECT_EQ(crew_.WorkerOf(by_signal), 2U);
}

TEST_P(WorkerProcessesTest, ASignalReachesTheWorkerAndThoseWhoEndedAreLeftAlone) {
  const int64_t ended = crew_.Start(0, Command({"/bin/true"}));
  ASSERT_EQ(crew_.AwaitEnd(ended), 0);
  const int64_t pid = crew_.Start(1, Command({"sleep", "60"}));
  crew_->Signal(0, SIGTERM);
  crew_->Signal(0, SIGKILL);
  crew_->Signal(7, SIGTERM);
  crew_->Signal(1, SIGINT);
  EXPECT_EQ(crew_.AwaitEnd(pid), -SIGINT);
}

TEST_P(WorkerProcessesTest, AWorkerThatEndedIsReapedWithoutASweep) {
  const int64_t pid = crew_.Start(0, Command({"/bin/true"}));
  ASSERT_EQ(crew_.AwaitEnd(pid), 0);
  EXPECT_TRUE(EventuallyTrue([&] { return !FactsOf(static_cast<pid_t>(pid)).has_value(); }));
}

TEST_P(WorkerProcessesTest, AHundredWorkersRunAtOnce) {
  std::vector<int64_t> pids;
  for (size_t worker = 0; worker < 100; ++worker)
    pids.push_back(crew_.Start(worker, Command({"sleep", "60"})));
  EXPECT_EQ(std::set(pids.begin(), pids.end()).size(), 100U);
  for (size_t worker = 0; worker < 100; ++worker)
    crew_->Signal(worker, worker % 2 == 0 ? SIGTERM : SIGKILL);
  for (size_t worker = 0; worker < 100; ++worker) {
    EXPECT_EQ(crew_.AwaitEnd(pids[worker]), worker % 2 == 0 ? -SIGTERM : -SIGKILL);
    EXPECT_EQ(crew_.WorkerOf(pids[worker]), worker);
  }
}

TEST_P(WorkerProcessesTest, StartsAndStopsLeakNoDescriptors) {
  const auto cycle = [&](size_t worker) {
    WorkerCommand command = Shell("exec sleep 60");
    command.output_path = folder_.File("out");
    command.error_path = folder_.File("err");
    const int64_t pid = crew_.Start(worker, command);
    crew_->Signal(worker, SIGKILL);
    EXPECT_EQ(crew_.AwaitEnd(pid), -SIGKILL);
    EXPECT_FALSE(crew_->Start(worker, Command({"/nonexistent/tool"})));
    crew_->Sweep();
  };
  cycle(0);
  const size_t before = OpenDescriptors();
  for (size_t i = 0; i < 10; ++i) cycle(i % 2);
  EXPECT_EQ(OpenDescriptors(), before);
}

TEST(WorkerProcessesLifeTest, NothingStaysOfARunnerThatWasDestroyed) {
  struct sigaction action {};
  sigset_t mask;
  const size_t descriptors = OpenDescriptors();
  for (int i = 0; i < 3; ++i) {
    int64_t pid = 0;
    int64_t guardian = 0;
    {
      WorkerCrew crew;
      guardian = crew.guardian();
      pid = crew.Start(0, Command({"sleep", "60"}));
    }
    EXPECT_FALSE(FactsOf(static_cast<pid_t>(pid)));
    EXPECT_FALSE(FactsOf(static_cast<pid_t>(guardian)));
  }
  EXPECT_EQ(OpenDescriptors(), descriptors);
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1) << "there are no children";
  pthread_sigmask(SIG_SETMASK, nullptr, &mask);
  EXPECT_FALSE(sigismember(&mask, SIGCHLD));
  sigaction(SIGCHLD, nullptr, &action);
  EXPECT_EQ(action.sa_handler, SIG_DFL);
}

TEST(WorkerProcessesLifeTest, AnIgnoredSigchldCostsNoStatus) {
  struct sigaction ignore {};
  struct sigaction before {};
  ignore.sa_handler = SIG_IGN;
  sigaction(SIGCHLD, &ignore, &before);
  std::optional<int> code;
  {
    WorkerCrew crew;
    code = crew.AwaitEnd(crew.Start(0, Shell("exit 5")));
  }
  sigaction(SIGCHLD, &before, nullptr);
  EXPECT_EQ(code, 5);
}

TEST(WorkerProcessesLifeTest, ARunnerWithoutStandardStreamsStartsWorkers) {
  const TempDir folder;
  ChildProcess launcher = ChildProcess::Fork([&](int, int output) {
    for (int standard = 0; standard < 3; ++standard) close(standard);
    WorkerCrew crew;
    WorkerCommand command = Shell("echo out; echo err >&2");
    command.output_path = folder.File("out");
    command.error_path = folder.File("err");
    const int code = crew.AwaitEnd(crew.Start(0, command)).value_or(99);
    dprintf(output, "%d\n", code);
    return 0;
  });
  EXPECT_EQ(launcher.ReadLine(), "0");
  EXPECT_EQ(launcher.Wait(), 0);
  EXPECT_EQ(ReadFile(folder.File("out")), "out\n");
  EXPECT_EQ(ReadFile(folder.File("err")), "err\n");
}

}  // namespace
}  // namespace muster
