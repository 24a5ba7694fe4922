// The supervisor's life as text: each line has the second, the event, and the actions.
#include "launch/core/agent_machine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <sstream>
#include <string>
#include <string_view>

#include "base/text.h"

namespace muster {
namespace {

using Kind = AgentEvent::Kind;
using testing::ElementsAre;

std::string ToString(const AgentAction& action) {
  using Did = AgentAction::Kind;
  switch (action.kind) {
    case Did::kJoin:
      return "join";
    case Did::kStart:
      return Concat("start after ", action.restarts);
    case Did::kSignal: {
      std::string text = Concat("signal ", action.signal, " to");
      for (const size_t worker : action.workers) text += Concat(" ", worker);
      return text;
    }
    case Did::kReportFailure:
      return "tell failure";
    case Did::kSweep:
      return "sweep";
    case Did::kSucceeded:
      return "succeeded";
    case Did::kEnterBarrier:
      return "enter barrier";
    case Did::kClose:
      return "close";
    case Did::kLeave:
      return "leave";
    case Did::kLog:
      return "say";
    case Did::kEnd:
      return Concat("end ", action.status);
  }
  return "";
}

std::string Trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(' ');
  if (begin == text.npos) return "";
  return std::string(text.substr(begin, text.find_last_not_of(' ') - begin + 1));
}

/// "ended 1 -11", "signal 15", "membership", "time".
AgentEvent EventOf(std::istringstream& words) {
  static const std::map<std::string, Kind> kKinds = {
      {"begin", Kind::kBegin},
      {"joined", Kind::kJoined},
      {"joined-others", Kind::kJoined},
      {"blame", Kind::kBlame},
      {"join-failed", Kind::kJoinFailed},
      {"not-needed", Kind::kNotNeeded},
      {"ended", Kind::kWorkerEnded},
      {"start-failed", Kind::kStartFailed},
      {"stuck", Kind::kWorkerStuck},
      {"membership", Kind::kMembership},
      {"job-failed", Kind::kJobFailed},
      {"barrier-passed", Kind::kBarrierPassed},
      {"barrier-failed", Kind::kBarrierFailed},
      {"signal", Kind::kSignal},
      {"time", Kind::kTime},
  };
  std::string name;
  words >> name;
  AgentEvent event{.kind = kKinds.at(name), .text = name};
  if (event.kind == Kind::kWorkerEnded) words >> event.worker >> event.code;
  if (event.kind == Kind::kWorkerStuck) words >> event.worker;
  if (event.kind == Kind::kSignal) words >> event.signal;
  if (event.kind == Kind::kJoined) event.alone = name == "joined";
  if (event.kind == Kind::kBlame) std::getline(words, event.text);
  event.text = Trimmed(event.text);
  return event;
}

/// Plays the story, line by line.
void Play(AgentMachine& agent, const std::string& story) {
  std::istringstream lines(story);
  for (std::string line; std::getline(lines, line);) {
    if (Trimmed(line).empty()) continue;
    const size_t bar = line.find('|');
    ASSERT_NE(bar, line.npos) << line;
    std::istringstream words(line.substr(0, bar));
    double second = 0;
    words >> second;
    const Instant now{std::chrono::duration_cast<Duration>(std::chrono::duration<double>(second))};
    std::string done;
    for (const AgentAction& action : agent.Step(EventOf(words), now))
      done += Concat(done.empty() ? "" : ", ", ToString(action));
    ASSERT_EQ(done, Trimmed(std::string_view(line).substr(bar + 1))) << line;
  }
}

void Play(const AgentRules& rules, const std::string& story) {
  AgentMachine agent(rules);
  Play(agent, story);
}

constexpr AgentRules kTwo{.workers = 2};
constexpr AgentRules kTwoOnceMore{.workers = 2, .max_restarts = 1};

TEST(AgentMachineTest, Launch097WhoSucceedsEarlyLeavesTheOthersAtWork) {
  Play(kTwo, R"(
    0 begin          | join
    1 joined         | start after 0
    5 ended 0 0      |
    9 ended 1 0      | succeeded, enter barrier
   10 barrier-passed | close, end 0
   11 signal 15      |
  )");
}

TEST(AgentMachineTest, Launch079OneFailureEndsTheOthersAndTheJob) {
  AgentMachine agent({.workers = 3});
  Play(agent, R"(
    0 begin       | join
    1 joined      | start after 0
    5 ended 1 3   | signal 15 to 0 2, close
    6 ended 0 -15 |
    7 ended 2 0   | sweep, end 1
  )");
  const auto at = [](int second) { return Instant{std::chrono::seconds(second)}; };
  EXPECT_THAT(
      agent.failures(),
      ElementsAre(WorkerFailure{.worker = 1, .code = 3, .at = at(5)},
                  WorkerFailure{.worker = 0, .code = -15, .at = at(6), .signalled_at = at(5)}))
      << "who heeded the signal and ended well is not among them";
}

TEST(AgentMachineTest, Launch087ItTriesAgainAsOftenAsItMay) {
  Play({.workers = 1, .max_restarts = 2}, R"(
    0 begin       | join
    1 joined      | start after 0
    2 ended 0 1   | sweep, say, join
    3 joined      | start after 1
    4 ended 0 -11 | sweep, say, join
    5 joined      | start after 2
    6 ended 0 0   | succeeded, enter barrier
  )");
}

TEST(AgentMachineTest, Launch088AndNotMoreOften) {
  Play({.workers = 1, .max_restarts = 1}, R"(
    0 begin     | join
    1 joined    | start after 0
    2 ended 0 1 | sweep, say, join
    3 joined    | start after 1
    4 ended 0 1 | close, sweep, end 1
  )");
}

TEST(AgentMachineTest, Launch093OthersWhoComeOrGoCostNoRestart) {
  Play(kTwo, R"(
    0 begin       | join
    1 joined      | start after 0
    2 membership  | signal 15 to 0 1
    3 ended 0 -15 |
    3 membership  |
    4 ended 1 1   | sweep, say, join
    5 joined      | start after 0
  )");
}

TEST(AgentMachineTest, Launch090WhoIgnoresTheSignalIsKilledAfterTheGrace) {
  Play(kTwo, R"(
    0 begin      | join
    1 joined     | start after 0
    2 ended 0 1  | signal 15 to 1, close
   31.9 time     |
   32 time       | signal 9 to 1
   33 ended 1 -9 | sweep, end 1
  )");
}

TEST(AgentMachineTest, Launch152TheGraceIsAsLongAsItIsTold) {
  Play({.workers = 2, .grace = 2s}, R"(
    0 begin     | join
    1 joined    | start after 0
    2 ended 0 1 | signal 15 to 1, close
    4 time      | signal 9 to 1
  )");
}

TEST(AgentMachineTest, Launch153WhatCannotBeKilledIsLeftBehind) {
  Play(kTwoOnceMore, R"(
    0 begin     | join
    1 joined    | start after 0
    2 ended 0 1 | signal 15 to 1
   32 time      | signal 9 to 1
   42 time      | say, sweep, say, join
   43 joined    | start after 1
  )");
}

TEST(AgentMachineTest, Launch123ASignalIsHandedOnAndTheRendezvousStaysOpen) {
  Play(kTwoOnceMore, R"(
    0 begin      | join
    1 joined     | start after 0
    2 signal 1   | say, signal 1 to 0 1
    3 ended 0 -1 |
    3 ended 1 0  | sweep, leave, end 1
  )");
}

TEST(AgentMachineTest, Launch128ASecondSignalGivesAnotherGraceAndAThirdNone) {
  Play(kTwo, R"(
    0 begin    | join
    1 joined   | start after 0
    2 signal 2 | say, signal 2 to 0 1
   20 signal 2 | say, signal 15 to 0 1
   32 time     |
   50 time     | signal 9 to 0 1
  )");
  Play(kTwo, R"(
    0 begin    | join
    1 joined   | start after 0
    2 signal 2 | say, signal 2 to 0 1
    3 signal 2 | say, signal 15 to 0 1
    4 signal 2 | say, signal 9 to 0 1
    5 ended 0 -9 |
    5 ended 1 -9 | sweep, leave, end 1
  )");
}

TEST(AgentMachineTest, ASignalWhileTheyAreStoppedForAnotherReasonIsTheLastWord) {
  Play(kTwoOnceMore, R"(
    0 begin      | join
    1 joined     | start after 0
    2 ended 0 1  | signal 15 to 1
    3 signal 15  | say, signal 15 to 1
    4 ended 1 -15 | sweep, leave, end 1
  )");
}

TEST(AgentMachineTest, ASignalIsExplainedAtOnceWithTheTimeThatTheWorkersHave) {
  AgentMachine machine({.grace = 30s});
  const Instant now{1s};
  machine.Step({.kind = Kind::kBegin}, now);
  machine.Step({.kind = Kind::kJoined}, now);
  std::vector<std::string> texts;
  for (const int signal : {2, 15, 15}) {
    for (const AgentAction& action : machine.Step({.kind = Kind::kSignal, .signal = signal}, now)) {
      if (action.kind == AgentAction::Kind::kLog) texts.push_back(action.text);
    }
  }
  EXPECT_THAT(
      texts,
      ElementsAre("SIGINT came: the workers receive it; those that are left are killed in 30 s (a "
                  "second signal sends SIGTERM, a third one kills them)",
                  "SIGTERM came again: the workers receive SIGTERM; those that are left are killed "
                  "in 30 s (another signal kills them)",
                  "SIGTERM came again: the workers are killed"));
}

TEST(AgentMachineTest, Launch130ASignalWhileItJoinsEndsItAtOnce) {
  Play(kTwo, R"(
    0 begin     | join
    1 signal 15 | leave, end 1
    2 joined    |
  )");
}

TEST(AgentMachineTest, Launch129ASignalInTheBarrierIsAFailure) {
  Play({.workers = 1}, R"(
    0 begin     | join
    1 joined    | start after 0
    2 ended 0 0 | succeeded, enter barrier
    3 signal 15 | leave, end 1
  )");
}

TEST(AgentMachineTest, Launch132OthersWhoFailDoNotMakeASuccessAFailure) {
  constexpr const char* kUntilTheBarrier = R"(
    0 begin     | join
    1 joined    | start after 0
    2 ended 0 0 | succeeded, enter barrier
  )";
  for (const char* end : {"9 job-failed | say, end 0", "9 membership | say, leave, end 0",
                          "9 barrier-failed | say, end 0", "302 time | say, end 0"}) {
    AgentMachine agent({.workers = 1});
    Play(agent, kUntilTheBarrier);
    Play(agent, end);
    EXPECT_TRUE(agent.ended()) << end;
  }
}

