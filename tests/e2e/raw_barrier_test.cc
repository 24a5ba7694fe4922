// BARRIER in bytes: no client passes early, all pass at the end, and the counter is visible.
#include "support/raw_server_test.h"

namespace muster::test {

class RawBarrierTest : public RawServerTest {
 protected:
  RawClient Arrive(const std::string& key, int64_t world_size) {
    RawClient client = Client();
    client.Send(BarrierBytes(key, world_size));
    return client;
  }
};
MUSTER_ON_ONE_AND_TWO_LOOPS(RawBarrierTest);

TEST_P(RawBarrierTest, Item084_TwoMeetAsDocumented) {
  const std::string arrive = Hex("12 02 00 00 00 00 00 00 00 2f 62 02 00 00 00 00 00 00 00");
  RawClient first = Client();
  first.Send(arrive);
  EXPECT_EQ(first.SaidSoFar(), "");
  EXPECT_EQ(first.AskBlob(GetBytes("/b")), "1");
  RawClient second = Client();
  EXPECT_EQ(second.Ask(arrive, 1), kStop);
  EXPECT_EQ(first.SaidSoFar(), kStop);
  EXPECT_EQ(second.SaidSoFar(), "");
}

TEST_P(RawBarrierTest, Item083_AWorldOfOneOrFewerPassesAtOnce) {
  for (const int64_t world_size : {int64_t{1}, int64_t{0}, int64_t{-5}, INT64_MIN}) {
    RawClient client = Client();
    EXPECT_EQ(client.Ask(BarrierBytes("/b" + std::to_string(world_size), world_size), 1), kStop);
  }
}

TEST_P(RawBarrierTest, Item084_NoClientPassesBeforeTheLastArrives) {
  constexpr int64_t kParties = 8;
  std::vector<RawClient> parties;
  for (int64_t i = 1; i < kParties; ++i) {
    parties.push_back(Arrive("/b", kParties));
    for (RawClient& party : parties) ASSERT_EQ(party.SaidSoFar(), "");
  }
  parties.push_back(Arrive("/b", kParties));
  EXPECT_EQ(parties.back().Receive(1), kStop);
  EXPECT_EQ(parties.back().SaidSoFar(), "");
  parties.pop_back();
  for (RawClient& party : parties) EXPECT_EQ(party.SaidSoFar(), kStop);
  EXPECT_EQ(Client().AskBlob(GetBytes("/b")), std::to_string(kParties));
}

TEST_P(RawBarrierTest, Item086_TheCounterIsAnEntryLikeAnyOther) {
  RawClient first = Arrive("/b", 2);
  first.Settle();
  RawClient other = Client();
  EXPECT_EQ(other.AskNumber(NumKeysBytes()), 1);
  EXPECT_EQ(other.Ask(CheckBytes({"/b"}), 1), kReady);
  EXPECT_EQ(other.Ask(WaitBytes({"/b"}), 1), kStop);
  EXPECT_EQ(other.Ask(BarrierBytes("/b", 2), 1), kStop);
  EXPECT_EQ(other.AskBlob(GetBytes("/b")), "2");
}

TEST_P(RawBarrierTest, Item085_ACancelledParticipantStaysCountedAndReceivesNothingMore) {
  RawClient first = Arrive("/b", 2);
  EXPECT_EQ(first.Ask(CancelBytes(), 1), kCancelled);
  RawClient second = Client();
  EXPECT_EQ(second.Ask(BarrierBytes("/b", 2), 1), kStop);
  EXPECT_EQ(first.SaidSoFar(), "");
}

TEST_P(RawBarrierTest, Item085_ACancelThatCrossesComesSecond) {
  RawClient first = Arrive("/b", 2);
  first.Settle();
  EXPECT_EQ(Client().Ask(BarrierBytes("/b", 2), 1), kStop);
  first.Send(CancelBytes());
  EXPECT_EQ(first.Receive(2), Hex("00 01"));
}

TEST_P(RawBarrierTest, Item085_AClientThatDisconnectsStaysCounted) {
  Arrive("/b", 3).Settle();
  RawClient second = Arrive("/b", 3);
  EXPECT_EQ(second.SaidSoFar(), "");
  EXPECT_EQ(Client().Ask(BarrierBytes("/b", 3), 1), kStop);
  EXPECT_EQ(second.SaidSoFar(), kStop);
}

TEST_P(RawBarrierTest, Item084_WritesToTheKeyReleaseNoClient) {
  RawClient party = Arrive("/b", 3);
  RawClient writer = Client();
  writer.Send(SetBytes("/b", "1") + AppendBytes("/b", "") + MultiSetBytes({{"/b", "1"}}));
  writer.AskBlob(CompareSetBytes("/b", "1", "1"));
  writer.AskNumber(AddBytes("/b", 0));
  EXPECT_EQ(party.SaidSoFar(), "");
}

TEST_P(RawBarrierTest, Item084_APlainWaitIsReleasedByTheFirstArrival) {
  RawClient waiter = Client();
  waiter.Send(WaitBytes({"/b"}));
  waiter.Settle();
  RawClient party = Arrive("/b", 2);
  EXPECT_EQ(waiter.Receive(1), kStop);
  EXPECT_EQ(party.SaidSoFar(), "");
}

TEST_P(RawBarrierTest, Item083_ABarrierThatHasBeenPassedIsOpen) {
  RawClient first = Arrive("/b", 2);
  EXPECT_EQ(Client().Ask(BarrierBytes("/b", 2), 1), kStop);
  EXPECT_EQ(Client().Ask(BarrierBytes("/b", 2), 1), kStop);
}

}  // namespace muster::test
