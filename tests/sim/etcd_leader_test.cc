// One leader, with an etcd whose answers to its writes the test decides: what it writes, in which
// order, and its reaction to writes that are lost, late or overtaken.
#include "etcd/leader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/instrumented.h"
#include "base/text.h"
#include "etcd/records.h"
#include "sim/etcd_fixture.h"
#include "sim/held_etcd.h"
#include "sim/network.h"
#include "sim/process.h"

namespace muster::sim {
namespace {

using testing::Contains;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

const RunSettings kTwo{.min_nodes = 2, .max_nodes = 2, .last_call = 1s, .grace = 0s};

class Office final : public EtcdLeader::Owner {
 public:
  ~Office() override {
    leader.reset();
    process.Kill(Network::Ending::kSilent);
  }

  muster::Node Name(uint32_t number) const { return {Concat("10.1.0.", number), number, 0}; }
  /// A member's own record, as it would write it.
  void Write(uint32_t number, wire::EtcdMember::Request request, int64_t said = 1,
             int64_t round = -1, int64_t lease = 0) {
    const wire::EtcdMember member{.hello = {.run_id = "run",
                                            .node = Name(number),
                                            .settings = kTwo,
                                            .bootstrap_port = 1000,
                                            .round = round},
                                  .serial = said,
                                  .request = request,
                                  .join_timeout = 60s};
    etcd.By({.then = {Put(keys.Member(Name(number)), wire::Write(member), lease)}});
  }
  void Join(uint32_t number, int64_t lease = 0) {
    Write(number, wire::EtcdMember::Request::kJoin, 1, -1, lease);
  }

  /// Another leader, or the first one. Unfinished writes of the last one are not executed, and get
  /// no answer.
  void Elect(uint32_t number) {
    leader.reset();
    for (const size_t call : etcd.Open()) etcd.Lose(call);
    const std::string value = wire::WriteLeader(Name(number), number);
    etcd.By({.then = {Delete({.begin = keys.Leader()})}});
    const int64_t epoch = etcd.By({.then = {Put(keys.Leader(), value)}}).revision;
    options.hello = {.run_id = "run", .node = Name(number)};
    leader = std::make_unique<EtcdLeader>(
        etcd, loop, options, EtcdPair{.key = keys.Leader(), .value = value, .created = epoch},
        number, *this);
    leader->Start();
  }
  void Pass(Duration time = 200ms) { scheduler.RunUntil(scheduler.now() + time); }
  /// Executes and answers every request until there are none.
  void Grant() {
    for (int i = 0; i < 50; ++i) {
      Pass();
      if (etcd.Open().empty()) return;
      for (const size_t call : etcd.Open()) etcd.Succeed(call);
    }
    FAIL() << "it never stops";
  }
  /// It has read everything, and waits for members.
  void TakeOver(uint32_t number) {
    Elect(number);
    Pass();
    ASSERT_EQ(etcd.Open().size(), 1u);
    etcd.Succeed(etcd.Open().front());
    Pass();
  }
  /// Executes calls until one that writes such a key is under way; returns that one.
  std::optional<size_t> Until(const std::string& prefix) {
    for (int i = 0; i < 50; ++i) {
      Pass();
      for (const size_t call : etcd.Open()) {
        const auto wrote = etcd.KeysOf(call);
        if (std::ranges::any_of(wrote, [&](const auto& key) { return key.starts_with(prefix); }))
          return call;
        etcd.Succeed(call);
      }
    }
    ADD_FAILURE() << "nothing is written below " << prefix;
    return std::nullopt;
  }

  wire::EtcdNotice NoticeOf(uint32_t number) const {
    const std::string key = keys.Notice(Name(number));
    const auto notice = wire::Read<wire::EtcdNotice>(key, etcd.ValueOf(key));
    return notice ? *notice : wire::EtcdNotice{};
  }
  wire::EtcdRun RunRecord() const {
    const auto run = wire::Read<wire::EtcdRun>(keys.Run(), etcd.ValueOf(keys.Run()));
    return run ? *run : wire::EtcdRun{};
  }

  void OnDeposed() override { ++deposed; }
  void OnBroken(const Error& why) override { broken = why; }
  void OnLeaderTrouble(const std::string& why) override { troubles.push_back(why); }