TEST(AgentMachineTest, ANodeWithAWorkerInUninterruptibleSleepLeavesAndTheJobGoesOnWithoutIt) {
  Play(kTwoOnceMore, R"(
    0 begin         | join
    1 joined-others | start after 0
    5 stuck 1       | say, signal 15 to 0 1
    6 stuck 1       |
    6 membership    |
    7 ended 0 -15   | tell failure
   35 time          | signal 9 to 1
   45 time          | say, sweep, leave, end 1
   46 stuck 1       |
  )");
}

TEST(AgentMachineTest, AWorkerThatIsStuckWhileItIsStoppedKeepsItsNodeFromARestart) {
  Play(kTwoOnceMore, R"(
    0 begin       | join
    1 joined      | start after 0
    5 ended 0 3   | signal 15 to 1
    6 stuck 0     |
    7 stuck 1     | say
    8 ended 1 0   | sweep, leave, end 1
  )");
}

TEST(AgentMachineTest, AWorkerThatIsStuckInAJobThatEndsChangesNothing) {
  Play(kTwo, R"(
    0 begin       | join
    1 joined      | start after 0
    5 ended 0 3   | signal 15 to 1, close
    7 stuck 1     |
    8 ended 1 0   | sweep, end 1
  )");
}

TEST(AgentMachineTest, AJobThatFailedElsewhereEndsHereWithinTheGrace) {
  Play(kTwoOnceMore, R"(
    0 begin      | join
    1 joined     | start after 0
    2 job-failed | signal 15 to 0 1
    3 ended 0 0  |
    4 ended 1 0  | sweep, end 1
  )");
}

