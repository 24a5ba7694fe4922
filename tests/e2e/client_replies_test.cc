// What a TcpStore accepts from a peer, and for how long: replies that trickle, that never end, or
// that come as an end of the connection.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <stdexcept>
#include <string>

#include "support/client_peers_test.h"
#include "support/errors.h"

namespace muster::test {

using ::testing::HasSubstr;
using ::testing::StartsWith;

/// The value that the client expects in its check whether a key is there.
constexpr std::string_view kNobodys = "muster asks whether this key is there";

class ClientRepliesTest : public ClientPeersTest {
 protected:
  void Expect(const std::string& request) {
    EXPECT_EQ(ToHex(peer_->Receive(request.size())), ToHex(request));
  }

  /// Answers a Get() with "it is there" and an empty value, and reads the client's second query.
  void TellThatItIsEmpty(const std::string& key) {
    Expect(CheckBytes({key}) + GetBytes(key));
    peer_->Send(kReady + Blob(""));
    Expect(CompareSetBytes(key, kNobodys, kNobodys));
  }

  /// What Get() returns after an empty value, if the next answer for its key is `value`.
  std::string ReadWhenConfirmedAs(const std::string& value) {
    StorePtr store = Connected();
    Background<std::string> getting([&] { return store->Get("k"); });
    TellThatItIsEmpty("/k");
    peer_->Send(Blob(value));
    return getting.Result();
  }

