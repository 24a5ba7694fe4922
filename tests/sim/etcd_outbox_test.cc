// A leader's writes: in order, as long as it leads, and once, whether writes are lost, late or
// overtaken.
#include "etcd/outbox.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "base/instrumented.h"
#include "base/text.h"
#include "sim/etcd_fixture.h"
#include "sim/held_etcd.h"
#include "sim/network.h"
#include "sim/process.h"

namespace muster::sim {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

/// One outbox of a leader, with an etcd that does nothing by itself.
class Desk final {
 public:
  Desk() {
    const int64_t epoch = etcd.By({.then = {Put("leader", "me")}}).revision;
    outbox.emplace(etcd, loop, EtcdPair{.key = "leader", .value = "me", .created = epoch},
                   EtcdTurn{.key = "turn", .name = "o"}, 1,
                   [this](const Status& status) { ++CounterOf(status); });
  }
  ~Desk() { process.Kill(Network::Ending::kSilent); }

  /// Until nothing more happens by itself.
  void Pass(Duration time = 2s) { scheduler.RunUntil(scheduler.now() + time); }
  void Write(const std::string& key, const std::string& value) {
    outbox->Put(key, value, 0);
    Pass();
  }
  /// The last call of etcd.
  size_t last() const { return etcd.calls.size() - 1; }
  void Elect(const std::string& who) {
    etcd.By({.then = {Delete({.begin = "leader"})}});
    etcd.By({.then = {Put("leader", who)}});
  }

  Scheduler scheduler;
  Trace trace;
  Network network{scheduler, {}, 1, trace};
  SimProcess process{scheduler, network, network.AddHost("10.1.0.0"), 2, {}, 2};
  SimLoop loop{process};
  HeldEtcd etcd{loop};
  std::optional<EtcdOutbox> outbox;
  int written = 0;
  int deposed = 0;
  int overtaken = 0;
  int failed = 0;

