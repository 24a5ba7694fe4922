// Clients that do not read, do not write, or do not leave: bounded in memory and in time, and no
// other client notices.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "muster/store_server.h"
#include "support/process_limits.h"
#include "support/raw_client.h"
#include "support/raw_server_test.h"
#include "support/server_process.h"

namespace muster::test {

namespace {

constexpr size_t kMebibyte = 1 << 20;

StoreServerOptions OneLoop() { return {.host = "127.0.0.1", .threads = 1}; }

/// Watches a server process's memory grow.
class MemoryWatch {
 public:
  explicit MemoryWatch(const ServerProcess& server)
      : server_(server), before_(server.ResidentBytes()) {}
  void ExpectGrowthBelow(size_t bytes) const {
    if (!kMemoryIsMeasurable) return;
    const size_t now = server_.ResidentBytes();
    EXPECT_LT(now, before_ + bytes) << "was " << before_;
  }

 private:
  const ServerProcess& server_;
  const size_t before_;
};

/// A client that does not read, with little room for replies in the kernel. (With less than a few
/// segments, which are 64 KiB on loopback, TCP itself would probe only every other second.)
RawClient StingyClient(uint16_t port) {
  RawClient client(port);
  client.LimitBuffers(256 * 1024);
  client.Send(ValidateBytes());
  return client;
}

}  // namespace

TEST(SlowClientsTest, Item120_AClientThatNeverReadsIsNoLongerReadEither) {
  ServerProcess server(OneLoop());
  RawClient other = RawClient::Validated(server.port());
  other.Send(SetBytes("/k", std::string(kMebibyte, 'v')));
  other.Settle();
  const MemoryWatch memory(server);

  RawClient greedy = StingyClient(server.port());
  const size_t sent =
      SendUntilRefused(greedy, GetBytes("/k"), 64 * kMebibyte, [&] { other.Settle(); });
  // The content of two kernels' buffers, and what the server had read before it stopped: replies
  // worth terabytes, if they were queued.
  EXPECT_LT(sent, 32 * kMebibyte);
  memory.ExpectGrowthBelow(24 * kMebibyte);
  for (int i = 0; i < 1'000; ++i) ASSERT_EQ(other.AskNumber(AddBytes("/n", 1)), i + 1);
  greedy.Close();
  EXPECT_EQ(other.SaidSoFar(), "");
  EXPECT_EQ(server.Stop(), 0);
}

TEST(SlowClientsTest, Item120_AHundredOfThemAreBoundedToo) {
  StoreServerOptions options = OneLoop();
  options.queued_reply_bytes_max = 64 * 1024;
  ServerProcess server(options);
  RawClient other = RawClient::Validated(server.port());
  other.Send(SetBytes("/k", std::string(kMebibyte / 4, 'v')));
  other.Settle();
  const MemoryWatch memory(server);
  std::string requests;
  for (int i = 0; i < 100; ++i) requests += GetBytes("/k");
  std::vector<RawClient> greedy;
  for (int i = 0; i < 100; ++i) {
    greedy.push_back(StingyClient(server.port()));
    greedy.back().Send(requests);
  }
  for (int i = 0; i < 100; ++i) other.Settle();
  // Each may have one reply and the limit queued: 32 MiB in all, where 2.5 GiB were requested.
  memory.ExpectGrowthBelow(100 * (kMebibyte / 4 + 64 * 1024) + 32 * kMebibyte);
  EXPECT_EQ(server.Stop(), 0);
}

TEST(SlowClientsTest, Item120_TheLastOfALargeReplyDoesNotCostAllOfIt) {
  ServerProcess server(OneLoop());
  RawClient other = RawClient::Validated(server.port());
  constexpr size_t kValue = 8 * kMebibyte - 64;
  other.Send(SetBytes("/k", std::string(kValue, 'v')));
  other.Settle();
  const MemoryWatch memory(server);
  std::vector<RawClient> readers;
  for (int i = 0; i < 4; ++i) {
    readers.push_back(StingyClient(server.port()));
    readers.back().Send(MultiGetBytes({"/k", "/k", "/k", "/k"}));
    readers.back().Receive(2 * kValue);
  }
  for (int i = 0; i < 100; ++i) other.Settle();
  // Half of 128 MiB has been read, and the kernels have some.
  memory.ExpectGrowthBelow(80 * kMebibyte);
  EXPECT_EQ(server.Stop(), 0);
}

TEST(SlowClientsTest, Item120_AClientThatIsAlwaysALittleBehindCostsNoMoreThanThat) {
  ServerProcess server(OneLoop());
  RawClient other = RawClient::Validated(server.port());
  constexpr size_t kValue = 16 * 1024;
  constexpr size_t kReply = kValue + 8;
  other.Send(SetBytes("/k", std::string(kValue, 'v')));
  other.Settle();
  const MemoryWatch memory(server);
  RawClient behind = StingyClient(server.port());
  // More than the two kernels hold is under way all the time, so the server's queue never becomes
  // empty.
  size_t asked = 0;
  const auto ask = [&](size_t count) {
    std::string requests;
    for (size_t i = 0; i < count; ++i) requests += GetBytes("/k");
    behind.Send(requests);
    asked += count;
  };
  constexpr size_t kUnderWay = 4 * kMebibyte / kReply;
  ask(kUnderWay);
  for (size_t read = 0; read < 100 * kMebibyte / kReply; ++read) {
    behind.ReceiveBlob();
    if (asked - read < kUnderWay) ask(16);
  }
  memory.ExpectGrowthBelow(24 * kMebibyte);
  EXPECT_EQ(server.Stop(), 0);
}

TEST(SlowClientsTest, Item120_SilentReadersOfHugeRepliesAreBoundedTogether) {
  StoreServerOptions options = OneLoop();
  options.store_bytes_max = 64 * kMebibyte;
  ServerProcess server(options);
  RawClient other = RawClient::Validated(server.port());
  other.Send(SetBytes("/k", std::string(8 * kMebibyte, 'v')));
  other.Settle();
  const MemoryWatch memory(server);
  // Each requests, in 40 bytes, 40 MiB.
  std::vector<RawClient> greedy;
  for (int i = 0; i < 12; ++i) {
    greedy.push_back(StingyClient(server.port()));
    greedy.back().Send(MultiGetBytes({"/k", "/k", "/k", "/k", "/k"}));
    other.Settle();
  }
  // 480 MiB were requested; queued replies share memory with the store.
  memory.ExpectGrowthBelow(64 * kMebibyte);
  // Small replies are sent meanwhile, and large ones again as soon as there is room.
  EXPECT_EQ(other.AskNumber(AddBytes("/n", 1)), 1);
  greedy.clear();
  while (true) {
    RawClient patient = RawClient::Validated(server.port());
    patient.Send(GetBytes("/k"));
    try {
      EXPECT_EQ(patient.ReceiveBlob().size(), 8 * kMebibyte);
      break;
    } catch (const std::runtime_error&) {
      // The server has not noticed yet that the others are gone.
    }
  }
  EXPECT_EQ(server.Stop(), 0);
}

TEST(SlowClientsTest, Item120_ALargeReplyArrivesWholeBehindAndBeforeSmallOnes) {
  const StoreServer server(OneLoop());
  RawClient client = RawClient::Validated(server.port());
  std::string value(3 * kMebibyte, 'v');
  for (size_t i = 0; i < value.size(); i += 997) value[i] = static_cast<char>(i);
  client.Send(SetBytes("/k", value));
  std::string requests;
  for (int i = 0; i < 20; ++i) requests += AddBytes("/n", 1) + GetBytes("/k");
  client.Send(requests);
  for (int i = 0; i < 20; ++i) {
    ASSERT_EQ(client.ReceiveNumber(), i + 1);
    ASSERT_TRUE(client.ReceiveBlob() == value);
  }
}

TEST(SlowClientsTest, Item120_AClientThatFinallyReadsGetsEverythingInOrder) {
  const StoreServer server(OneLoop());
  RawClient other = RawClient::Validated(server.port());
  RawClient late = StingyClient(server.port());
  constexpr int kReplies = 100;
  const std::string filler(kMebibyte / 2, 'x');
  std::string requests = SetBytes("/k", filler);
  for (int i = 0; i < kReplies; ++i) requests += AddBytes("/n", 1) + GetBytes("/k");
  late.Send(requests + WaitBytes({"/n"}));
  for (int i = 0; i < 100; ++i) other.Settle();
  for (int i = 0; i < kReplies; ++i) {
    ASSERT_EQ(late.ReceiveNumber(), i + 1);
    ASSERT_TRUE(late.ReceiveBlob() == filler);
  }
  EXPECT_EQ(late.Receive(1), kStop);
  EXPECT_EQ(late.SaidSoFar(), "");
}

TEST(SlowClientsTest, Item120_AReleaseReachesAClientWhoseRepliesAreQueued) {
  const StoreServer server(OneLoop());
  RawClient other = RawClient::Validated(server.port());
  RawClient late = StingyClient(server.port());
  const std::string value(8 * kMebibyte, 'x');
  other.Send(SetBytes("/k", value));
  other.Settle();
  late.Send(WaitBytes({"/gate"}) + GetBytes("/k"));
  for (int i = 0; i < 20; ++i) other.Settle();
  other.Send(SetBytes("/gate", ""));
  other.Settle();
  EXPECT_TRUE(late.ReceiveBlob() == value);
  EXPECT_EQ(late.Receive(1), kStop);
}

TEST(SlowClientsTest, Item120_AClientThatTakesNothingForTooLongIsClosed) {
  StoreServerOptions options = OneLoop();
  options.stall_max = milliseconds(300);
  const StoreServer server(options);
  RawClient other = RawClient::Validated(server.port());
  RawClient idle = RawClient::Validated(server.port());  // nothing is queued for it
  other.Send(SetBytes("/k", std::string(8 * kMebibyte, 'v')));
  other.Settle();
  RawClient stalled = StingyClient(server.port());
  std::string requests;
  for (int i = 0; i < 20; ++i) requests += GetBytes("/k");
  stalled.Send(requests);
  // A push is refused once the connection is gone; until then the server does not read it.
  EXPECT_TRUE(EventuallyTrue([&] {
    try {
      other.Settle();
      stalled.SendWhatFits(PingBytes(1));
      return false;
    } catch (const std::runtime_error&) {
      return true;
    }
  }));
  EXPECT_EQ(idle.SaidSoFar(), "");
}

TEST(SlowClientsTest, Item120_AClientThatReadsSlowlyIsNotClosed) {
  StoreServerOptions options = OneLoop();
  options.stall_max = milliseconds(2'000);
  const StoreServer server(options);
  RawClient other = RawClient::Validated(server.port());
  other.Send(SetBytes("/k", std::string(8 * kMebibyte, 'v')));
  other.Settle();
  RawClient slow = StingyClient(server.port());
  constexpr size_t kReplies = 40;
  std::string requests;
  for (size_t i = 0; i < kReplies; ++i) requests += GetBytes("/k");
  slow.Send(requests);
  // A steady trickle that takes longer than a client may read nothing at all.
  constexpr size_t kTotal = kReplies * (8 + 8 * kMebibyte);
  const Stopwatch watch;
  for (size_t got = 0; got < kTotal;) {
    got += slow.ReceiveSome().size();
    while (watch.Elapsed() < milliseconds(3'000 * got / kTotal)) other.Settle();
  }
  EXPECT_EQ(slow.SaidSoFar(), "");
}

TEST(SlowClientsTest, Item003_AHandshakeThatDoesNotComeIsNotWaitedForLong) {
  StoreServerOptions options = OneLoop();
  options.handshake_max = milliseconds(400);
  const StoreServer server(options);
  RawClient validated = RawClient::Validated(server.port());
  const Stopwatch watch;
  RawClient silent(server.port());
  RawClient half(server.port());
  half.Send(ValidateBytes().substr(0, 3));
  EXPECT_EQ(silent.ReceiveUntilClosed(), "");
  EXPECT_EQ(half.ReceiveUntilClosed(), "");
  EXPECT_GE(watch.Elapsed(), milliseconds(300));
  EXPECT_EQ(validated.SaidSoFar(), "");
}

TEST(SlowClientsTest, Item117_ARequestThatStopsHalfWayIsWaitedFor) {
  StoreServerOptions options = OneLoop();
  options.handshake_max = milliseconds(400);
  const StoreServer server(options);
  const std::string request = SetBytes("/k", "finished after all");
  RawClient slow = RawClient::Validated(server.port());
  slow.Send(request.substr(0, 15));
  // Two clients are closed for their silence, one after the other. The time for a handshake has
  // passed twice, and stall_max, which limits requests, has not.
  for (int i = 0; i < 2; ++i) EXPECT_EQ(RawClient(server.port()).ReceiveUntilClosed(), "");
  slow.Send(request.substr(15));
  EXPECT_EQ(slow.AskBlob(GetBytes("/k")), "finished after all");
}

TEST(SlowClientsTest, Item120_AnnouncedBytesAreNotReserved) {
  ServerProcess server(OneLoop());
  RawClient other = RawClient::Validated(server.port());
  other.Settle();
  const MemoryWatch memory(server);
  std::vector<RawClient> promising;
  for (int i = 0; i < 500; ++i) {
    promising.push_back(RawClient::Validated(server.port()));
    promising.back().Send(Hex("01") + Blob("/k") + U64(8 * kMebibyte) + "only the beginning");
  }
  for (int i = 0; i < 10; ++i) other.Settle();
  memory.ExpectGrowthBelow(16 * kMebibyte);  // 4 GiB were announced
  EXPECT_EQ(other.AskNumber(NumKeysBytes()), 0);
  EXPECT_EQ(server.Stop(), 0);
}

TEST(SlowClientsTest, Item053_WaitersThatLeaveGiveTheirMemoryBack) {
  ServerProcess server(OneLoop());
  RawClient other = RawClient::Validated(server.port());
  Keys keys;
  for (int i = 0; i < 1'000; ++i)
    keys.push_back("/key" + std::to_string(i) + std::string(200, '.'));
  const std::string wait = WaitBytes(keys);
  const auto round = [&](int count) {
    for (int i = 0; i < count; ++i) {
      RawClient waiter = RawClient::Validated(server.port());
      waiter.Send(wait);
      EXPECT_EQ(waiter.SaidSoFar(), "");
    }
    other.Settle();
  };
  round(20);
  const MemoryWatch memory(server);
  round(500);  // 150 MB, were they kept
  memory.ExpectGrowthBelow(32 * kMebibyte);
  EXPECT_EQ(server.Stop(), 0);
}

TEST(SlowClientsTest, Item007_AScannersGigabyteIsNotReadIntoMemory) {
  ServerProcess server(OneLoop());
  RawClient other = RawClient::Validated(server.port());
  other.Settle();
  const MemoryWatch memory(server);
  RawClient scanner(server.port());
  const std::string noise(kMebibyte, 'G');
  EXPECT_THROW(
      {
        for (int i = 0; i < 1'024; ++i) scanner.Send(noise);
      },
      std::runtime_error);  // closed long before the end
  memory.ExpectGrowthBelow(16 * kMebibyte);
  EXPECT_EQ(other.SaidSoFar(), "");
  EXPECT_EQ(server.Stop(), 0);
}

}  // namespace muster::test