  /// Sends `bytes` repeatedly, so that there is always something to read, until the client
  /// disconnects.
  template <typename T>
  void SendUntilDone(const Background<T>& call, const std::string& bytes) {
    const Stopwatch watch;
    try {
      while (!call.IsDone() && watch.Elapsed() < kPatience) peer_->Send(bytes);
    } catch (const std::runtime_error&) {
      // The client has closed the connection.
    }
    EXPECT_TRUE(EventuallyTrue([&] { return call.IsDone(); }));
  }
};

// PyTorch's server without libuv disconnects on a GET of an absent key.

TEST_F(ClientRepliesTest,
       Item062_AServerThatDisconnectsOnAbsentKeysGetsNoGetBeforeItsCheckSucceeds) {
  StorePtr store = Connected();
  Background<std::string> getting([&] { return store->Get("k"); });
  Expect(CheckBytes({"/k"}) + GetBytes("/k"));
  peer_->Send(kNotReady);
  peer_->Close();
  peer_.emplace(AcceptAndGreet());
  Expect(WaitBytes({"/k"}));
  peer_->Send(kStop);
  Expect(CheckBytes({"/k"}));
  peer_->Send(kReady);
  Expect(GetBytes("/k"));
  peer_->Send(Blob("value"));
  EXPECT_EQ(getting.Result(), "value");

  // The client remembers it: no GET before CHECK has said yes.
  Background<std::string> again([&] { return store->Get("l"); });
  Expect(CheckBytes({"/l"}));
  peer_->Send(kNotReady);
  Expect(WaitBytes({"/l"}));
  peer_->Send(kStop);
  Expect(CheckBytes({"/l"}));
  peer_->Send(kReady);
  Expect(GetBytes("/l"));
  peer_->Send(Blob(""));
  Expect(CompareSetBytes("/l", kNobodys, kNobodys));
  peer_->Send(Blob(""));
  EXPECT_EQ(again.Result(), "");
  store.reset();
  EXPECT_EQ(peer_->ReceiveUntilClosed(), "");
}

TEST_F(ClientRepliesTest, Item057_OnSuchAServerAGetStillTimesOut) {
  StorePtr store = Connected(milliseconds(300));
  Background<std::string> getting([&] { return store->Get("k"); });
  Expect(CheckBytes({"/k"}) + GetBytes("/k"));
  peer_->Send(kNotReady);
  peer_->Close();
  peer_.emplace(AcceptAndGreet());
  Expect(WaitBytes({"/k"}) + CancelBytes());
  peer_->Send(kCancelled);
  EXPECT_THAT(ErrorOf<StoreTimeoutError>([&] { getting.Result(); }),
              HasSubstr("wait timeout after 300ms, keys: /k"));
}

TEST_F(ClientRepliesTest, Item056_AServerThatIsGoneIsNotTakenForSuchAOne) {
  auto listener = std::make_unique<RawListener>();
  Background<std::string> getting([port = listener->port()] {
    return TcpStore("127.0.0.1", {.port = port, .timeout = kPatience}).Get("k");
  });
  RawSocket peer = listener->Accept();
  peer.Receive(10);
  peer.Send(U32(static_cast<uint32_t>(getpid())));
  peer.Receive((CheckBytes({"/k"}) + GetBytes("/k")).size());
  listener.reset();
  peer.Send(kNotReady);
  peer.Close();
  const Stopwatch watch;
  EXPECT_THAT(ErrorOf<NetworkError>([&] { getting.Result(); }),
              StartsWith("Failed to recv, got 0 bytes."));
  EXPECT_LT(watch.Elapsed(), milliseconds(10'000));
}

TEST_F(ClientRepliesTest, Item056_AnEndAfterTheKeyWasThereIsAnError) {
  StorePtr store = Connected();
  Background<std::string> getting([&] { return store->Get("k"); });
  Expect(CheckBytes({"/k"}) + GetBytes("/k"));
  peer_->Send(kReady);
  peer_->Close();
  EXPECT_THROW(getting.Result(), NetworkError);
  EXPECT_THROW(store->Get("k"), NetworkError);
}

// A peer does not get more time by bytes that keep coming (or going).

TEST_F(ClientRepliesTest, Item046_AnEndlessValueIsBoundedByTheTimeout) {
  StorePtr store = Connected();
  store->SetTimeout(milliseconds(20));
  Background<std::string> swapping([&] { return store->CompareSet("k", "a", "b"); });
  peer_->Receive(CompareSetBytes("/k", "a", "b").size());
  peer_->Send(U64(256 << 20));  // as much as is accepted, and more than arrives in 20 ms
  SendUntilDone(swapping, std::string(64 << 10, 'v'));
  EXPECT_THAT(ErrorOf<NetworkError>([&] { swapping.Result(); }), HasSubstr("within 20ms"));
}

TEST_F(ClientRepliesTest, Item046_AnEndlessListIsBoundedByTheTimeout) {
  StorePtr store = Connected();
  store->SetTimeout(milliseconds(50));
  Background<Keys> listing([&] { return store->ListKeys(); });
  peer_->Receive(1);
  peer_->Send(I64(256 << 20));
  std::string keys;
  for (int i = 0; i < 1'000; ++i) keys += Blob("i");  // none of the user's: they take no memory
  const Stopwatch watch;
  SendUntilDone(listing, keys);
  EXPECT_THAT(ErrorOf<NetworkError>([&] { listing.Result(); }), HasSubstr("within 50ms"));
  EXPECT_LT(watch.Elapsed(), milliseconds(10'000));
}

TEST_F(ClientRepliesTest, Item046_ARequestThatIsTakenBitByBitIsBoundedByTheTimeout) {
  StorePtr store = Connected();
  peer_->LimitBuffers(64 << 10);
  store->SetTimeout(milliseconds(20));
  Background<void> setting([&] {  // 248 MiB: more than goes through in 20 ms
    store->MultiSet(Keys(31, "k"), Keys(31, std::string(8 << 20, 'v')));
  });
  peer_->ReceiveUntilClosed();
  EXPECT_THAT(ErrorOf<NetworkError>([&] { setting.Result(); }), HasSubstr("for 20ms"));
}

TEST_F(ClientRepliesTest, Item081_AListOfImpossiblyManyKeysIsRejected) {
  for (const int64_t count : {int64_t{1} << 62, int64_t{-1}}) {
    StorePtr store = Connected();
    Background<Keys> listing([&] { return store->ListKeys(); });
    peer_->Receive(1);
    peer_->Send(I64(count));
    EXPECT_THAT(ErrorOf<StoreError>([&] { listing.Result(); }),
                HasSubstr("LIST_KEYS: the peer announces " + std::to_string(count) + " keys"));
    EXPECT_THROW(store->Check({"k"}), NetworkError);
  }
}

TEST_F(ClientRepliesTest, Item062_AKeyThatVanishesBeforeAMultiGetReadsItIsWaitedForAgain) {
  StorePtr store = Connected();
  Background<Keys> getting([&] { return store->MultiGet({"a", "b"}); });
  const Keys keys = {"/a", "/b"};
  Expect(WaitBytes(keys));
  peer_->Send(kStop);
  Expect(CheckBytes(keys) + MultiGetBytes(keys));
  peer_->Send(kNotReady + Blob("1") + Blob(""));
  Expect(WaitBytes(keys));
  peer_->Send(kStop);
  Expect(CheckBytes(keys) + MultiGetBytes(keys));
  peer_->Send(kReady + Blob("1") + Blob("2"));
  EXPECT_THAT(getting.Result(), ::testing::ElementsAre("1", "2"));
}

// "Empty" and "gone" look the same on the wire, and CHECK and GET may arrive separately.

TEST_F(ClientRepliesTest, Item062_AKeyDeletedBetweenItsCheckAndItsGetIsWaitedForAgain) {
  StorePtr store = Connected();
  Background<std::string> getting([&] { return store->Get("k"); });
  TellThatItIsEmpty("/k");
  peer_->Send(Blob(kNobodys));  // the reply for an absent key
  Expect(CheckBytes({"/k"}));
  peer_->Send(kNotReady);
  Expect(WaitBytes({"/k"}));
  peer_->Send(kStop);
  Expect(CheckBytes({"/k"}) + GetBytes("/k"));
  peer_->Send(kReady + Blob("new"));
  EXPECT_EQ(getting.Result(), "new");
}

TEST_F(ClientRepliesTest, Item062_AnEmptyValueIsBelievedWhenItsKeyIsThere) {
  EXPECT_EQ(ReadWhenConfirmedAs(""), "");
}

TEST_F(ClientRepliesTest, Item062_AValueThatArrivesDuringTheRequestIsTheAnswer) {
  EXPECT_EQ(ReadWhenConfirmedAs("new"), "new");
}

TEST_F(ClientRepliesTest, Item062_AQueueIsThereAndHasNoValue) {
  StorePtr store = Connected();
  Background<std::string> getting([&] { return store->Get("q"); });
  TellThatItIsEmpty("/q");
  peer_->Send(Blob(kNobodys));
  Expect(CheckBytes({"/q"}));
  peer_->Send(kReady);
  Expect(QueueLenBytes("/q"));
  peer_->Send(I64(3));
  EXPECT_EQ(getting.Result(), "");
}

TEST_F(ClientRepliesTest, Item062_AMultiGetWhoseEmptyKeyIsGoneWaitsForItAgain) {
  StorePtr store = Connected();
  Background<Keys> getting([&] { return store->MultiGet({"a", "b"}); });
  const Keys keys = {"/a", "/b"};
  Expect(WaitBytes(keys));
  peer_->Send(kStop);
  Expect(CheckBytes(keys) + MultiGetBytes(keys));
  peer_->Send(kReady + Blob("1") + Blob(""));
  Expect(CompareSetBytes("/b", kNobodys, kNobodys));
  peer_->Send(Blob(kNobodys));
  Expect(CheckBytes({"/b"}));
  peer_->Send(kReady);  // The key came back meanwhile, but is it a queue?
  Expect(QueueLenBytes("/b"));
  peer_->Send(I64(0));
  Expect(WaitBytes(keys));
  peer_->Send(kStop);
  Expect(CheckBytes(keys) + MultiGetBytes(keys));
  peer_->Send(kReady + Blob("1") + Blob("2"));
  EXPECT_THAT(getting.Result(), ::testing::ElementsAre("1", "2"));
}

TEST_F(ClientRepliesTest, Item062_AMultiGetHasOneDeadlineForItsWaitAndItsRead) {
  StorePtr store = Connected(milliseconds(1'000));
  const Stopwatch watch;
  Background<Keys> getting([&] { return store->MultiGet({"a"}); });
  Expect(WaitBytes({"/a"}));
  EXPECT_TRUE(EventuallyTrue([&] { return watch.Elapsed() > milliseconds(700); }));
  peer_->Send(kStop);
  EXPECT_THROW(getting.Result(), DistError);
  EXPECT_LT(watch.Elapsed(), milliseconds(1'600));
}

TEST_F(ClientRepliesTest, Item115_AMultiSetTooLargeForTheServerIsRefusedHere) {
  StorePtr store = Connected();
  const Keys keys(33, "k");
  const Keys values(33, std::string(8 << 20, 'v'));
  EXPECT_THAT(ErrorOf<std::invalid_argument>([&] { store->MultiSet(keys, values); }),
              ::testing::AllOf(HasSubstr("MULTI_SET: 276824667 bytes"),
                               HasSubstr("limit 268435456"), HasSubstr("split the call")));
  store->Set("k", "v");  // nothing was sent before it, and the store is usable
  Expect(SetBytes("/k", "v"));
}

}  // namespace muster::test
