// TcpStore against peers that the test plays: the first bytes that it sends, and its behaviour if
// the other side is old, silent, broken or no store at all.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <string>

#include "support/client_peers_test.h"
#include "support/errors.h"

namespace muster::test {

using ::testing::HasSubstr;
TEST_F(ClientPeersTest, Item010_ValidateComesFirstAndInOnePieceThenPingWithThePid) {
  Background<StorePtr> connecting(Connecting());
  RawSocket peer = listener_.Accept();
  std::string first = peer.ReceiveSome();
  ASSERT_GE(first.size(), 5u);
  EXPECT_EQ(first.substr(0, 5), Hex("00 ce f7 85 3c"));
  if (first.size() < 10) first += peer.Receive(10 - first.size());
  EXPECT_EQ(first.substr(5), Hex("0d") + U32(static_cast<uint32_t>(getpid())));
  EXPECT_LE(peer.SegmentsReceived(), 2u);
  peer.Send(U32(static_cast<uint32_t>(getpid())));
  connecting.Result();
}

TEST_F(ClientPeersTest, Item010_WithoutAWorldSizeNothingElseIsSent) {
  StorePtr store = Connected();
  store.reset();
  EXPECT_EQ(peer_->ReceiveUntilClosed(), "");
}

TEST_F(ClientPeersTest, Item010_EveryOperationIsSentAsDocumented) {
  StorePtr store = Connected();
  store->Set("foo", "bar");
  EXPECT_EQ(peer_->Receive(24), SetBytes("/foo", "bar"));
  store->Append("log", "xy");
  store->QueuePush("q", "job");
  store->MultiSet({"a", "b"}, {"1", "two"});
  const std::string writes = AppendBytes("/log", "xy") + PushBytes("/q", "job") +
                             MultiSetBytes({{"/a", "1"}, {"/b", "two"}});
  EXPECT_EQ(ToHex(peer_->Receive(writes.size())), ToHex(writes));

  Background<int64_t> adding([&] { return store->Add("ctr", -2); });
  EXPECT_EQ(peer_->Receive(AddBytes("/ctr", -2).size()), AddBytes("/ctr", -2));
  peer_->Send(I64(40));
  EXPECT_EQ(adding.Result(), 40);

  Background<std::string> swapping([&] { return store->CompareSet("k", "old", "new"); });
  EXPECT_EQ(peer_->Receive(33), CompareSetBytes("/k", "old", "new"));
  peer_->Send(Blob("zz"));
  EXPECT_EQ(swapping.Result(), "zz");

  Background<bool> checking([&] { return store->Check({"a", ""}); });
  EXPECT_EQ(peer_->Receive(CheckBytes({"/a", "/"}).size()), CheckBytes({"/a", "/"}));
  peer_->Send(kNotReady);
  EXPECT_FALSE(checking.Result());

  Background<void> meeting([&] { store->Barrier("b", 2); });
  EXPECT_EQ(peer_->Receive(19), BarrierBytes("/b", 2));
  peer_->Send(kStop);
  meeting.Result();
}

TEST_F(ClientPeersTest, Item080_KeysWithoutASlashAreNotTheUsers) {
  StorePtr store = Connected();
  Background<std::vector<std::string>> listing([&] { return store->ListKeys(); });
  EXPECT_EQ(peer_->Receive(1), ListKeysBytes());
  peer_->Send(I64(3) + Blob("init/") + Blob("/foo") + Blob("//x"));
  EXPECT_THAT(listing.Result(), ::testing::ElementsAre("foo", "/x"));
}

TEST_F(ClientPeersTest, Item011_AnAlteredEchoIsTriedAgain) {
  Background<StorePtr> connecting(Connecting());
  {
    RawSocket liar = listener_.Accept();
    liar.Receive(10);
    liar.Send(U32(static_cast<uint32_t>(getpid()) + 1));
    RawSocket second = AcceptAndGreet();
    connecting.Result();
  }
}

TEST_F(ClientPeersTest, Item011_AnEchoThatStaysAlteredIsANetworkErrorInTime) {
  const Stopwatch watch;
  Background<StorePtr> connecting(Connecting(milliseconds(500)));
  while (!connecting.IsDone()) {
    try {
      RawSocket liar = listener_.Accept(milliseconds(100));
      liar.Receive(10);
      liar.Send(U32(1));
    } catch (const std::runtime_error&) {
      // No other connection comes.
    }
  }
  EXPECT_THAT(ErrorOf<NetworkError>([&] { connecting.Result(); }), HasSubstr("127.0.0.1"));
  EXPECT_LT(watch.Elapsed(), milliseconds(10'000));
}

TEST_F(ClientPeersTest, Item107_AMutePeerCostsTheTimeoutAndNoMore) {
  constexpr milliseconds kTimeout(4'000);
  const Stopwatch watch;
  Background<StorePtr> connecting(Connecting(kTimeout));
  RawSocket mute = listener_.Accept();
  EXPECT_THAT(ErrorOf<NetworkError>([&] { connecting.Result(); }),
              HasSubstr("timed out after 4000ms while trying to connect to (127.0.0.1, " +
                        std::to_string(listener_.port()) + ")"));
  EXPECT_GE(watch.Elapsed(), kTimeout);
  EXPECT_LT(watch.Elapsed(), kTimeout * 12 / 10);
}

TEST_F(ClientPeersTest, Item012_AServerThatHangsUpOnPingIsTriedWithoutIt) {
  // Servers of PyTorch 2.4 close on opcode 13.
  Background<StorePtr> connecting(Connecting());
  RawSocket with_ping = listener_.Accept();
  with_ping.Receive(10);
  with_ping.Close();
  RawSocket without = listener_.Accept();
  EXPECT_EQ(without.Receive(5), ValidateBytes());
  // Such a server may get any greeting that it knows: if a request comes first, it is one that it
  // knows.
  Background<bool> using_it([&] { return connecting.Result()->Check({"k"}); });
  std::string asked = without.ReceiveSome();
  if (asked.starts_with(NumKeysBytes())) {
    without.Send(I64(0));
    asked = asked.size() > 1 ? asked.substr(1) : without.ReceiveSome();
  }
  EXPECT_TRUE(asked.starts_with(Hex("05"))) << ToHex(asked);
  without.Send(kReady);
  EXPECT_TRUE(using_it.Result());
}

TEST_F(ClientPeersTest, Item011_APeerThatAlwaysHangsUpIsANetworkErrorInTheConstructor) {
  // A server that refuses all connections (without descriptors, for example) must not look like one
  // that does not know PING.
  Background<StorePtr> connecting(Connecting(milliseconds(500)));
  while (!connecting.IsDone()) {
    try {
      listener_.Accept(milliseconds(100)).Close();
    } catch (const std::runtime_error&) {
      // No other connection comes.
    }
  }
  EXPECT_THROW(connecting.Result(), NetworkError);
}

TEST_F(ClientPeersTest, Item011_AForeignServiceIsNotBelieved) {
  // Answers like HTTP. Its first bytes, read as a length of 1.3 TB, once made a client hang.
  Background<StorePtr> connecting(Connecting(milliseconds(500)));
  while (!connecting.IsDone()) {
    try {
      RawSocket web = listener_.Accept(milliseconds(100));
      web.Receive(5);
      web.Send("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
    } catch (const std::runtime_error&) {
      // No other connection comes.
    }
  }
  EXPECT_THROW(connecting.Result(), NetworkError);
}

TEST_F(ClientPeersTest, Item114_AnAnnouncedValueOfATerabyteIsNotWaitedFor) {
  StorePtr store = Connected();
  Background<std::string> getting([&] { return store->CompareSet("k", "a", "b"); });
  peer_->Receive(CompareSetBytes("/k", "a", "b").size());
  peer_->Send(U64(1'303'328'157'216) + "HTTP");
  EXPECT_THAT(ErrorOf<DistError>([&] { getting.Result(); }), HasSubstr("announces"));
  EXPECT_THROW(store->Check({"k"}), NetworkError);  // the stream is permanently out of step
}

TEST_F(ClientPeersTest, Item046_AReplyThatNeverComesIsBoundedByTheTimeout) {
  StorePtr store = Connected(milliseconds(300));
  const Stopwatch watch;
  EXPECT_THROW(store->GetNumKeys(), NetworkError);
  EXPECT_GE(watch.Elapsed(), milliseconds(300));
  EXPECT_LT(watch.Elapsed(), milliseconds(10'000));
  EXPECT_THROW(store->Set("k", "v"), NetworkError);
}

TEST_F(ClientPeersTest, Item114_APeerThatStopsReadingIsBoundedByTheTimeout) {
  StorePtr store = Connected(milliseconds(300));
  const std::string large(8 << 20, 'x');
  EXPECT_THROW(
      {
        for (int i = 0; i < 100; ++i) store->Set("k", large);
      },
      NetworkError);
}

TEST_F(ClientPeersTest, Item056_APeerThatHangsUpIsANetworkErrorAtOnce) {
  StorePtr store = Connected();
  Background<void> waiting([&] { store->Wait({"k"}, kDefaultStoreTimeout); });
  peer_->Receive(WaitBytes({"/k"}).size());
  peer_->Close();
  EXPECT_THAT(ErrorOf<NetworkError>([&] { waiting.Result(); }),
              ::testing::StartsWith("Failed to recv, got 0 bytes."));
  EXPECT_THROW(store->Set("k", "v"), NetworkError);
  EXPECT_THROW(store->Get("k"), NetworkError);
}

TEST_F(ClientPeersTest, Item056_APeerThatIsKilledIsANetworkErrorAtOnce) {
  StorePtr store = Connected();
  Background<int64_t> asking([&] { return store->GetNumKeys(); });
  peer_->Receive(1);
  peer_->CloseAbruptly();
  EXPECT_THAT(ErrorOf<NetworkError>([&] { asking.Result(); }),
              HasSubstr("Connection reset by peer"));
}

TEST_F(ClientPeersTest, Item049_ATimeoutIsCancelledAndTheStreamStaysInStep) {
  StorePtr store = Connected();
  Background<void> waiting([&] { store->Wait({"k"}, milliseconds(100)); });
  EXPECT_EQ(peer_->Receive(WaitBytes({"/k"}).size()), WaitBytes({"/k"}));
  EXPECT_EQ(peer_->Receive(1), CancelBytes());
  peer_->Send(kCancelled);
  EXPECT_THAT(ErrorOf<StoreTimeoutError>([&] { waiting.Result(); }),
              HasSubstr("wait timeout after 100ms, keys: /k"));
  Background<int64_t> asking([&] { return store->GetNumKeys(); });
  EXPECT_EQ(peer_->Receive(1), NumKeysBytes());
  peer_->Send(I64(7));
  EXPECT_EQ(asking.Result(), 7);
}

TEST_F(ClientPeersTest, Item050_AnAnswerThatCrossesTheCancelLeavesTheStreamInStep) {
  StorePtr store = Connected();
  Background<void> waiting([&] { store->Wait({"k"}, milliseconds(100)); });
  EXPECT_EQ(peer_->Receive(WaitBytes({"/k"}).size() + 1), WaitBytes({"/k"}) + CancelBytes());
  peer_->Send(kStop + kCancelled);
  waiting.Result();  // the key came: muster's client does not report that as a timeout
  Background<int64_t> asking([&] { return store->GetNumKeys(); });
  EXPECT_EQ(peer_->Receive(1), NumKeysBytes());
  peer_->Send(I64(7));
  EXPECT_EQ(asking.Result(), 7);
}

TEST_F(ClientPeersTest, Item085_ABarrierThatTimesOutIsCancelledTheSameWay) {
  StorePtr store = Connected();
  Background<void> meeting([&] { store->Barrier("b", 2, milliseconds(100)); });
  EXPECT_EQ(peer_->Receive(20), BarrierBytes("/b", 2) + CancelBytes());
  peer_->Send(kCancelled);
  EXPECT_THAT(ErrorOf<StoreTimeoutError>([&] { meeting.Result(); }),
              HasSubstr("barrier timeout after 100ms, key: b"));
}

TEST_F(ClientPeersTest, Item049_NonsenseInsteadOfAnAnswerIsAnError) {
  for (const std::string& nonsense : {Hex("02"), Hex("ff")}) {
    StorePtr store = Connected();
    Background<void> waiting([&] { store->Wait({"k"}); });
    peer_->Receive(WaitBytes({"/k"}).size());
    peer_->Send(nonsense);
    EXPECT_THROW(waiting.Result(), StoreError);
    EXPECT_THROW(store->Check({"k"}), NetworkError);
  }
}

TEST_F(ClientPeersTest, Item113_AKeyTooLongForTheServerIsRefusedHere) {
  StorePtr store = Connected();
  const std::string longest(8191, 'k');  // with the slash in front, 8192
  EXPECT_THROW(store->Set(longest + "k", "v"), std::invalid_argument);
  EXPECT_THROW(store->Wait({"short", longest + "k"}, kPatience), std::invalid_argument);
  EXPECT_THROW(store->MultiSet({"short", longest + "k"}, {"", ""}), std::invalid_argument);
  store->Set(longest, "v");  // nothing was sent before it, and the store is usable
  EXPECT_TRUE(peer_->Receive(SetBytes("/" + longest, "v").size()) == SetBytes("/" + longest, "v"));
}

TEST_F(ClientPeersTest, Item114_AValueTooLargeForTheServerIsRefusedHere) {
  StorePtr store = Connected();
  const std::string too_large((8 << 20) + 1, 'v');
  EXPECT_THROW(store->Set("k", too_large), std::invalid_argument);
  EXPECT_THROW(store->Append("k", too_large), std::invalid_argument);
  EXPECT_THROW(store->QueuePush("k", too_large), std::invalid_argument);
  EXPECT_THROW(store->CompareSet("k", too_large, ""), std::invalid_argument);
  EXPECT_THROW(store->MultiSet({"a", "b"}, {"", too_large}), std::invalid_argument);
  store->Set("k", "v");
  EXPECT_EQ(peer_->Receive(SetBytes("/k", "v").size()), SetBytes("/k", "v"));
}

TEST_F(ClientPeersTest, Item063_AMultiSetOfUnequalListsSendsNothing) {
  StorePtr store = Connected();
  EXPECT_THROW(store->MultiSet({"a", "b"}, {"1"}), std::invalid_argument);
  store.reset();
  EXPECT_EQ(peer_->ReceiveUntilClosed(), "");
}

TEST_F(ClientPeersTest, Item039_AWaitForNothingSendsNothing) {
  StorePtr store = Connected();
  store->Wait({});
  store.reset();
  EXPECT_EQ(peer_->ReceiveUntilClosed(), "");
}

}  // namespace muster::test
