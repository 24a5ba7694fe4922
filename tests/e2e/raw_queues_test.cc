// Queues in bytes: lengths, order, and elements that are reserved for waiting clients.
#include "support/raw_server_test.h"

namespace muster::test {

class RawQueuesTest : public RawServerTest {
 protected:
  RawClient Waiter(const Keys& keys) {
    RawClient client = Client();
    client.Send(WaitBytes(keys));
    EXPECT_EQ(client.SaidSoFar(), "");
    return client;
  }
  void Push(const std::string& key, const std::string& element) {
    RawClient client = Client();
    client.Send(PushBytes(key, element));
    client.Settle();
  }
  /// What a pop returns: the length before it, and the element if there is one.
  static std::pair<int64_t, std::string> Pop(RawClient& client, const std::string& key) {
    const int64_t length = client.AskNumber(PopBytes(key));
    return {length, length > 0 ? client.ReceiveBlob() : ""};
  }
};
MUSTER_ON_ONE_AND_TWO_LOOPS(RawQueuesTest);

TEST_P(RawQueuesTest, Item068_PushLengthAndPopAsDocumented) {
  RawClient client = Client();
  client.Send(Hex("0e 02 00 00 00 00 00 00 00 2f 71 04 00 00 00 00 00 00 00 6a 6f 62 31"));
  EXPECT_EQ(client.Ask(Hex("10 02 00 00 00 00 00 00 00 2f 71"), 8), I64(1));
  EXPECT_EQ(ToHex(client.Ask(Hex("0f 02 00 00 00 00 00 00 00 2f 71"), 20)),
            ToHex(Hex("01 00 00 00 00 00 00 00 04 00 00 00 00 00 00 00 6a 6f 62 31")));
  EXPECT_EQ(client.Ask(Hex("0f 02 00 00 00 00 00 00 00 2f 71"), 8), I64(0));
  EXPECT_EQ(client.SaidSoFar(), "");
}

TEST_P(RawQueuesTest, Item069_APopFromNothingIsEightZeros) {
  RawClient client = Client();
  EXPECT_EQ(client.Ask(PopBytes("/q"), 8), I64(0));
  EXPECT_EQ(client.SaidSoFar(), "");
}

TEST_P(RawQueuesTest, Item070_APopReturnsTheLengthBeforeIt) {
  RawClient client = Client();
  client.Send(PushBytes("/q", "a") + PushBytes("/q", "b"));
  EXPECT_EQ(Pop(client, "/q"), std::pair(int64_t{2}, std::string("a")));
  EXPECT_EQ(Pop(client, "/q"), std::pair(int64_t{1}, std::string("b")));
  EXPECT_EQ(Pop(client, "/q"), std::pair(int64_t{0}, std::string()));
}

TEST_P(RawQueuesTest, Item070_AnEmptyElementIsAnElement) {
  RawClient client = Client();
  client.Send(PushBytes("/q", ""));
  EXPECT_EQ(client.Ask(PopBytes("/q"), 16), I64(1) + Blob(""));
}

TEST_P(RawQueuesTest, Item067_AQueueThatHasBecomeEmptyIsNotThere) {
  RawClient client = Client();
  client.Send(PushBytes("/q", "a"));
  EXPECT_EQ(client.Ask(CheckBytes({"/q"}), 1), kReady);
  Pop(client, "/q");
  EXPECT_EQ(client.Ask(CheckBytes({"/q"}), 1), kNotReady);
  client.Send(WaitBytes({"/q"}));
  EXPECT_EQ(client.SaidSoFar(), "");
}

TEST_P(RawQueuesTest, Item073_OnePushReleasesTheEarlierOfTwo) {
  RawClient first = Waiter({"/q"});
  RawClient second = Waiter({"/q"});
  Push("/q", "one");
  EXPECT_EQ(first.Receive(1), kStop);
  EXPECT_EQ(second.SaidSoFar(), "");
  Push("/q", "two");
  EXPECT_EQ(second.SaidSoFar(), kStop);
}

TEST_P(RawQueuesTest, Item073_TheElementIsKeptForTheOneItReleased) {
  RawClient waiter = Waiter({"/q"});
  Push("/q", "mine");
  RawClient thief = Client();
  EXPECT_EQ(Pop(thief, "/q").first, 0);
  EXPECT_EQ(waiter.Receive(1), kStop);
  EXPECT_EQ(Pop(waiter, "/q"), std::pair(int64_t{1}, std::string("mine")));
}

TEST_P(RawQueuesTest, Item073_OldestFirstThroughoutTheLine) {
  constexpr size_t kWaiters = 10;
  std::vector<RawClient> line;
  for (size_t i = 0; i < kWaiters; ++i) line.push_back(Waiter({"/q"}));
  for (size_t i = 0; i < kWaiters; ++i) {
    Push("/q", std::to_string(i));
    ASSERT_EQ(line[i].Receive(1), kStop);
    EXPECT_EQ(Pop(line[i], "/q").second, std::to_string(i));
    for (size_t k = i + 1; k < kWaiters; ++k) EXPECT_EQ(line[k].SaidSoFar(), "");
  }
}

TEST_P(RawQueuesTest, Item074_AReleasedClientIsNoLongerInTheLine) {
  RawClient client = Waiter({"/q"});
  Push("/q", "a");
  EXPECT_EQ(client.Receive(1), kStop);
  EXPECT_EQ(Pop(client, "/q").second, "a");
  client.Send(WaitBytes({"/unrelated"}));
  EXPECT_EQ(client.SaidSoFar(), "");
  Push("/q", "b");
  Push("/q", "c");
  EXPECT_EQ(client.SaidSoFar(), "");
  EXPECT_EQ(client.Ask(CancelBytes(), 1), kCancelled);
}

TEST_P(RawQueuesTest, Item075_IfTheReleasedOneLeavesTheNextIsReleased) {
  for (const bool abruptly : {false, true}) {
    RawClient first = Waiter({"/q"});
    RawClient second = Waiter({"/q"});
    Push("/q", "x");
    EXPECT_EQ(first.Receive(1), kStop);
    abruptly ? first.CloseAbruptly() : first.Close();
    EXPECT_EQ(second.Receive(1), kStop);
    EXPECT_EQ(Pop(second, "/q").second, "x");
  }
}

TEST_P(RawQueuesTest, Item075_IfTheReleasedOneCancelsTheNextIsReleased) {
  RawClient first = Waiter({"/q"});
  RawClient second = Waiter({"/q"});
  Push("/q", "x");
  first.Send(CancelBytes());
  EXPECT_EQ(first.Receive(2), Hex("00 01"));  // crossed: released, then cancelled
  EXPECT_EQ(second.Receive(1), kStop);
  EXPECT_EQ(Pop(second, "/q").second, "x");
}

TEST_P(RawQueuesTest, Item075_IfTheReleasedOneDoesSomethingElseTheNextIsReleased) {
  RawClient first = Waiter({"/q"});
  RawClient second = Waiter({"/q"});
  Push("/q", "x");
  EXPECT_EQ(first.SaidSoFar(), kStop);  // its PING releases the reserved element
  EXPECT_EQ(second.Receive(1), kStop);
}

TEST_P(RawQueuesTest, Item075_IfTheReleasedOneDoesNothingTheElementIsFreeAgainSoon) {
  RawClient idle = Waiter({"/q"});
  Push("/q", "x");
  EXPECT_EQ(idle.Receive(1), kStop);
  RawClient other = Client();
  EXPECT_TRUE(EventuallyTrue([&] { return Pop(other, "/q").first > 0; }));
}

TEST_P(RawQueuesTest, Item071_AWaiterWithOtherKeysMissingIsPassedOver) {
  RawClient wants_both = Waiter({"/q", "/key"});
  RawClient popper = Waiter({"/q"});
  Push("/q", "x");
  EXPECT_EQ(popper.Receive(1), kStop);
  EXPECT_EQ(Pop(popper, "/q").second, "x");
  EXPECT_EQ(wants_both.SaidSoFar(), "");
  // It has seen the queue non-empty once, and that counts.
  RawClient other = Client();
  other.Send(SetBytes("/key", ""));
  other.Settle();
  EXPECT_EQ(wants_both.SaidSoFar(), kStop);
}

TEST_P(RawQueuesTest, Item068_AQueueThatIsThereSatisfiesAWaitOverSeveralKeys) {
  RawClient client = Client();
  client.Send(PushBytes("/q", "x") + SetBytes("/k", ""));
  EXPECT_EQ(client.Ask(WaitBytes({"/q", "/k"}), 1), kStop);
  client.Send(WaitBytes({"/q", "/later"}));
  EXPECT_EQ(client.SaidSoFar(), "");
  RawClient other = Client();
  other.Send(SetBytes("/later", ""));
  other.Settle();
  EXPECT_EQ(client.SaidSoFar(), kStop);
}

TEST_P(RawQueuesTest, Item076_DeleteAndCountLeaveQueuesAlone) {
  RawClient client = Client();
  client.Send(PushBytes("/q", "x"));
  EXPECT_EQ(client.AskNumber(NumKeysBytes()), 0);
  EXPECT_EQ(client.AskNumber(ListKeysBytes()), 0);
  EXPECT_EQ(client.AskNumber(DeleteBytes("/q")), 0);
  EXPECT_EQ(client.AskBlob(GetBytes("/q")), "");
  EXPECT_EQ(client.AskNumber(QueueLenBytes("/q")), 1);
}

TEST_P(RawQueuesTest, Item073_ASetOnTheNameReleasesAllAndKeepsNothingForThem) {
  RawClient first = Waiter({"/q"});
  RawClient second = Waiter({"/q"});
  RawClient writer = Client();
  writer.Send(SetBytes("/q", "a value"));
  writer.Settle();
  EXPECT_EQ(first.SaidSoFar(), kStop);
  EXPECT_EQ(second.SaidSoFar(), kStop);
  writer.Send(PushBytes("/q", "x"));
  EXPECT_EQ(Pop(writer, "/q").second, "x");
}

}  // namespace muster::test
