#include "os/posix/process_tree.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <vector>

#include "support/child_process.h"
#include "support/eventually.h"
#include "support/temp_dir.h"
#include "support/worker_crew.h"

namespace muster {
namespace {

using namespace muster::test;  // NOLINT: the words of these tests
using namespace std::string_view_literals;

bool Contains(const std::vector<ProcessFacts>& found, pid_t pid) {
  return std::ranges::find(found, pid, &ProcessFacts::pid) != found.end();
}

/// Waits for the end of its input. Killed at the end of the test at the latest.
ChildProcess Sleeper() {
  return ChildProcess::Fork([](int input, int) {
    char byte;
    while (read(input, &byte, 1) > 0) {
    }
    return 0;
  });
}

TEST(ProcessTreeTest, AProcessIsToldByItsFacts) {
  ChildProcess child = Sleeper();
  const std::optional<ProcessFacts> facts = FactsOf(child.pid());
  ASSERT_TRUE(facts);
  EXPECT_EQ(facts->pid, child.pid());
  EXPECT_EQ(facts->parent, getpid());
  EXPECT_EQ(facts->group, getpgrp());
  EXPECT_EQ(facts->session, getsid(0));
  EXPECT_GE(facts->started, FactsOf(getpid())->started);
  EXPECT_FALSE(facts->IsDead());
  EXPECT_TRUE(Contains(AllProcesses(), child.pid()));
}

TEST(ProcessTreeTest, ANameThatLooksLikeFactsIsStillAName) {
  ChildProcess child = ChildProcess::Fork([](int input, int output) {
    prctl(PR_SET_NAME, ") Z 1 1 (");
    dprintf(output, "\n");
    char byte;
    return static_cast<int>(read(input, &byte, 1));
  });
  ASSERT_TRUE(child.ReadLine());
  EXPECT_EQ(FactsOf(child.pid())->parent, getpid());
  EXPECT_FALSE(FactsOf(child.pid())->IsDead());
}

TEST(ProcessTreeTest, AZombieIsDeadAndAReapedOneIsNotThere) {
  ChildProcess child = Sleeper();
  child.CloseInput();
  EXPECT_TRUE(EventuallyTrue([&] { return FactsOf(child.pid())->IsDead(); }));
  const pid_t pid = child.pid();
  EXPECT_EQ(child.Wait(), 0);
  EXPECT_FALSE(FactsOf(pid));
}

TEST(ProcessTreeTest, ASignalIsNotSentToANewOwnerOfThePid) {
  ChildProcess child = Sleeper();
  ProcessFacts facts = FactsOf(child.pid()).value();
  ++facts.started;
  SignalProcess(facts, SIGKILL);
  EXPECT_FALSE(FactsOf(child.pid())->IsDead());
  --facts.started;
  SignalProcess(facts, SIGKILL);
  EXPECT_EQ(child.Wait(), -SIGKILL);
}

TEST(ProcessTreeTest, AMarkIsAWholeItemOfItsVariable) {
  const std::vector<std::string> mark = {"12-34.5"};
  EXPECT_TRUE(CarriesMark("A=1\0MUSTER_AGENT=12-34.5\0B=2"sv, mark));
  EXPECT_TRUE(CarriesMark("MUSTER_AGENT=outer.1,12-34.5\0"sv, mark));
  EXPECT_TRUE(CarriesMark("MUSTER_AGENT=12-34.5,inner.1"sv, mark));
  EXPECT_FALSE(CarriesMark(""sv, mark));
  EXPECT_FALSE(CarriesMark("MUSTER_AGENT"sv, mark));
  EXPECT_FALSE(CarriesMark("MUSTER_AGENT="sv, mark));
  EXPECT_FALSE(CarriesMark("MUSTER_AGENT=12-34.56"sv, mark));
  EXPECT_FALSE(CarriesMark("MUSTER_AGENT=112-34.5"sv, mark));
  EXPECT_FALSE(CarriesMark("MUSTER_AGENT_OF=12-34.5"sv, mark));
  EXPECT_FALSE(CarriesMark("X=MUSTER_AGENT=12-34.5"sv, mark));
  EXPECT_FALSE(CarriesMark("NOTE=12-34.5"sv, mark));
}

TEST(ProcessTreeTest, AMarkThatEndsInADotStandsForAllThatBeginWithIt) {
  const std::vector<std::string> mark = {"12-34."};
  EXPECT_TRUE(CarriesMark("MUSTER_AGENT=outer.1,12-34.56"sv, mark));
  EXPECT_FALSE(CarriesMark("MUSTER_AGENT=112-34.5"sv, mark));
  EXPECT_FALSE(CarriesMark("MUSTER_AGENT=12-345.6"sv, mark));
}

/// A child that leads a session and has a child of its own in it, and one in yet another session.
struct Family {
  Family()
      : head(ChildProcess::Fork([](int input, int output) {
          setsid();
          const pid_t same = fork();
          if (same == 0) return Sleep(input);
          const pid_t other = fork();
          if (other == 0) {
            setsid();
            return Sleep(input);
          }
          EventuallyTrue([&] { return getsid(other) == other; });
          dprintf(output, "%d\n%d\n", same, other);
          return Sleep(input);
        })),
        same_session(std::stoi(head.ReadLine().value())),
        other_session(std::stoi(head.ReadLine().value())) {}
  ~Family() {
    // Orphans, unless the test has ended them: they end only when the pipe of the head is closed.
    head.CloseInput();
    EventuallyTrue([this] { return IsGone(same_session) && IsGone(other_session); });
  }

