// Barriers and exchanges, request by request; stores that start, or report why not.
#include "muster/store_utilities.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <stdexcept>
#include <string>

#include "muster/store_server.h"
#include "rendezvous/recording_store.h"
#include "store/scoped_store_timeout.h"
#include "support/errors.h"
#include "support/eventually.h"
#include "support/raw_socket.h"

namespace muster::test {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

namespace {

constexpr milliseconds kShort{30};
// One limit is for connecting, which must succeed, and for waiting, which must not.
constexpr milliseconds kLongEnoughToConnect{1'000};

BarrierOptions Traced(int64_t rank) {
  return {.timeout = kShort, .rank = rank, .trace_timeout = kShort};
}

BarrierOptions Named(int64_t rank) {
  BarrierOptions options = Traced(rank);
  options.name_of_rank = [](int64_t of) { return "host" + std::to_string(of); };
  return options;
}

class ScopedVariable {
 public:
  ScopedVariable(const char* name, const char* value) : name_(name) { setenv(name, value, 1); }
  ~ScopedVariable() { unsetenv(name_); }

 private:
  const char* const name_;
};

}  // namespace

// --- Timeouts ---------------------------------------------------------------------------------

TEST(StoreTimeoutTest, IsRestoredWhenTheScopeEnds) {
  const auto store = HashStore::Create();
  store->SetTimeout(milliseconds(777));
  {
    const ScopedStoreTimeout scope(*store, milliseconds(5));
    EXPECT_EQ(store->Timeout(), milliseconds(5));
  }
  EXPECT_EQ(store->Timeout(), milliseconds(777));
}

TEST(StoreTimeoutTest, IsRestoredWhenTheBodyThrows) {
  const auto store = HashStore::Create();
  store->SetTimeout(milliseconds(777));
  EXPECT_THROW(
      {
        const ScopedStoreTimeout scope(*store, milliseconds(5));
        store->Get("absent");
      },
      StoreTimeoutError);
  EXPECT_EQ(store->Timeout(), milliseconds(777));
  EXPECT_THROW(Barrier(*store, 2, "b", {.timeout = kShort}), StoreTimeoutError);
  EXPECT_THROW(Synchronize(*store, "x", 0, 2, "s", kShort), StoreTimeoutError);
  EXPECT_EQ(store->Timeout(), milliseconds(777));
}

// --- Barriers ---------------------------------------------------------------------------------

TEST(BarrierTest, Rdzv179_TheLastMemberOpensTheGate) {
  RecordingStore store;
  store.SetTimeout(milliseconds(777));
  store.Add("p/num_members", 1);
  store.Taken();
  Barrier(store, 2, "p", {.timeout = milliseconds(1'000)});
  EXPECT_THAT(store.Taken(),
              ElementsAre("timeout", "set_timeout 1000", "add p/num_members 1", "set p/last_member",
                          "wait p/last_member", "set_timeout 777"));
}

TEST(BarrierTest, Rdzv179_TheOthersOnlyWaitForIt) {
  RecordingStore store;
  store.SetTimeout(milliseconds(777));
  store.Set("p/last_member", "whatever");
  store.Taken();
  Barrier(store, 3, "p", {.timeout = milliseconds(1'000), .rank = 1});
  EXPECT_THAT(store.Taken(), ElementsAre("timeout", "set_timeout 1000", "add p/num_members 1",
                                         "wait p/last_member", "set_timeout 777"));
}

TEST(BarrierTest, AFailedBarrierWithoutRanksReportsHowManyCame) {
  const auto store = HashStore::Create();
  const std::string text =
      ErrorOf<StoreTimeoutError>([&] { Barrier(*store, 3, "p", {.timeout = kShort}); });
  EXPECT_THAT(text, AllOf(HasSubstr("'p'"), HasSubstr("of 3 members"), HasSubstr("30 ms"),
                          HasSubstr("1 came, 2 did not")));
}

TEST(BarrierTest, Rdzv182_Rank0NamesThoseThatLeftNoTrace) {
  const auto store = HashStore::Create();
  store->Set("p2/TRACE", "x");
  const std::string text = ErrorOf<StoreError>([&] { Barrier(*store, 4, "p", Traced(0)); });
  EXPECT_THAT(text, AllOf(HasSubstr("rank 0:"), HasSubstr("'p'"), HasSubstr("of 4 members"),
                          HasSubstr("[1, 3] did not come"), HasSubstr("30 ms")));
  EXPECT_TRUE(store->Check({"p0/TRACE", "p/TRACING_GATE"}));
}

TEST(BarrierTest, Rdzv182_NamesAreThoseOfTheCaller) {
  const auto store = HashStore::Create();
  EXPECT_THAT(ErrorOf<StoreError>([&] { Barrier(*store, 3, "p", Named(0)); }),
              HasSubstr("[host1, host2] did not come"));
  EXPECT_THAT(ErrorOf<StoreError>([&] { Barrier(*store, 5, "p", Named(1)); }),
              HasSubstr("[ask rank 0 (host0)]"));
}

TEST(BarrierTest, Rdzv182_TheOthersReferToRank0) {
  const auto store = HashStore::Create();
  store->Set("p/TRACING_GATE", "x");
  const std::string text = ErrorOf<StoreError>([&] { Barrier(*store, 4, "p", Traced(2)); });
  EXPECT_THAT(text, AllOf(HasSubstr("rank 2:"), HasSubstr("[ask rank 0]")));
  EXPECT_TRUE(store->Check({"p2/TRACE"}));
}

TEST(BarrierTest, Rdzv182_WithoutRank0TheErrorStaysWhatItWas) {
  const auto store = HashStore::Create();
  const std::string text = ErrorOf<StoreTimeoutError>([&] { Barrier(*store, 4, "p", Traced(2)); });
  EXPECT_THAT(text, AllOf(HasSubstr("rank 0 did not come"), HasSubstr("p/last_member")));
}

TEST(BarrierTest, Rdzv182_SixteenNamesAreEnough) {
  const auto store = HashStore::Create();
  const std::string text = ErrorOf<StoreError>([&] { Barrier(*store, 1'000, "p", Traced(0)); });
  EXPECT_THAT(text, AllOf(HasSubstr(", 16, ...] did not come"), Not(HasSubstr("17"))));
}

TEST(BarrierTest, Rdzv182_ThoseThatCameTooLateAreNotMissing) {
  const auto store = HashStore::Create();
  store->Set("p1/TRACE", "x");
  EXPECT_THAT(ErrorOf<StoreTimeoutError>([&] { Barrier(*store, 2, "p", Traced(0)); }),
              HasSubstr("some came too late"));
}

TEST(BarrierTest, CallsThatCannotWorkAreRefused) {
  const auto store = HashStore::Create();
  EXPECT_THROW(Barrier(*store, 0, "p"), std::invalid_argument);
  EXPECT_THROW(Barrier(*store, 2, "p", Traced(2)), std::invalid_argument);
  EXPECT_THROW(Barrier(*store, 2, "p", Traced(-1)), std::invalid_argument);
  BarrierOptions names_only = Named(0);
  names_only.rank.reset();
  EXPECT_THROW(Barrier(*store, 2, "p", names_only), std::invalid_argument);
  EXPECT_EQ(store->GetNumKeys(), 0);
}

// --- Exchanges --------------------------------------------------------------------------------

TEST(GetAllTest, Rdzv180_Rank0WaitsForAll) {
  RecordingStore store;
  for (const char* key : {"p0", "p1", "p2"}) store.Set(key, key);
  store.Add("p/finished/num_members", 2);
  store.Taken();
  EXPECT_THAT(GetAll(store, 0, "p", 3), ElementsAre("p0", "p1", "p2"));
  // The timeout is read for the wait, which has none of its own.
  EXPECT_THAT(store.Taken(),
              ElementsAre("multi_get p0 p1 p2", "add p/finished/num_members 1",
                          "set p/finished/last_member", "timeout", "wait p/finished/last_member"));
}

TEST(GetAllTest, Rdzv180_TheOthersDoNotWait) {
  RecordingStore store;
  for (const char* key : {"p0", "p1", "p2"}) store.Set(key, key);
  store.Taken();
  EXPECT_THAT(GetAll(store, 2, "p", 3), ElementsAre("p0", "p1", "p2"));
  EXPECT_THAT(store.Taken(), ElementsAre("multi_get p0 p1 p2", "add p/finished/num_members 1"));
}

TEST(GetAllTest, MissingValuesAreNamed) {
  const auto store = HashStore::Create();
  store->SetTimeout(kShort);
  for (const char* key : {"p0", "p2", "p3", "p5"}) store->Set(key, "v");
  EXPECT_THAT(ErrorOf<StoreTimeoutError>([&] { GetAll(*store, 3, "p", 6); }),
              AllOf(HasSubstr("rank 3:"), HasSubstr("ranks [1, 4] gave no value")));
}

TEST(GetAllTest, Rank0ReportsHowManyHaveRead) {
  const auto store = HashStore::Create();
  store->SetTimeout(kShort);
  for (const char* key : {"p0", "p1", "p2"}) store->Set(key, "v");
  GetAll(*store, 1, "p", 3);
  EXPECT_THAT(ErrorOf<StoreTimeoutError>([&] { GetAll(*store, 0, "p", 3); }),
              HasSubstr("only 2 have read it"));
}

TEST(GetAllTest, CallsThatCannotWorkAreRefused) {
  const auto store = HashStore::Create();
  EXPECT_THROW(GetAll(*store, 0, "p", 0), std::invalid_argument);
  EXPECT_THROW(Synchronize(*store, "x", 2, 2, "p"), std::invalid_argument);
  EXPECT_EQ(store->GetNumKeys(), 0);
}

TEST(SynchronizeTest, SetsItsValueAndDeletesNothing) {
  RecordingStore store;
  store.SetTimeout(milliseconds(777));
  store.Taken();
  EXPECT_THAT(Synchronize(store, "mine", 0, 1, "p", milliseconds(9)), ElementsAre("mine"));
  EXPECT_THAT(store.Taken(),
              ElementsAre("timeout", "set_timeout 9", "set p0", "multi_get p0",
                          "add p/finished/num_members 1", "set p/finished/last_member", "timeout",
                          "wait p/finished/last_member", "set_timeout 777"));
}

// --- Stores that start ------------------------------------------------------------------------

TEST(CreateTcpStoreTest, Rdzv183_AWorldOfSeveralNeedsAPort) {
  EXPECT_THAT(
      ErrorOf<std::invalid_argument>([] { CreateTcpStore({.is_server = true, .world_size = 2}); }),
      AllOf(HasSubstr("no port"), HasSubstr("world of 2")));
}

TEST(CreateTcpStoreTest, Rdzv183_WhatCanNeverWorkIsRefused) {
  EXPECT_THROW(CreateTcpStore({.world_size = 1}), std::invalid_argument);
  EXPECT_THROW(CreateTcpStore({.is_server = true, .world_size = 0}), std::invalid_argument);
}

TEST(CreateTcpStoreTest, Rdzv183_ASingleServerFindsItsPort) {
  const auto store = CreateTcpStore({.is_server = true, .host = "127.0.0.1", .timeout = kPatience});
  EXPECT_TRUE(store->is_server());
  EXPECT_NE(store->port(), 0);
  EXPECT_EQ(store->Timeout(), kPatience);
  EXPECT_EQ(store->Get("_tcp_store/num_members/num_members"), "1");
  EXPECT_TRUE(store->Check({"_tcp_store/num_members/last_member"}));
}

TEST(CreateTcpStoreTest, Rdzv183_WithoutWaitingThereIsNoBarrier) {
  const auto store = CreateTcpStore({.is_server = true,
                                     .host = "127.0.0.1",
                                     .port = 0,
                                     .world_size = 7,
                                     .wait_for_workers = false});
  EXPECT_THAT(store->ListKeys(), ::testing::IsEmpty());
}

TEST(CreateTcpStoreTest, Rdzv183_AServerReportsItsMissingMembers) {
  const std::string text = ErrorOf<StoreTimeoutError>([] {
    CreateTcpStore({.is_server = true,
                    .host = "127.0.0.1",
                    .port = 0,
                    .world_size = 3,
                    .timeout = kLongEnoughToConnect});
  });
  EXPECT_THAT(text, AllOf(HasSubstr("127.0.0.1"), HasSubstr("1/3")));
}

TEST(CreateTcpStoreTest, Rdzv183_AClientWithMissingPeersReportsHowManyCame) {
  const StoreServer server({.host = "127.0.0.1", .threads = 1});
  const std::string text = ErrorOf<StoreTimeoutError>([&] {
    CreateTcpStore({.host = "127.0.0.1",
                    .port = server.port(),
                    .world_size = 3,
                    .timeout = kLongEnoughToConnect});
  });
  EXPECT_THAT(text, AllOf(HasSubstr("127.0.0.1"), HasSubstr(std::to_string(server.port())),
                          HasSubstr("1 came, 2 did not")));
}

TEST(CreateTcpStoreTest, Rdzv183_AnUnreachableServerIsANetworkError) {
  const BoundSocket bound = BindLoopback();
  const std::string text = ErrorOf<NetworkError>([&] {
    CreateTcpStore({.host = "127.0.0.1", .port = bound.port, .timeout = milliseconds(100)});
  });
  close(bound.fd);
  EXPECT_THAT(text, AllOf(HasSubstr("127.0.0.1"), HasSubstr(std::to_string(bound.port))));
}

TEST(CreateTcpStoreTest, Rdzv183_APortThatIsTakenIsANetworkErrorAtOnce) {
  const StoreServer server({.host = "127.0.0.1", .threads = 1});
  const Stopwatch watch;
  const std::string text = ErrorOf<NetworkError>([&] {
    CreateTcpStore(
        {.is_server = true, .host = "127.0.0.1", .port = server.port(), .timeout = kPatience});
  });
  EXPECT_LT(watch.Elapsed(), kPatience);
  EXPECT_THAT(text, HasSubstr(std::to_string(server.port())));
}

TEST(CreateTcpStoreTest, Rdzv183_TheChoiceOfPyTorchsServersChangesNothing) {
  for (const char* value : {"0", "1"}) {
    const ScopedVariable use_libuv("USE_LIBUV", value);
    const auto store =
        CreateTcpStore({.is_server = true, .host = "127.0.0.1", .timeout = kPatience});
    store->QueuePush("queue", "served by the one server that there is");
    EXPECT_EQ(store->QueueLen("queue"), 1) << value;
  }
}

}  // namespace muster::test