  EtcdLinkOptions options{.connect = nullptr, .hello = {.run_id = "run", .node = {}}};
  wire::EtcdKeys keys{options.prefix, "run"};
  Scheduler scheduler;
  Trace trace;
  Network network{scheduler, {}, 1, trace};
  SimProcess process{scheduler, network, network.AddHost("10.1.0.0"), 2, {.start = 1h}, 2};
  SimLoop loop{process};
  HeldEtcd etcd{loop};
  std::unique_ptr<EtcdLeader> leader;
  int deposed = 0;
  std::optional<Error> broken;
  std::vector<std::string> troubles;
};

TEST(EtcdLeaderTest, ANodeThatDoesNotLeadReadsNothing) {
  Office office;
  office.Join(1);
  office.Elect(1);
  office.etcd.By({.then = {Delete({.begin = office.keys.Leader()})}});
  office.Grant();
  EXPECT_EQ(office.deposed, 1);
  EXPECT_EQ(office.etcd.calls.size(), 1u);
}

TEST(EtcdLeaderTest, AReadThatIsLostIsMadeAgain) {
  Office office;
  office.Join(1);
  office.Elect(1);
  office.etcd.Lose(0);
  office.Pass(2s);
  EXPECT_THAT(office.troubles, Contains(HasSubstr("no answer")));
  office.Grant();
  EXPECT_EQ(office.NoticeOf(1).stage.kind, Push::Kind::kAdmitted);
}

// Returns whether no node is notified of a round before it is recorded: first its plan, then that
// it is the last one.
bool NoNodeIsNotifiedOfARoundThatMayBeLost() {
  Office office;
  office.Join(1);
  office.Join(2);
  office.TakeOver(1);
  bool is_planned = false;
  bool is_recorded = false;
  for (int i = 0; i < 50; ++i) {
    for (const size_t call : office.etcd.Open()) {
      for (const std::string& key : office.etcd.KeysOf(call)) {
        if (key == office.keys.Run() && !is_planned) return false;
        if (key.starts_with(office.keys.Notices()) && !is_recorded) return false;
      }
      const std::string first = office.etcd.KeysOf(call).front();
      office.etcd.Make(call);
      EXPECT_LE(office.etcd.Open().size(), 1u);
      office.Pass();  // nothing follows before it is answered
      EXPECT_EQ(office.etcd.Open(), std::vector<size_t>{call});
      office.etcd.Answer(call);
      is_planned = is_planned || first.starts_with(office.keys.Plans());
      is_recorded = is_recorded || first == office.keys.Run();
    }
    office.Pass();
  }
  return office.NoticeOf(1).place.round == 0 && office.NoticeOf(2).place.round == 0;
}

TEST(EtcdLeaderTest, NoNodeIsNotifiedOfARoundThatMayBeLost) {
  EXPECT_TRUE(NoNodeIsNotifiedOfARoundThatMayBeLost());
}

TEST(EtcdLeaderTest, ARoundWhosePlanWasLostIsWrittenAgainAndReportedOnce) {
  Office office;
  office.Join(1);
  office.Join(2);
  office.TakeOver(1);
  const auto plan = office.Until(office.keys.Plans());
  ASSERT_TRUE(plan);
  office.etcd.Lose(*plan);
  office.Grant();
  EXPECT_EQ(office.RunRecord().round, 0);
  EXPECT_EQ(office.NoticeOf(1).place.who, office.RunRecord().plan);
  EXPECT_EQ(office.NoticeOf(2).place.who, office.RunRecord().plan);
  // The abandoned write is finally executed.
  const int64_t revision = office.etcd.state.revision();
  office.etcd.Make(*plan);
  EXPECT_EQ(office.etcd.state.revision(), revision);
}

TEST(EtcdLeaderTest, ARoundOfWhichOnlyTheAnswerWasLostIsNotCompletedTwice) {
  Office office;
  office.Join(1);
  office.Join(2);
  office.TakeOver(1);
  const auto run = office.Until(office.keys.Run());
  ASSERT_TRUE(run);
  office.etcd.Make(*run);
  const std::string plan = office.RunRecord().plan;
  office.etcd.Lose(*run);
  office.Grant();
  EXPECT_EQ(office.RunRecord().plan, plan);
  EXPECT_EQ(office.NoticeOf(1).place.round, 0);
  EXPECT_EQ(office.deposed, 0);
}

TEST(EtcdLeaderTest, APlanThatWasNotReportedIsNotTheNextLeaders) {
  Office office;
  office.Join(1);
  office.Join(2);
  office.TakeOver(1);
  const auto run = office.Until(office.keys.Run());
  ASSERT_TRUE(run);  // the plan is written, the record is not
  office.TakeOver(2);
  office.Grant();
  EXPECT_EQ(office.RunRecord().round, 0)
      << "the first one, because no node was notified of another";
  EXPECT_THAT(office.RunRecord().plan, HasSubstr("-"));
  // The first leader's unfinished write is finally executed; it does not lead any more.
  const std::string plan = office.RunRecord().plan;
  office.etcd.Make(*run);
  EXPECT_EQ(office.RunRecord().plan, plan);
  std::vector<std::string> plans;
  for (const auto& [key, pair] : office.etcd.state.pairs()) {
    if (key.starts_with(office.keys.Plans())) plans.push_back(key);
  }
  EXPECT_THAT(plans, ElementsAre(office.keys.Plan(plan, 0))) << "and its plan is cleared away";
}

TEST(EtcdLeaderTest, TheNextLeaderReportsWhatTheLastOneHadPromised) {
  Office office;
  office.Join(1);
  office.Join(2);
  office.TakeOver(1);
  ASSERT_TRUE(office.Until(office.keys.Notices()));  // not executed: the leader is gone
  const std::string plan = office.RunRecord().plan;
  ASSERT_EQ(office.NoticeOf(1).place.round, -1);
  office.TakeOver(2);
  office.Grant();
  EXPECT_EQ(office.RunRecord().round, 0);
  EXPECT_EQ(office.RunRecord().plan, plan);
  for (const uint32_t number : {1u, 2u}) {
    EXPECT_EQ(office.NoticeOf(number).place.round, 0);
    EXPECT_EQ(office.NoticeOf(number).place.who, plan);
  }
}

// Returns whether a replaced leader writes nothing more, whichever nodes come.
bool ALeaderThatWasFollowedWritesNothing() {
  Office office;
  office.TakeOver(1);
  const std::string other = wire::WriteLeader(office.Name(2), 2);
  office.etcd.By({.then = {Delete({.begin = office.keys.Leader()})}});
  office.etcd.By({.then = {Put(office.keys.Leader(), other)}});
  office.Join(1);
  office.Join(2);
  office.etcd.Tell();
  office.Grant();
  return office.deposed >= 1 && office.RunRecord().round < 0 && office.NoticeOf(1).session == 0;
}

TEST(EtcdLeaderTest, ALeaderThatWasFollowedWritesNothing) {
  EXPECT_TRUE(ALeaderThatWasFollowedWritesNothing());
}

// Returns whether a leader's write is void if the leader had to read everything again before it is
// executed.
bool AnOldWriteDoesNotBringBackAnOldRun() {
  Office office;
  office.Join(1);
  office.Join(2);
  office.TakeOver(1);
  const auto run = office.Until(office.keys.Run());
  if (!run) return false;
  const EtcdTransaction late = office.etcd.calls[*run].transaction;
  office.etcd.Succeed(*run);
  office.Grant();
  for (const uint32_t number : {1u, 2u})
    office.Write(number, wire::EtcdMember::Request::kJoin, 2, 0);
  office.etcd.Tell();
  office.Grant();
  EXPECT_EQ(office.RunRecord().round, 1);
  static_cast<void>(office.etcd.state.Commit(late));
  return office.RunRecord().round == 1;
}

TEST(EtcdLeaderTest, AnOldWriteDoesNotBringBackAnOldRun) {
  EXPECT_TRUE(AnOldWriteDoesNotBringBackAnOldRun());
}

TEST(EtcdLeaderTest, AnOvertakenLeaderReadsEverythingAgainAndContinues) {
  Office office;
  office.Join(1);
  office.TakeOver(1);
  office.Grant();
  office.etcd.By({.then = {Put(office.keys.Turn(), "a late write of its own")}});
  office.Join(2);
  office.etcd.Tell();
  office.Grant();
  EXPECT_EQ(office.deposed, 0);
  // The round that it could not record is not counted twice.
  EXPECT_EQ(office.RunRecord().round, 1);
  EXPECT_EQ(office.NoticeOf(1).place.round, 1);
  EXPECT_EQ(office.NoticeOf(2).place.round, 1);
}

TEST(EtcdLeaderTest, AfterALostConnectionItFindsNodesThatCameAndWent) {
  Office office;
  office.Join(1);
  office.Join(3);
  office.TakeOver(1);
  office.etcd.By({.then = {Delete({.begin = office.keys.Member(office.Name(3))})}});
  office.etcd.Trouble();
  office.Grant();
  ASSERT_EQ(office.RunRecord().round, 0);
  EXPECT_EQ(office.NoticeOf(1).lost.count, 1);
  EXPECT_THAT(office.NoticeOf(1).lost.who, StartsWith("10.1.0.3"));
  office.Join(2);
  office.Write(1, wire::EtcdMember::Request::kJoin, 2, 0);
  office.etcd.Trouble();
  office.Grant();
  EXPECT_EQ(office.RunRecord().round, 1);
  EXPECT_EQ(office.NoticeOf(2).place.round, 1);
}

TEST(EtcdLeaderTest, AfterALostConnectionItFindsThatItsWritesAreGone) {
  Office office;
  office.Join(1);
  office.Join(2);
  office.TakeOver(1);
  const EtcdState backup = office.etcd.state;
  office.Grant();
  ASSERT_EQ(office.NoticeOf(2).place.round, 0);
  office.etcd.state.Restore(backup);
  ASSERT_EQ(office.NoticeOf(2).place.round, -1);
  office.etcd.Trouble();
  office.Grant();
  EXPECT_EQ(office.NoticeOf(1).place.round, 1)
      << "those that requested it, and no round is counted twice";
  EXPECT_EQ(office.NoticeOf(2).place.round, 1);
  EXPECT_EQ(office.NoticeOf(2).place.who, office.RunRecord().plan);
}

// The revisions before and after the restore are equal by chance. The node ignores notices to its
// other lease.
TEST(EtcdLeaderTest, ASessionWithAnotherLeaseIsAnotherSession) {
  Office office;
  const int64_t first = office.etcd.state.Grant(60s, Instant{}).id;
  const int64_t second = office.etcd.state.Grant(60s, Instant{}).id;
  office.Join(1);
  office.TakeOver(1);
  office.Grant();
  const EtcdState backup = office.etcd.state;
  office.Join(2, first);
  office.etcd.Tell();
  office.Pass();
  ASSERT_FALSE(office.etcd.Open().empty()) << "its write is under way, and was not executed";
  office.etcd.state.Restore(backup);
  office.Join(2, second);
  office.etcd.Trouble();
  office.Grant();
  EXPECT_EQ(office.NoticeOf(2).lease, second);
  EXPECT_EQ(office.NoticeOf(1).lost.count, 1) << "of the session before the restore";
}

#ifdef MUSTER_INSTRUMENTED

class EtcdLeaderBugTest : public testing::Test {
 protected:
  void TearDown() override { planted_bug = Bug::kNone; }
};

TEST_F(EtcdLeaderBugTest, WithoutTheFenceALeaderThatWasFollowedWritesOn) {
  planted_bug = Bug::kFenceIgnored;
  EXPECT_FALSE(ALeaderThatWasFollowedWritesNothing());
  EXPECT_TRUE(AnOldWriteDoesNotBringBackAnOldRun());
}

TEST_F(EtcdLeaderBugTest, WithoutTheTurnAnOldWriteBringsBackAnOldRun) {
  planted_bug = Bug::kTurnIgnored;
  EXPECT_FALSE(AnOldWriteDoesNotBringBackAnOldRun());
  EXPECT_TRUE(ALeaderThatWasFollowedWritesNothing());
}

TEST_F(EtcdLeaderBugTest, WithoutTheRecordNodesAreNotifiedOfWhatMayBeLost) {
  planted_bug = Bug::kUncommittedRound;
  EXPECT_FALSE(NoNodeIsNotifiedOfARoundThatMayBeLost());
}

#endif

}  // namespace
}  // namespace muster::sim