  static int Sleep(int input) {
    char byte;
    while (read(input, &byte, 1) > 0) {
    }
    return 0;
  }

  ChildProcess head;
  const pid_t same_session;
  const pid_t other_session;
};

TEST(ProcessTreeTest, KinAreTheSessionOfALeaderAndAllDescendants) {
  Family family;
  const auto found = FindFamily({.leaders = {family.head.pid()}});
  EXPECT_EQ(found.size(), 3U);
  EXPECT_TRUE(Contains(found, family.head.pid()));
  EXPECT_TRUE(Contains(found, family.same_session));
  EXPECT_TRUE(Contains(found, family.other_session));
}

TEST(ProcessTreeTest, ANewOwnerOfALeadersNumberIsNoKin) {
  Family family;
  const pid_t head = family.head.pid();
  const std::optional<ProcessFacts> facts = FactsOf(head);
  ASSERT_TRUE(facts);
  EXPECT_FALSE(FindFamily({.leaders = {{head, facts->started}}}).empty());
  EXPECT_TRUE(FindFamily({.leaders = {{head, facts->started - 1}}}).empty());
  EXPECT_TRUE(EndFamily({.leaders = {{head, facts->started - 1}}}, 10s));
  EXPECT_TRUE(FactsOf(head) && !FactsOf(head)->IsDead());
}

/// Kills the group of a child in a process with an empty /proc (without root: in an ordinary
/// process, which tests less); 0 if the child was ended by SIGKILL.
int KillWithoutProc() {
  const bool is_hidden = unshare(CLONE_NEWNS) == 0 &&
                         mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
                         mount("none", "/proc", "tmpfs", 0, nullptr) == 0;
  if (is_hidden == FactsOf(getpid()).has_value()) return 5;
  int ready[2];
  if (pipe(ready) != 0) return 1;
  const pid_t leader = fork();
  if (leader == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);  // however the test ends
    setsid();
    const bool said = write(ready[1], "r", 1) == 1;
    while (said) pause();
    _exit(1);
  }
  char heard = 0;
  if (read(ready[0], &heard, 1) != 1) return 2;
  EndFamily({.leaders = {leader}}, 10s);
  int status = 0;
  alarm(60);  // otherwise it would wait without end for a process that still runs
  if (waitpid(leader, &status, 0) != leader) return 3;
  return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL ? 0 : 4;
}

TEST(ProcessTreeTest, WhereProcHidesALeaderItsGroupIsKilled) {
  const pid_t child = fork();
  if (child == 0) _exit(KillWithoutProc());
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST(ProcessTreeTest, WhoIsSparedIsNotFoundNorAreOthersThroughIt) {
  Family family;
  const auto found = FindFamily({.leaders = {family.head.pid()}, .spared = {family.head.pid()}});
  EXPECT_EQ(found.size(), 1U);
  EXPECT_TRUE(Contains(found, family.same_session)) << "by its session";
}

TEST(ProcessTreeTest, ChildrenInOtherSessionsWereLeftToUs) {
  Family family;
  ChildProcess own = Sleeper();
  const auto found = FindFamily({.orphans = true});
  EXPECT_TRUE(Contains(found, family.head.pid()));
  EXPECT_TRUE(Contains(found, family.other_session));
  EXPECT_FALSE(Contains(found, own.pid()));
  EXPECT_FALSE(Contains(found, getpid()));
}

TEST(ProcessTreeTest, BearersOfAMarkAreFoundWithTheirDescendants) {
  const TempDir folder;
  // Its child has no mark. Each of the two is in its own session.
  ChildProcess bearer =
      ChildProcess::Run({"setsid", "env", "MUSTER_AGENT=process-tree-test.1", "/bin/sh", "-c",
                         "env -i setsid sleep 60 & echo $! > " + folder.File("child") + "; wait"});
  const auto child = static_cast<pid_t>(AwaitPid(folder.File("child")));
  ASSERT_TRUE(EventuallyTrue([&] { return getsid(child) == child; }));
  const auto found = FindFamily({.marks = {"process-tree-test.1"}});
  EXPECT_TRUE(Contains(found, bearer.pid()));
  EXPECT_TRUE(Contains(found, child));
  EXPECT_EQ(found.size(), 2U);
  EXPECT_TRUE(FindFamily({.marks = {"process-tree-test.2"}}).empty());
  EXPECT_TRUE(EndFamily({.marks = {"process-tree-test."}}, 10s));
  EXPECT_TRUE(IsGone(child));
  EXPECT_EQ(bearer.Wait(), -SIGKILL);
}

TEST(ProcessTreeTest, AllKinAreEnded) {
  Family family;
  EXPECT_TRUE(EndFamily({.leaders = {family.head.pid()}}, 10s));
  EXPECT_TRUE(IsGone(family.same_session));
  EXPECT_TRUE(IsGone(family.other_session));
  EXPECT_EQ(family.head.Wait(), -SIGKILL);
}

TEST(ProcessTreeTest, ToEndNobodyTakesNoTime) {
  const Stopwatch watch;
  EXPECT_TRUE(EndFamily({}, 60s));
  EXPECT_LT(watch.Elapsed(), seconds(10));
}

}  // namespace
}  // namespace muster
