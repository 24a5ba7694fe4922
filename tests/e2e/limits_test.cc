// Limits: exactly at them everything works, one beyond them the connection ends, and options change
// them.
#include <gtest/gtest.h>

#include <string>

#include "muster/store_server.h"
#include "muster/tcp_store.h"
#include "support/raw_server_test.h"

namespace muster::test {

class LimitsTest : public RawServerTest {
 protected:
  void ExpectClosed(const std::string& bytes) {
    RawClient client = Client();
    client.Send(bytes);
    EXPECT_EQ(ToHex(client.ReceiveUntilClosed()), "");
    ExpectServerIsWell();
  }
};
MUSTER_ON_ONE_AND_TWO_LOOPS(LimitsTest);

TEST_P(LimitsTest, Item113_AKeyOf8192BytesWorks) {
  const std::string key(8192, 'k');
  RawClient client = Client();
  client.Send(SetBytes(key, "v"));
  EXPECT_EQ(client.AskBlob(GetBytes(key)), "v");
  EXPECT_EQ(client.Ask(CheckBytes({key, key}), 1), kReady);
  EXPECT_EQ(client.AskNumber(DeleteBytes(key)), 1);
}

TEST_P(LimitsTest, Item113_AKeyOf8193BytesIsClosed) {
  const std::string key(8193, 'k');
  ExpectClosed(SetBytes(key, "v"));
  ExpectClosed(GetBytes(key));
  ExpectClosed(WaitBytes({"/short", key}));
  EXPECT_EQ(Client().AskNumber(NumKeysBytes()), 0);
}

TEST_P(LimitsTest, Item114_AValueOf8MebibytesWorks) {
  const std::string value(8 << 20, 'v');
  RawClient client = Client();
  client.Send(SetBytes("/k", value));
  EXPECT_TRUE(client.AskBlob(GetBytes("/k")) == value);
  EXPECT_TRUE(client.AskBlob(CompareSetBytes("/k", value, value)) == value);
  client.Send(PushBytes("/q", value));
  EXPECT_EQ(client.AskNumber(PopBytes("/q")), 1);
  EXPECT_TRUE(client.ReceiveBlob() == value);
}

TEST_P(LimitsTest, Item114_AValueOneByteLargerIsClosed) {
  // The length is enough: it is checked before the bytes come.
  ExpectClosed(Hex("01") + Blob("/k") + U64((8 << 20) + 1));
  EXPECT_EQ(Client().Ask(CheckBytes({"/k"}), 1), kNotReady);
}

TEST_P(LimitsTest, Item114_ThroughTheClientTheNextCallFails) {
  // A client that is configured for larger values: the set is under way before the server can
  // refuse it.
  TcpStore store("127.0.0.1", {.port = port(), .timeout = kPatience, .value_bytes_max = 16 << 20});
  store.Set("fits", "v");
  const std::string too_large((8 << 20) + 1, 'v');
  try {
    store.Set("k", too_large);
  } catch (const NetworkError&) {
    // The server may have disconnected before the last byte was sent.
  }
  EXPECT_THROW(store.Get("fits"), NetworkError);
  EXPECT_EQ(Client().AskNumber(NumKeysBytes()), 1);
}

TEST_P(LimitsTest, Item115_AWaitForAsManyKeysAsAllowed) {
  constexpr int kMost = 131'072;
  Keys keys;
  Pairs pairs;
  for (int i = 0; i < kMost; ++i) {
    keys.push_back("/k" + std::to_string(i));
    pairs.emplace_back(keys.back(), "");
  }
  RawClient waiter = Client();
  waiter.Send(WaitBytes(keys));
  EXPECT_EQ(waiter.SaidSoFar(), "");
  RawClient writer = Client();
  const Stopwatch watch;
  writer.Send(MultiSetBytes(pairs));
  EXPECT_EQ(waiter.Receive(1), kStop);
  EXPECT_EQ(writer.AskNumber(NumKeysBytes()), kMost);
  EXPECT_EQ(writer.Ask(CheckBytes(keys), 1), kReady);
  EXPECT_EQ(writer.Ask(MultiGetBytes(keys), 8 * kMost), std::string(8 * kMost, '\0'));
  EXPECT_LT(watch.Elapsed(), milliseconds(20'000));
}

TEST_P(LimitsTest, Item115_OneKeyMoreIsClosed) {
  for (const int op : {5, 6, 10, 11})
    ExpectClosed(std::string(1, static_cast<char>(op)) + U64(131'073));
}

TEST_P(LimitsTest, Item116_AValueGrownByAppendCanBeRead) {
  const std::string piece(4 << 20, 'p');
  RawClient client = Client();
  for (int i = 0; i < 3; ++i) client.Send(AppendBytes("/k", piece));
  EXPECT_EQ(client.AskBlob(GetBytes("/k")).size(), 3 * piece.size());
  TcpStore store("127.0.0.1", {.port = port(), .timeout = kPatience});
  EXPECT_EQ(store.Get("k").size(), 3 * piece.size());
}

TEST_P(LimitsTest, Item113_LimitsCanBeMoved) {
  StoreServerOptions options = Options();
  options.key_bytes_max = 4;
  options.value_bytes_max = 10;
  options.keys_per_request_max = 2;
  Start(options);
  RawClient client = Client();
  client.Send(SetBytes("/abc", "0123456789"));
  EXPECT_EQ(client.AskBlob(GetBytes("/abc")), "0123456789");
  EXPECT_EQ(client.Ask(CheckBytes({"/abc", "/abc"}), 1), kReady);
  ExpectClosed(GetBytes("/abcd"));
  ExpectClosed(SetBytes("/abc", "0123456789a"));
  ExpectClosed(CheckBytes({"/a", "/b", "/c"}));
}

TEST_P(LimitsTest, Item115_ARequestAsAWholeIsBounded) {
  StoreServerOptions options = Options();
  options.request_bytes_max = 1'000;
  Start(options);
  RawClient client = Client();
  client.Send(MultiSetBytes({{"/a", std::string(400, 'x')}, {"/b", std::string(400, 'x')}}));
  EXPECT_EQ(client.AskNumber(NumKeysBytes()), 2);
  ExpectClosed(MultiSetBytes({{"/c", std::string(400, 'x')}, {"/d", std::string(900, 'x')}}));
  EXPECT_EQ(client.AskNumber(NumKeysBytes()), 2);
}

TEST_P(LimitsTest, Item116_WhatAppendAndMultiGetMayReachIsBounded) {
  StoreServerOptions options = Options();
  options.reply_bytes_max = 1'000;
  Start(options);
  RawClient client = Client();
  client.Send(AppendBytes("/k", std::string(600, 'x')) + AppendBytes("/k", std::string(400, 'x')));
  EXPECT_EQ(client.AskBlob(GetBytes("/k")).size(), 1'000u);
  ExpectClosed(AppendBytes("/k", "x"));
  ExpectClosed(MultiGetBytes({"/k", "/k"}));
  EXPECT_EQ(client.AskBlob(GetBytes("/k")).size(), 1'000u);
}

}  // namespace muster::test
