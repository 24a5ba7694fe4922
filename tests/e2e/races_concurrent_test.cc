// Requests of two connections that race for one decision. Each client reads its bytes in the order
// in which the server decided, and nothing is lost. Two loop threads, so that the race is a real
// one.
#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "muster/store_server.h"
#include "support/background.h"
#include "support/process_limits.h"
#include "support/raw_client.h"

namespace muster::test {

namespace {

// A sanitizer makes iterations slow, so there are fewer.
constexpr int kIterations = kMemoryIsMeasurable ? 10'000 : 2'000;

}  // namespace

class RacesTest : public ::testing::Test {
 protected:
  RawClient Client() const { return RawClient::Validated(server_.port()); }

  /// Two threads that start each iteration together: `one(i)` and `other(i)`.
  static void Race(const std::function<void(int)>& one, const std::function<void(int)>& other) {
    std::barrier start(2);
    InParallel(2, [&](int side) {
      for (int i = 0; i < kIterations; ++i) {
        start.arrive_and_wait();
        side == 0 ? one(i) : other(i);
      }
    });
  }

  const StoreServer server_{{.host = "127.0.0.1", .threads = 2}};
};

TEST_F(RacesTest, Item050_ACancelThatRacesWithTheKeyIsAnsweredLast) {
  RawClient waiter = Client();  // on one loop
  RawClient writer = Client();  // on the other
  int crossed = 0;
  Race(
      [&](int i) {
        waiter.Send(WaitBytes({"/k" + std::to_string(i)}) + PingBytes(0x7fffff7f));
        std::string said = waiter.Receive(4);
        waiter.Send(CancelBytes() + PingBytes(0x7eeeee7e));
        // 00 if the key came before the cancel, then always 01, then the PINGs' answers; in no
        // other order.
        while (!said.ends_with(U32(0x7eeeee7e))) said += waiter.Receive(1);
        const std::string parked = U32(0x7fffff7f);
        const std::string end = kCancelled + U32(0x7eeeee7e);
        const bool in_order =
            said == parked + end || said == parked + kStop + end || said == kStop + parked + end;
        ASSERT_TRUE(in_order) << ToHex(said);
        crossed += said.size() > parked.size() + end.size();
      },
      [&](int i) {
        writer.Send(SetBytes("/k" + std::to_string(i), ""));
        writer.Settle();
      });
  RecordProperty("crossed", crossed);
}

TEST_F(RacesTest, Item052_NothingFollowsACancel) {
  RawClient waiter = Client();
  RawClient writer = Client();
  Race(
      [&](int i) {
        const std::string key = "/k" + std::to_string(i);
        waiter.Send(WaitBytes({key}) + CancelBytes() + WaitBytes({key}));
        // The first wait: cancelled before or after the key came. The second ends with the key.
        std::string said = waiter.Receive(2);
        if (said == kStop + kCancelled) said = said.substr(1) + waiter.Receive(1);
        ASSERT_EQ(ToHex(said), ToHex(kCancelled + kStop));
        ASSERT_EQ(ToHex(waiter.SaidSoFar()), "");
      },
      [&](int i) {
        writer.Send(SetBytes("/k" + std::to_string(i), ""));
        writer.Settle();
      });
}

TEST_F(RacesTest, Item053_AWaiterThatLeavesWhileItsKeyComes) {
  RawClient writer = Client();
  Race(
      [&](int i) {
        RawClient waiter = Client();
        waiter.Send(WaitBytes({"/k" + std::to_string(i)}));
        if (i % 2 == 0) {
          waiter.Close();
        } else {
          waiter.CloseAbruptly();
        }
      },
      [&](int i) {
        writer.Send(SetBytes("/k" + std::to_string(i), "") +
                    PushBytes("/k" + std::to_string(i), ""));
        writer.Settle();
      });
  EXPECT_EQ(writer.AskNumber(NumKeysBytes()), kIterations);
}

TEST_F(RacesTest, Item075_AnElementOutlivesAPopperThatCancels) {
  RawClient popper = Client();
  RawClient pusher = Client();
  int64_t popped = 0;
  Race(
      [&](int) {
        popper.Send(WaitBytes({"/q"}) + CancelBytes());
        if (popper.Receive(1) == kStop) {
          ASSERT_EQ(popper.Receive(1), kCancelled);
        }
        if (popper.AskNumber(PopBytes("/q")) > 0) {
          popper.ReceiveBlob();
          ++popped;
        }
      },
      [&](int) {
        pusher.Send(PushBytes("/q", "x"));
        pusher.Settle();
      });
  while (pusher.AskNumber(PopBytes("/q")) > 0) {
    pusher.ReceiveBlob();
    ++popped;
  }
  EXPECT_EQ(popped, kIterations);
}

TEST_F(RacesTest, Item073_TwoBlockingPoppersShareWhatIsPushedAndNeverMissATurn) {
  RawClient pusher = Client();
  std::atomic<int> popped = 0;
  const auto pop = [&](RawClient& client) {
    // A blocking pop as clients do it: WAIT, then QUEUE_POP. The element is reserved for the
    // released client.
    ASSERT_EQ(client.Ask(WaitBytes({"/q"}), 1), kStop);
    ASSERT_GT(client.AskNumber(PopBytes("/q")), 0);
    client.ReceiveBlob();
    ++popped;
  };
  std::vector<RawClient> poppers;
  for (int i = 0; i < 3; ++i) poppers.push_back(Client());
  InParallel(4, [&](int side) {
    if (side == 3) {
      for (int i = 0; i < 3 * (kIterations / 10); ++i) {
        pusher.Send(PushBytes("/q", std::to_string(i)));
        if (i % 7 == 0) pusher.Settle();
      }
    } else {
      for (int i = 0; i < kIterations / 10; ++i) pop(poppers[static_cast<size_t>(side)]);
    }
  });
  EXPECT_EQ(popped, 3 * (kIterations / 10));
  EXPECT_EQ(pusher.AskNumber(QueueLenBytes("/q")), 0);
}

TEST_F(RacesTest, Item084_TwoThatArriveAtTheSameMomentBothPass) {
  RawClient one = Client();
  RawClient other = Client();
  const auto arrive = [](RawClient& client) {
    return [&client](int i) {
      ASSERT_EQ(client.Ask(BarrierBytes("/b" + std::to_string(i), 2), 1), kStop);
    };
  };
  Race(arrive(one), arrive(other));
}

TEST_F(RacesTest, Item016_ConcurrentAddsReturnEverySumOnce) {
  RawClient one = Client();
  RawClient other = Client();
  std::vector<int64_t> sums[2];
  const auto add = [](RawClient& client, std::vector<int64_t>& into) {
    return [&](int) { into.push_back(client.AskNumber(AddBytes("/n", 1))); };
  };
  Race(add(one, sums[0]), add(other, sums[1]));
  std::set<int64_t> all(sums[0].begin(), sums[0].end());
  all.insert(sums[1].begin(), sums[1].end());
  EXPECT_EQ(all.size(), size_t{2 * kIterations});
  EXPECT_EQ(*all.rbegin(), 2 * kIterations);
}

TEST_F(RacesTest, Item060_AMultiSetIsNeverSeenInParts) {
  RawClient writer = Client();
  RawClient reader = Client();
  Race(
      [&](int i) {
        const std::string value = std::to_string(i);
        writer.Send(MultiSetBytes({{"/a", value}, {"/b", value}, {"/c", value}}));
        writer.Settle();
      },
      [&](int) {
        reader.Send(MultiGetBytes({"/c", "/a", "/b"}));
        const std::string c = reader.ReceiveBlob();
        ASSERT_EQ(reader.ReceiveBlob(), c);
        ASSERT_EQ(reader.ReceiveBlob(), c);
      });
}

}  // namespace muster::test