TEST(AgentMachineTest, ARestartTurnsIntoTheEndWhenTheJobFails) {
  Play(kTwoOnceMore, R"(
    0 begin      | join
    1 joined     | start after 0
    2 ended 0 1  | signal 15 to 1
    3 job-failed |
    4 ended 1 0  | sweep, end 1
  )");
}

TEST(AgentMachineTest, Launch045AProgramThatCannotBeStartedIsNotTriedAgain) {
  Play(kTwoOnceMore, R"(
    0 begin        | join
    1 joined       | start after 0
    1 start-failed | close, signal 15 to 0 1
    1 ended 1 0    |
    2 ended 0 -15  | sweep, end 1
  )");
}

TEST(AgentMachineTest, WorkersThatFallWithAnotherNodeHaveNotFailed) {
  Play(kTwo, R"(
    0 begin         | join
    1 joined-others | start after 0
    2 ended 0 1     | tell failure, signal 15 to 1
    2.1 ended 1 -15 | tell failure
    2.2 blame       |
    2.5 membership  | sweep, say, join
    3 joined-others | start after 0
    4 membership    | signal 15 to 0 1
  )");
}

TEST(AgentMachineTest, Launch092WhoFailedFirstPaysForTheRestartOfAll) {
  constexpr const char* kUntilTheFailure = R"(
    0 begin         | join
    1 joined-others | start after 0
    2 ended 0 1     | tell failure, signal 15 to 1
    2.1 ended 1 -15 | tell failure
  )";
  AgentMachine first(kTwoOnceMore);
  Play(first, kUntilTheFailure);
  Play(first, R"(
    2.2 blame       |
    2.6 time        |
    2.71 time       | sweep, say, join
    3 joined-others | start after 1
  )");
  AgentMachine second(kTwoOnceMore);
  Play(second, kUntilTheFailure);
  Play(second, R"(
    2.2 blame rank 3 on b ended with status 1 |
    2.9 time        |
    3 membership    | sweep, say, join
    4 joined-others | start after 0
  )");
}