 private:
  int& CounterOf(const Status& status) {
    if (status) return written;
    const Code code = status.error().code;
    return code == Code::kClosed ? deposed : code == Code::kConflict ? overtaken : failed;
  }
};

TEST(EtcdOutboxTest, WhatWasWrittenTogetherGoesOutTogether) {
  Desk desk;
  desk.outbox->Put("b", "1", 0);
  desk.outbox->Put("a", "1", 0);
  desk.outbox->Put("b", "2", 0);
  desk.Pass();
  ASSERT_EQ(desk.etcd.calls.size(), 1u);
  EXPECT_THAT(desk.etcd.KeysOf(0), ElementsAre("a", "b"));
  desk.etcd.Succeed(0);
  EXPECT_EQ(desk.etcd.ValueOf("b"), "2");
  EXPECT_EQ(desk.written, 1);
}

TEST(EtcdOutboxTest, WhatFollowsASealWaitsForWhatCameBefore) {
  Desk desk;
  desk.outbox->Put("plan", "1", 0);
  desk.outbox->Seal();
  desk.outbox->Put("run", "1", 0);
  desk.outbox->Seal();
  desk.outbox->Put("notice", "1", 0);
  desk.Pass();
  EXPECT_THAT(desk.etcd.KeysOf(desk.last()), ElementsAre("plan"));
  ASSERT_EQ(desk.etcd.calls.size(), 1u) << "one at a time";
  desk.etcd.Lose(0);
  desk.Pass();
  EXPECT_THAT(desk.etcd.KeysOf(desk.last()), ElementsAre("plan"))
      << "nor does it overtake what fails";
  desk.etcd.Succeed(desk.last());
  EXPECT_THAT(desk.etcd.KeysOf(desk.last()), ElementsAre("run"));
  desk.etcd.Succeed(desk.last());
  EXPECT_THAT(desk.etcd.KeysOf(desk.last()), ElementsAre("notice"));
}

TEST(EtcdOutboxTest, ALaterValueGoesOutAloneWhileAnEarlierOneIsUnderWay) {
  Desk desk;
  desk.Write("a", "1");
  desk.Write("a", "2");
  desk.Write("a", "3");
  ASSERT_EQ(desk.etcd.calls.size(), 1u);
  desk.etcd.Succeed(0);
  ASSERT_EQ(desk.etcd.calls.size(), 2u);
  desk.etcd.Succeed(1);
  EXPECT_EQ(desk.etcd.ValueOf("a"), "3");
  EXPECT_THAT(desk.etcd.Open(), IsEmpty());
}

TEST(EtcdOutboxTest, MoreThanEtcdTakesGoesOutInParts) {
  Desk desk;
  for (int i = 0; i < 300; ++i) desk.outbox->Put(Concat("k", i), "", 0);
  desk.Pass();
  while (!desk.etcd.Open().empty()) {
    ASSERT_LE(desk.etcd.calls.back().transaction.then.size(), kEtcdOperationsMax);
    desk.etcd.Succeed(desk.last());
  }
  EXPECT_EQ(desk.etcd.calls.size(), 3u);
  for (int i = 0; i < 300; ++i) EXPECT_NE(desk.etcd.state.Find(Concat("k", i)), nullptr);
}

TEST(EtcdOutboxTest, ALostWriteIsMadeAgain) {
  Desk desk;
  desk.Write("a", "1");
  desk.etcd.Lose(0);
  desk.Pass();
  EXPECT_EQ(desk.failed, 1);
  ASSERT_EQ(desk.etcd.calls.size(), 2u);
  desk.etcd.Succeed(1);
  EXPECT_EQ(desk.etcd.ValueOf("a"), "1");
  EXPECT_EQ(desk.written, 1);
}

TEST(EtcdOutboxTest, AWriteOfWhichOnlyTheAnswerIsLostIsMadeOnce) {
  Desk desk;
  desk.Write("a", "1");
  desk.etcd.Make(0);
  const int64_t revision = desk.etcd.state.revision();
  desk.etcd.Lose(0);
  desk.Pass();
  desk.etcd.Succeed(1);
  EXPECT_EQ(desk.etcd.state.revision(), revision);
  EXPECT_EQ(desk.written, 1);
  EXPECT_EQ(desk.overtaken + desk.deposed, 0);
  desk.Write("a", "2");
  desk.etcd.Succeed(2);
  EXPECT_EQ(desk.etcd.ValueOf("a"), "2");
}

// ----------------------------------------------------------------------------------------------
// Each of these returns whether a promise held. Without the condition on which it rests, it does
// not hold.

// An abandoned write is executed after a later one: it must not undo that one.
bool ALateWriteIsVoid() {
  Desk desk;
  desk.Write("a", "1");
  desk.etcd.Lose(0);
  desk.Pass();
  desk.etcd.Succeed(1);
  desk.Write("a", "2");
  desk.etcd.Succeed(2);
  EXPECT_EQ(desk.etcd.ValueOf("a"), "2");
  desk.etcd.Make(0);
  return desk.etcd.ValueOf("a") == "2";
}

// ... also if the leader has since begun again with another outbox.
bool ALateWriteOfAnEarlierOutboxIsVoid() {
  Desk desk;
  desk.Write("a", "1");
  const EtcdTransaction late = desk.etcd.calls[0].transaction;
  desk.etcd.Succeed(0);
  desk.Write("a", "2");
  desk.etcd.Lose(1);
  const EtcdTransaction later = desk.etcd.calls[1].transaction;
  desk.etcd.By({.then = {Put("turn", "another-1"), Put("a", "3")}});
  static_cast<void>(desk.etcd.state.Commit(late));
  static_cast<void>(desk.etcd.state.Commit(later));
  return desk.etcd.ValueOf("a") == "3";
}

// Another process wrote in its place: it must read again.
bool AnOvertakenLeaderStops() {
  Desk desk;
  desk.Write("a", "1");
  desk.etcd.By({.then = {Put("turn", "another-1"), Put("a", "2")}});
  desk.etcd.Succeed(0);
  desk.Write("a", "3");
  return desk.etcd.ValueOf("a") == "2" && desk.overtaken == 1 && desk.etcd.Open().empty();
}

// Another node leads, and has written nothing yet: the turn does not show it.
bool ADeposedLeaderWritesNothing() {
  Desk desk;
  desk.Write("a", "1");
  desk.etcd.Succeed(0);
  desk.Elect("another");
  desk.Write("a", "2");
  desk.etcd.Succeed(1);
  desk.Write("a", "3");
  return desk.etcd.ValueOf("a") == "1" && desk.deposed == 1 && desk.etcd.Open().empty();
}

bool ALeaderWhoseKeyIsGoneWritesNothing() {
  Desk desk;
  desk.etcd.By({.then = {Delete({.begin = "leader"})}});
  desk.Write("a", "1");
  desk.etcd.Succeed(0);
  return desk.etcd.ValueOf("a").empty() && desk.deposed == 1;
}

// In an etcd that was restored from older data, another leader's key may have our revision.
bool ARevisionThatComesTwiceIsNoLeadership() {
  Desk desk;
  desk.etcd.state.Restore(EtcdState(2));
  desk.etcd.By({.then = {Put("leader", "another")}});
  desk.Write("a", "1");
  desk.etcd.Succeed(0);
  return desk.etcd.ValueOf("a").empty() && desk.deposed == 1;
}

TEST(EtcdOutboxTest, ALateWriteIsVoid) { EXPECT_TRUE(ALateWriteIsVoid()); }
TEST(EtcdOutboxTest, ALateWriteOfAnEarlierOutboxIsVoid) {
  EXPECT_TRUE(ALateWriteOfAnEarlierOutboxIsVoid());
}
TEST(EtcdOutboxTest, AnOvertakenLeaderStops) { EXPECT_TRUE(AnOvertakenLeaderStops()); }
TEST(EtcdOutboxTest, ADeposedLeaderWritesNothing) { EXPECT_TRUE(ADeposedLeaderWritesNothing()); }
TEST(EtcdOutboxTest, ALeaderWhoseKeyIsGoneWritesNothing) {
  EXPECT_TRUE(ALeaderWhoseKeyIsGoneWritesNothing());
}
TEST(EtcdOutboxTest, ARevisionThatComesTwiceIsNoLeadership) {
  EXPECT_TRUE(ARevisionThatComesTwiceIsNoLeadership());
}

#ifdef MUSTER_INSTRUMENTED

class EtcdOutboxBugTest : public testing::Test {
 protected:
  void TearDown() override { planted_bug = Bug::kNone; }
};

TEST_F(EtcdOutboxBugTest, WithoutTheTurnLateWritesUndoLaterOnes) {
  planted_bug = Bug::kTurnIgnored;
  EXPECT_FALSE(ALateWriteIsVoid());
  EXPECT_FALSE(ALateWriteOfAnEarlierOutboxIsVoid());
  EXPECT_FALSE(AnOvertakenLeaderStops());
  EXPECT_TRUE(ADeposedLeaderWritesNothing()) << "which the fence alone sees to";
}

TEST_F(EtcdOutboxBugTest, WithoutTheFenceADeposedLeaderWritesOn) {
  planted_bug = Bug::kFenceIgnored;
  EXPECT_FALSE(ADeposedLeaderWritesNothing());
  EXPECT_FALSE(ALeaderWhoseKeyIsGoneWritesNothing());
  EXPECT_FALSE(ARevisionThatComesTwiceIsNoLeadership());
  EXPECT_TRUE(ALateWriteIsVoid()) << "which the turn alone sees to";
}

#endif

}  // namespace
}  // namespace muster::sim
