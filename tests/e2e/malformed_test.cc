// Bad input, row by row of the table in the protocol's chapter on malformed input: the sender's
// connection is closed, and other clients notice nothing.
#include <gmock/gmock.h>

#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "muster/store_server.h"
#include "support/eventually.h"
#include "support/raw_server_test.h"

namespace muster::test {

class MalformedTest : public RawServerTest {
 protected:
  /// Sends `bytes` on a validated connection, which must be closed without a reply. Another client
  /// and the data are unaffected.
  void ExpectClosed(const std::string& bytes, const std::string& what) {
    SCOPED_TRACE(what);
    RawClient bystander = Client();
    bystander.Send(SetBytes("/kept", "as it was"));
    RawClient client = Client();
    client.Send(bytes);
    EXPECT_EQ(ToHex(client.ReceiveUntilClosed()), "");
    EXPECT_EQ(bystander.AskBlob(GetBytes("/kept")), "as it was");
    EXPECT_EQ(bystander.AskNumber(NumKeysBytes()), 1);
  }

  static constexpr uint64_t kHuge[] = {8u << 20 | 1, 1ull << 31, 1ull << 32,
                                       1ull << 62,   1ull << 63, ~0ull};
};
MUSTER_ON_ONE_AND_TWO_LOOPS(MalformedTest);

TEST_P(MalformedTest, Item113_AKeyLengthOverTheLimitIsJudgedBeforeTheKeyComes) {
  for (const int op : {1, 2, 3, 4, 8, 9, 14, 15, 16, 18}) {
    for (const uint64_t size : kHuge) {
      ExpectClosed(std::string(1, static_cast<char>(op)) + U64(size), "op " + std::to_string(op));
    }
    ExpectClosed(std::string(1, static_cast<char>(op)) + U64(8193), "op " + std::to_string(op));
  }
}

TEST_P(MalformedTest, Item114_AValueLengthOverTheLimitIsJudgedBeforeTheValueComes) {
  for (const uint64_t size : kHuge) {
    ExpectClosed(Hex("01") + Blob("/k") + U64(size), "SET");
    ExpectClosed(Hex("02") + Blob("/k") + U64(size), "COMPARE_SET, expected");
    ExpectClosed(Hex("02") + Blob("/k") + Blob("") + U64(size), "COMPARE_SET, desired");
    ExpectClosed(Hex("09") + Blob("/k") + U64(size), "APPEND");
    ExpectClosed(Hex("0e") + Blob("/k") + U64(size), "QUEUE_PUSH");
    ExpectClosed(Hex("0b") + U64(1) + Blob("/k") + U64(size), "MULTI_SET");
  }
}

TEST_P(MalformedTest, Item115_ACountOverTheLimitIsJudgedBeforeTheKeysCome) {
  for (const int op : {5, 6, 10, 11}) {
    for (const uint64_t count :
         {uint64_t{131'073}, uint64_t{1} << 32, uint64_t{1} << 63, ~uint64_t{0}}) {
      ExpectClosed(std::string(1, static_cast<char>(op)) + U64(count), "op " + std::to_string(op));
    }
    ExpectClosed(std::string(1, static_cast<char>(op)) + U64(2) + Blob("/k") +
                     (op == 11 ? Blob("v") : "") + U64(8193),
                 "second key of op " + std::to_string(op));
  }
}

TEST_P(MalformedTest, Item112_AnEndInsideARequestDiscardsIt) {
  const std::string requests[] = {SetBytes("/k", "value"),
                                  CompareSetBytes("/k", "", "value"),
                                  AddBytes("/k", 1),
                                  AppendBytes("/k", "value"),
                                  MultiSetBytes({{"/k", "1"}, {"/l", "2"}}),
                                  PushBytes("/k", "value"),
                                  BarrierBytes("/k", 1)};
  for (const std::string& request : requests) {
    for (size_t cut = 1; cut < request.size(); ++cut) {
      RawClient client = Client();
      client.Send(request.substr(0, cut));
      client.CloseSending();
      EXPECT_EQ(ToHex(client.ReceiveUntilClosed()), "") << "cut after " << cut;
    }
  }
  RawClient client = Client();
  EXPECT_EQ(client.AskNumber(NumKeysBytes()), 0);
  EXPECT_EQ(client.AskNumber(QueueLenBytes("/k")), 0);
}

TEST_P(MalformedTest, Item112_AnEndBehindARequestStillExecutesIt) {
  RawClient client = Client();
  client.Send(SetBytes("/k", "v"));
  client.CloseSending();
  client.ReceiveUntilClosed();
  EXPECT_EQ(Client().AskBlob(GetBytes("/k")), "v");
}

TEST_P(MalformedTest, Item021_AddToTextClosesAndLeavesTheText) {
  RawClient owner = Client();
  for (const std::string value :
       {"abc", "", "-", "+", " ", "x0", "--1", "9223372036854775808", "-9223372036854775809"}) {
    owner.Send(SetBytes("/n", value));
    owner.Settle();
    RawClient client = Client();
    client.Send(AddBytes("/n", 1));
    EXPECT_EQ(client.ReceiveUntilClosed(), "") << value;
    EXPECT_EQ(owner.AskBlob(GetBytes("/n")), value);
  }
}

TEST_P(MalformedTest, Item085_ABarrierOnTextClosesAndLeavesTheText) {
  RawClient owner = Client();
  owner.Send(SetBytes("/b", "no number"));
  owner.Settle();
  RawClient client = Client();
  client.Send(BarrierBytes("/b", 2));
  EXPECT_EQ(client.ReceiveUntilClosed(), "");
  EXPECT_EQ(owner.AskBlob(GetBytes("/b")), "no number");
}

TEST_P(MalformedTest, Item009_WhatCameBeforeTheMistakeIsExecutedAndAnswered) {
  RawClient client = Client();
  client.Send(SetBytes("/before", "1") + AddBytes("/n", 4) + PingBytes(3) + Hex("ff") +
              SetBytes("/after", "1"));
  EXPECT_EQ(client.ReceiveUntilClosed(), I64(4) + U32(3));
  RawClient other = Client();
  EXPECT_EQ(other.Ask(CheckBytes({"/before", "/n"}), 1), kReady);
  EXPECT_EQ(other.Ask(CheckBytes({"/after"}), 1), kNotReady);
}

TEST_P(MalformedTest, Item009_AnswersBeforeARefusedAddArrive) {
  RawClient client = Client();
  client.Send(SetBytes("/t", "text") + PingBytes(8) + AddBytes("/t", 1) + PingBytes(9));
  EXPECT_EQ(client.ReceiveUntilClosed(), U32(8));
}

TEST_P(MalformedTest, Item049_ASecondWaitWhileOneIsOutstandingIsClosed) {
  // No real client does this; it must not confuse the server.
  for (const std::string& second : {WaitBytes({"/other"}), BarrierBytes("/b", 2)}) {
    RawClient client = Client();
    client.Send(WaitBytes({"/never"}) + second);
    EXPECT_EQ(client.ReceiveUntilClosed(), "");
  }
  ExpectServerIsWell();
}

TEST_P(MalformedTest, Item009_RandomBytesNeverHurtTheServer) {
  // A fixed stream of pseudo-random bytes, so that a failure can be repeated.
  uint64_t state = 42;
  const auto random = [&state] {
    state = state * 6364136223846793005 + 1442695040888963407;
    return static_cast<char>(state >> 56);
  };
  for (int i = 0; i < 300; ++i) {
    RawClient client = Client();
    std::string noise(static_cast<size_t>(1 + i % 64), '\0');
    for (char& byte : noise) byte = random();
    // Existing opcodes lead further into the parser than others.
    noise[0] = static_cast<char>(static_cast<unsigned char>(noise[0]) % 19);
    client.Send(noise);
    client.Close();
  }
  ExpectServerIsWell();
}

// The connection may have no address any more when the server refuses what it has sent.
TEST(LoggedPeerTest, AClientThatVanishesIsNamedNevertheless) {
  std::mutex mutex;
  std::vector<std::string> lines;
  const StoreServer server(
      {.host = "127.0.0.1", .threads = 1, .log = [&](bool, std::string_view line) {
         const std::lock_guard lock(mutex);
         if (line.starts_with("closed ")) lines.emplace_back(line);
       }});
  constexpr size_t kLines = 10;  // within one second
  for (size_t i = 0; i < 3 * kLines; ++i) {
    RawClient client(server.port());
    client.Send(ValidateBytes() + Hex("ff"));
    client.CloseAbruptly();
  }
  EXPECT_TRUE(EventuallyTrue([&] {
    const std::lock_guard lock(mutex);
    return lines.size() >= kLines;
  }));
  const std::lock_guard lock(mutex);
  EXPECT_THAT(lines, ::testing::Each(::testing::HasSubstr("closed 127.0.0.1")));
}

}  // namespace muster::test