TEST(AgentMachineTest, WhoFailedFirstMayNeedAllOfItsGraceToComeAgain) {
  Play(kTwoOnceMore, R"(
    0 begin         | join
    1 joined-others | start after 0
    2 ended 0 1     | tell failure, signal 15 to 1
    2.1 ended 1 -15 | tell failure
    2.2 blame rank 3 on b ended with status 1 |
    8 time          |
   32.3 membership  | sweep, say, join
   33 joined-others | start after 0
  )");
}

TEST(AgentMachineTest, WhereNobodyIsHeardOfTheFailureIsOurs) {
  Play({.workers = 2, .grace = 2s}, R"(
    0 begin         | join
    1 joined-others | start after 0
    2 ended 0 1     | tell failure, signal 15 to 1
    2.2 blame somebody else |
    4 time          | signal 9 to 1
    9.1 time        |
    9.21 time       | close
    9.3 ended 1 -9  | tell failure, sweep, end 1
  )");
}

TEST(AgentMachineTest, AStubbornWorkerIsKilledAlsoWhileTheVerdictIsOut) {
  Play({.workers = 2, .grace = 500ms}, R"(
    0 begin         | join
    1 joined-others | start after 0
    2 ended 0 1     | tell failure, signal 15 to 1
    2.5 time        | signal 9 to 1
    2.6 ended 1 -9  | tell failure
    2.71 time       | close, sweep, end 1
  )");
}

TEST(AgentMachineTest, ASpareThatIsNotNeededEndsWell) {
  Play(kTwo, R"(
    0 begin      | join
    9 not-needed | end 0
  )");
  Play(kTwo, R"(
    0 begin       | join
    9 join-failed | end 1
  )");
}

}  // namespace
}  // namespace muster
