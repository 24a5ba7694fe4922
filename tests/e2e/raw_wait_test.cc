// WAIT and CANCEL_WAIT in bytes: one 00 for each wait, one 01 for each cancel, in the order in
// which the server decided, and no other byte.
#include "support/raw_server_test.h"

namespace muster::test {

class RawWaitTest : public RawServerTest {
 protected:
  /// A client whose WAIT for `keys` is parked.
  RawClient Waiter(const Keys& keys) {
    RawClient client = Client();
    client.Send(WaitBytes(keys));
    EXPECT_EQ(client.SaidSoFar(), "");
    return client;
  }

  /// Sends `request` from another client and waits until it is executed.
  void Do(const std::string& request) {
    RawClient client = Client();
    client.Send(request);
    client.Settle();
  }
};
MUSTER_ON_ONE_AND_TWO_LOOPS(RawWaitTest);

TEST_P(RawWaitTest, Item039_AWaitForNothingIsAnsweredAtOnce) {
  EXPECT_EQ(Client().Ask(WaitBytes({}), 1), kStop);
  EXPECT_EQ(Client().Ask(CheckBytes({}), 1), kReady);
}

TEST_P(RawWaitTest, Item041_AWaitForWhatIsThereIsAnsweredAtOnce) {
  RawClient client = Client();
  client.Send(SetBytes("/a", "") + AddBytes("/b", 1));
  client.Receive(8);
  EXPECT_EQ(client.Ask(WaitBytes({"/a", "/b", "/a"}), 1), kStop);
  EXPECT_EQ(client.SaidSoFar(), "");
}

TEST_P(RawWaitTest, Item045_EveryKindOfCreationReleases) {
  for (const std::string& creation :
       {SetBytes("/k", "v"), AddBytes("/k", 1), AppendBytes("/k", "v"),
        CompareSetBytes("/k", "", "v"), MultiSetBytes({{"/other", ""}, {"/k", ""}}),
        BarrierBytes("/k", 5), PushBytes("/k", "v")}) {
    RawClient waiter = Waiter({"/k"});
    RawClient writer = Client();
    writer.Send(creation);
    writer.Settle();
    EXPECT_EQ(waiter.SaidSoFar(), kStop) << "opcode " << static_cast<int>(creation[0]);
    writer.AskNumber(DeleteBytes("/k"));
    writer.Send(PopBytes("/k"));
    writer.Settle();
  }
}

TEST_P(RawWaitTest, Item037_AFailedCompareSetDoesNotRelease) {
  RawClient waiter = Waiter({"/k"});
  EXPECT_EQ(Client().AskBlob(CompareSetBytes("/k", "wrong", "new")), "wrong");
  EXPECT_EQ(waiter.SaidSoFar(), "");
  EXPECT_EQ(Client().AskBlob(CompareSetBytes("/k", "", "new")), "new");
  EXPECT_EQ(waiter.SaidSoFar(), kStop);
}

TEST_P(RawWaitTest, Item045_OneWriteReleasesAllWaitersOfTheKeyAndNoOthers) {
  std::vector<RawClient> waiters;
  for (int i = 0; i < 20; ++i) waiters.push_back(Waiter({i % 2 == 0 ? "/even" : "/odd"}));
  Do(SetBytes("/even", ""));
  for (size_t i = 0; i < waiters.size(); ++i) {
    EXPECT_EQ(waiters[i].SaidSoFar(), i % 2 == 0 ? kStop : "") << i;
  }
}

TEST_P(RawWaitTest, Item042_TheLastMissingKeyReleases) {
  Do(SetBytes("/1", ""));
  RawClient waiter = Waiter({"/1", "/2", "/3"});
  Do(SetBytes("/3", ""));
  EXPECT_EQ(waiter.SaidSoFar(), "");
  Do(SetBytes("/3", "again") + SetBytes("/1", "again"));
  EXPECT_EQ(waiter.SaidSoFar(), "");
  Do(SetBytes("/2", ""));
  EXPECT_EQ(waiter.SaidSoFar(), kStop);
}

TEST_P(RawWaitTest, Item043_DuplicatesAreAnsweredOnce) {
  RawClient waiter = Waiter({"/k", "/k", "/j", "/k", "/j"});
  Do(SetBytes("/k", "") + SetBytes("/j", ""));
  EXPECT_EQ(waiter.SaidSoFar(), kStop);
}

TEST_P(RawWaitTest, Item049_ACancelOnAMissingKeyAnswersOneByte) {
  RawClient waiter = Waiter({"/missing"});
  waiter.Send(CancelBytes());
  EXPECT_EQ(waiter.Receive(1), kCancelled);
  EXPECT_EQ(waiter.SaidSoFar(), "");
}

TEST_P(RawWaitTest, Item050_AnAnswerThatCrossesTheCancelComesFirst) {
  RawClient waiter = Waiter({"/k"});
  Do(SetBytes("/k", "v"));
  waiter.Send(Hex("0c"));
  EXPECT_EQ(waiter.Receive(2), Hex("00 01"));
  EXPECT_EQ(waiter.SaidSoFar(), "");
}

TEST_P(RawWaitTest, Item050_WaitWriteAndCancelInOneSegment) {
  RawClient client = Client();
  client.Send(WaitBytes({"/k"}) + SetBytes("/k", "v") + Hex("0c"));
  EXPECT_EQ(client.Receive(2), Hex("00 01"));
  EXPECT_EQ(client.SaidSoFar(), "");
}

TEST_P(RawWaitTest, Item051_ACancelWithoutAWaitIsAnsweredToo) {
  RawClient client = Client();
  EXPECT_EQ(client.Ask(Hex("0c"), 1), Hex("01"));
  EXPECT_EQ(client.Ask(Hex("0c 0c 0c"), 3), Hex("01 01 01"));
  EXPECT_EQ(client.SaidSoFar(), "");
}

TEST_P(RawWaitTest, Item052_ACancelledWaitIsNeverAnswered) {
  RawClient waiter = Waiter({"/k"});
  EXPECT_EQ(waiter.Ask(CancelBytes(), 1), kCancelled);
  Do(SetBytes("/k", "v"));
  EXPECT_EQ(waiter.SaidSoFar(), "");
}

TEST_P(RawWaitTest, Item052_AfterACancelTheNextWaitIsANewOne) {
  RawClient waiter = Waiter({"/a"});
  EXPECT_EQ(waiter.Ask(CancelBytes(), 1), kCancelled);
  waiter.Send(WaitBytes({"/b"}));
  Do(SetBytes("/a", ""));
  EXPECT_EQ(waiter.SaidSoFar(), "");
  Do(SetBytes("/b", ""));
  EXPECT_EQ(waiter.SaidSoFar(), kStop);
}

TEST_P(RawWaitTest, Item053_AThousandWaitersThatLeaveAreForgotten) {
  for (int i = 0; i < 1000; ++i) {
    RawClient waiter = Client();
    waiter.Send(WaitBytes({"/k", "/own" + std::to_string(i)}));
    if (i % 2 == 0) {
      waiter.Close();
    } else {
      waiter.CloseAbruptly();
    }
  }
  Do(SetBytes("/k", "v") + MultiSetBytes({{"/own1", ""}, {"/own2", ""}}));
  ExpectServerIsWell();
  EXPECT_EQ(Client().AskNumber(NumKeysBytes()), 3);
}

TEST_P(RawWaitTest, Item054_ADeletedKeyStaysSatisfiedForThisWait) {
  RawClient waiter = Waiter({"/a", "/b"});
  Do(SetBytes("/a", ""));
  EXPECT_EQ(Client().AskNumber(DeleteBytes("/a")), 1);
  EXPECT_EQ(waiter.SaidSoFar(), "");
  Do(SetBytes("/b", ""));
  EXPECT_EQ(waiter.SaidSoFar(), kStop);
}

TEST_P(RawWaitTest, Item054_AKeyThatWasThereWhenTheWaitBeganStaysSatisfied) {
  Do(SetBytes("/a", ""));
  RawClient waiter = Waiter({"/a", "/b"});
  EXPECT_EQ(Client().AskNumber(DeleteBytes("/a")), 1);
  Do(SetBytes("/b", ""));
  EXPECT_EQ(waiter.SaidSoFar(), kStop);
}

TEST_P(RawWaitTest, Item049_AParkedWaitDoesNotHoldBackOtherAnswers) {
  RawClient client = Waiter({"/missing"});
  client.Send(SetBytes("/k", "v") + GetBytes("/k") + NumKeysBytes());
  EXPECT_EQ(client.ReceiveBlob(), "v");
  EXPECT_EQ(client.ReceiveNumber(), 1);
  EXPECT_EQ(client.Ask(CancelBytes(), 1), kCancelled);
}

TEST_P(RawWaitTest, Item050_AClientMayReleaseItself) {
  RawClient client = Client();
  client.Send(WaitBytes({"/k"}) + SetBytes("/k", "v") + GetBytes("/k"));
  EXPECT_EQ(client.Receive(1), kStop);
  EXPECT_EQ(client.ReceiveBlob(), "v");
}

TEST_P(RawWaitTest, Item049_ManyWaitsInOneSegmentAreAnsweredInOrder) {
  RawClient client = Client();
  std::string requests;
  std::string answers;
  for (int i = 0; i < 200; ++i) {
    requests +=
        WaitBytes({"/missing" + std::to_string(i)}) + CancelBytes() + WaitBytes({}) + PingBytes(7);
    answers += kCancelled + kStop + U32(7);
  }
  EXPECT_EQ(ToHex(client.Ask(requests, answers.size())), ToHex(answers));
  EXPECT_EQ(client.SaidSoFar(), "");
}

}  // namespace muster::test
