// Several members at one store, each with a connection of its own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "muster/store_server.h"
#include "muster/store_utilities.h"
#include "support/background.h"
#include "support/errors.h"

namespace muster::test {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

namespace {

class MembersTest : public ::testing::Test {
 protected:
  std::shared_ptr<TcpStore> Connect() const {
    return std::make_shared<TcpStore>(
        "127.0.0.1", TcpStoreOptions{.port = server_.port(), .timeout = kPatience});
  }

  const StoreServer server_{{.host = "127.0.0.1", .threads = 1}};
};

}  // namespace

TEST_F(MembersTest, Rdzv181_EveryMemberGetsTheValuesOfAll) {
  InParallel(4, [this](int rank) {
    const auto store = Connect();
    EXPECT_THAT(Synchronize(*store, "data" + std::to_string(rank), rank, 4, "role/", kPatience),
                ElementsAre("data0", "data1", "data2", "data3"));
    EXPECT_EQ(store->Timeout(), kPatience);
  });
}

TEST_F(MembersTest, ABarrierHoldsUntilTheLastMemberComes) {
  std::vector<std::unique_ptr<Background<bool>>> early;
  for (int rank = 0; rank < 3; ++rank) {
    early.push_back(std::make_unique<Background<bool>>([this, rank] {
      Barrier(*Connect(), 4, "p", {.timeout = kPatience, .rank = rank});
      return true;
    }));
  }
  const auto store = Connect();
  EXPECT_TRUE(EventuallyTrue([&] { return store->Add("p/num_members", 0) == 3; }));
  for (const auto& member : early) EXPECT_FALSE(member->IsDone());
  Barrier(*store, 4, "p", {.timeout = kPatience, .rank = 3});
  for (const auto& member : early) EXPECT_TRUE(member->Result());
}

TEST_F(MembersTest, Rdzv182_Rank0ReportsTheMissingAndTheOthersReferToIt) {
  const auto fail = [this](int rank, milliseconds timeout) {
    return ErrorOf<StoreError>([&] {
      const auto store = Connect();
      Barrier(*store, 4, "p",
              {.timeout = timeout,
               .rank = rank,
               .name_of_rank = [](int64_t of) { return "node" + std::to_string(of); },
               .trace_timeout = milliseconds(10)});
    });
  };
  // The others time out first and then wait as long again for rank 0, so the order of threads does
  // not matter; rank 3 never comes.
  Background<std::string> one([&] { return fail(1, milliseconds(2'000)); });
  Background<std::string> two([&] { return fail(2, milliseconds(2'000)); });
  Connect()->Wait({"p1/TRACE", "p2/TRACE"}, kPatience);
  EXPECT_THAT(fail(0, milliseconds(10)), HasSubstr("[node3] did not come"));
  EXPECT_THAT(one.Result(), HasSubstr("[ask rank 0 (node0)]"));
  EXPECT_THAT(two.Result(), HasSubstr("[ask rank 0 (node0)]"));
}

TEST_F(MembersTest, Rdzv183_AStoreIsReadyWhenAllMembersAreThere) {
  InParallel(3, [this](int) {
    const auto store = CreateTcpStore(
        {.host = "127.0.0.1", .port = server_.port(), .world_size = 3, .timeout = kPatience});
    EXPECT_EQ(store->Get("_tcp_store/num_members/num_members"), "3");
  });
}

}  // namespace muster::test
