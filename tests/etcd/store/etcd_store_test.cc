// EtcdStore, beyond the contract of all stores.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "etcd/calls.h"
#include "etcd/grpc/grpc_etcd.h"
#include "etcd/on_connection.h"
#include "etcd/store/shared_etcd.h"
#include "etcd/test_client.h"
#include "muster/etcd_store.h"
#include "os/ports/system.h"
#include "support/background.h"
#include "support/errors.h"

namespace muster::test {

using ::testing::AllOf;
using ::testing::HasSubstr;

namespace {

/// The real client; counts transactions.
class CountingEtcd final : public Etcd {
 public:
  CountingEtcd(std::shared_ptr<Etcd> inner, std::atomic<int>& commits)
      : inner_(std::move(inner)), commits_(commits) {}

  void Commit(EtcdTransaction transaction, Duration patience,
              std::function<void(Result<EtcdAnswer>)> done) override {
    ++commits_;
    inner_->Commit(std::move(transaction), patience, std::move(done));
  }
  void Grant(Duration ttl, Duration patience,
             std::function<void(Result<EtcdLease>)> done) override {
    inner_->Grant(ttl, patience, std::move(done));
  }
  void KeepAlive(int64_t lease, Duration patience,
                 std::function<void(Result<Duration>)> done) override {
    inner_->KeepAlive(lease, patience, std::move(done));
  }
  void Revoke(int64_t lease, Duration patience, std::function<void(Status)> done) override {
    inner_->Revoke(lease, patience, std::move(done));
  }
  std::unique_ptr<EtcdWatch> Watch(const EtcdRange& range, int64_t revision,
                                   EtcdWatcher& watcher) override {
    return inner_->Watch(range, revision, watcher);
  }
  std::string Describe() const override { return inner_->Describe(); }

 private:
  const std::shared_ptr<Etcd> inner_;
  std::atomic<int>& commits_;
};

EtcdOptions At(const EtcdCluster& etcd, std::string prefix = FreshPrefix()) {
  EtcdOptions options = EtcdOptions::Parse(etcd.endpoint(0).ToString());
  options.prefix = std::move(prefix);
  options.timeout = kPatience;
  return options;
}

}  // namespace

TEST(EtcdStoreTest, ItsKeysAreReadableUnderThePrefix) {
  MUSTER_REQUIRE(EtcdNeed());
  const std::shared_ptr<Store> store = OpenEtcdStore(At(SharedEtcd()));
  store->Set("torch.rendezvous/run 7", "value");
  store->Add("n", 3);
  store->QueuePush("jobs", "a");
  EXPECT_EQ(SharedEtcd().Control({"get", "--prefix", *EtcdStorePrefix(*store) + "/"}),
            *EtcdStorePrefix(*store) + "/keys/n\n3\n" + *EtcdStorePrefix(*store) +
                "/keys/torch.rendezvous/run%207\nvalue\n" + *EtcdStorePrefix(*store) +
                "/queues/jobs#00000000000000000000\na\n" + *EtcdStorePrefix(*store) +
                "/tails/jobs\n1\n");
}

TEST(EtcdStoreTest, WithoutAPrefixOfItsOwnItHasMustersDefault) {
  MUSTER_REQUIRE(EtcdNeed());
  EXPECT_EQ(EtcdStorePrefix(*OpenEtcdStore(At(SharedEtcd(), ""))), "/muster/store");
}

TEST(EtcdStoreTest, StoresWithOtherPrefixesDoNotMeet) {
  MUSTER_REQUIRE(EtcdNeed());
  const std::string prefix = FreshPrefix();
  const std::shared_ptr<Store> store = OpenEtcdStore(At(SharedEtcd(), prefix));
  const std::shared_ptr<Store> longer = OpenEtcdStore(At(SharedEtcd(), prefix + "0"));
  const std::shared_ptr<Store> inner = OpenEtcdStore(At(SharedEtcd(), prefix + "/keys"));
  store->Set("k", "v");
  inner->Set("k", "inner");
  EXPECT_FALSE(longer->Check({"k"}));
  EXPECT_EQ(store->Get("k"), "v");
  EXPECT_EQ(inner->Get("k"), "inner");
}

TEST(EtcdStoreTest, NoListenerIsReportedWithTheEndpoint) {
  EtcdOptions options;
  options.endpoints = {{"127.0.0.1", QuietPort()}};
  options.timeout = milliseconds(300);
  EXPECT_THAT(ErrorOf<NetworkError>([&] { OpenEtcdStore(options); }),
              HasSubstr("127.0.0.1:" + std::to_string(options.endpoints[0].port)));
}

TEST(EtcdStoreTest, AValueThatEtcdDoesNotTakeIsRefusedByName) {
  MUSTER_REQUIRE(EtcdNeed());
  const std::shared_ptr<Store> store = OpenEtcdStore(At(SharedEtcd()));
  const std::string large(2 << 20, 'x');
  EXPECT_THAT(ErrorOf<std::invalid_argument>([&] { store->Set("large", large); }),
              AllOf(HasSubstr("'large'"), HasSubstr("2 MiB"), HasSubstr("1.5 MiB")));
  EXPECT_THROW(store->QueuePush("large", large), std::invalid_argument);
  EXPECT_THROW(store->MultiSet({"a", "large"}, {"1", large}), std::invalid_argument);
  store->Append("grows", std::string(1 << 20, 'x'));
  EXPECT_THROW(store->Append("grows", std::string(1 << 20, 'x')), std::invalid_argument);
  EXPECT_EQ(store->Get("grows").size(), size_t{1 << 20}) << "as it was";
  store->Set("still", "usable");
  EXPECT_EQ(store->Get("still"), "usable");
}

TEST(EtcdStoreTest, ManyThreadsUseOneObjectAndDoNotDelayEachOther) {
  MUSTER_REQUIRE(EtcdNeed());
  const std::shared_ptr<Store> store = OpenEtcdStore(At(SharedEtcd()));
  Background<std::string> blocked([&] { return store->Get("late"); });
  ASSERT_TRUE(blocked.UntilBlocked());
  InParallel(4, [&](int) {
    for (int i = 0; i < 10; ++i) store->Add("n", 1);
  });
  EXPECT_EQ(store->Get("n"), "40");
  EXPECT_FALSE(blocked.IsDone());
  store->Set("late", "now");
  EXPECT_EQ(blocked.Result(), "now");
}

TEST(EtcdStoreTest, AWaitSendsOneRequest) {
  MUSTER_REQUIRE(EtcdNeed());
  std::atomic<int> commits = 0;
  const EtcdConnector connector =
      [&commits, access = SharedEtcd().access()](Loop& loop) -> Result<std::shared_ptr<Etcd>> {
    MUSTER_TRY(std::shared_ptr<Etcd> inner, ConnectorTo(access)(loop));
    return std::shared_ptr<Etcd>(std::make_shared<CountingEtcd>(std::move(inner), commits));
  };
  const std::shared_ptr<Store> store =
      OpenEtcdStore(EtcdCalls::Open(connector, ThisProcess()).value(), FreshPrefix(), kPatience);
  const int before = commits;
  EXPECT_THROW(store->Wait({"a", "b"}, milliseconds(500)), StoreTimeoutError);
  EXPECT_EQ(commits, before + 1);
  Background<std::string> reader([&] { return store->Get("late"); });
  ASSERT_TRUE(EventuallyTrue([&] { return commits == before + 2; }));
  OpenEtcdStore(At(SharedEtcd(), *EtcdStorePrefix(*store)))->Set("late", "now");
  EXPECT_EQ(reader.Result(), "now");
  EXPECT_EQ(commits, before + 2) << "the change brought the value";
}

TEST(EtcdStoreTest, AQueueWhoseTailIsGoneKeepsItsOrder) {
  MUSTER_REQUIRE(EtcdNeed());
  const std::shared_ptr<Store> store = OpenEtcdStore(At(SharedEtcd()));
  for (const char* element : {"1", "2", "3"}) store->QueuePush("q", element);
  EXPECT_EQ(store->QueuePop("q"), "1");
  SharedEtcd().Control({"del", *EtcdStorePrefix(*store) + "/tails/q"});
  store->QueuePush("q", "4");
  store->QueuePush("q", "5");
  for (const char* element : {"2", "3", "4", "5"}) EXPECT_EQ(store->QueuePop("q"), element);
  SharedEtcd().Control({"put", *EtcdStorePrefix(*store) + "/tails/q", "many"});
  EXPECT_THAT(ErrorOf<StoreError>([&] { store->QueuePush("q", "6"); }),
              AllOf(HasSubstr("'q'"), HasSubstr("/tails/q"), HasSubstr("delete it")));
}

TEST(EtcdStoreTest, KeysOfALeaseGoWithIt) {
  MUSTER_REQUIRE(EtcdNeed());
  const EtcdOptions access = SharedEtcd().access();
  const auto calls = EtcdCalls::Open(ConnectorTo(access), ThisProcess()).value();
  TestClient client(access);
  const int64_t lease = client.Grant(600s)->id;
  const std::shared_ptr<Store> store = OpenEtcdStore(calls, FreshPrefix(), kPatience, lease);
  store->Set("a", "1");
  store->Add("b", 1);
  store->Append("c", "x");
  store->MultiSet({"d"}, {"1"});
  store->CompareSet("e", "", "y");
  store->QueuePush("f", "z");
  const auto clone = store->Clone();
  clone->Set("g", "1");
  EXPECT_EQ(store->GetNumKeys(), 6);
  ASSERT_TRUE(client.Revoke(lease));
  EXPECT_EQ(store->GetNumKeys(), 0);
  EXPECT_EQ(store->QueueLen("f"), 0);
  EXPECT_THROW(store->Set("late", "1"), StoreError) << "the lease has ended";
}

TEST(EtcdStoreTest, AWaitSurvivesARestartOfEtcd) {
  MUSTER_REQUIRE(EtcdNeed());
  EtcdCluster etcd;
  const std::shared_ptr<Store> store = OpenEtcdStore(At(etcd));
  store->Set("before", "1");
  Background<std::string> reader([&] { return store->Get("after"); });
  ASSERT_TRUE(reader.UntilBlocked());
  etcd.Kill(0);
  etcd.Start(0);
  ASSERT_TRUE(EventuallyTrue([&] { return etcd.IsHealthy(); }));
  EXPECT_FALSE(reader.IsDone());
  const std::shared_ptr<Store> other = OpenEtcdStore(At(etcd, *EtcdStorePrefix(*store)));
  other->Set("after", "2");
  EXPECT_EQ(reader.Result(), "2");
  EXPECT_EQ(store->Get("before"), "1");
}

TEST(EtcdStoreTest, AnEtcdThatIsBackInTimeCostsTheCallersNothing) {
  MUSTER_REQUIRE(EtcdNeed());
  EtcdCluster etcd;
  const std::shared_ptr<Store> store = OpenEtcdStore(At(etcd));
  store->Set("k", "v");
  etcd.Kill(0);
  Background<std::string> reader([&] { return store->Get("k"); });
  ASSERT_TRUE(reader.UntilBlocked());
  etcd.Start(0);
  EXPECT_EQ(reader.Result(), "v");
}

TEST(EtcdStoreTest, AnEtcdThatIsAwayIsANetworkErrorAndTheStoreWorksAgainLater) {
  MUSTER_REQUIRE(EtcdNeed());
  EtcdCluster etcd;
  const std::shared_ptr<Store> store = OpenEtcdStore(At(etcd));
  store->Set("k", "v");
  etcd.Kill(0);
  store->SetTimeout(milliseconds(200));
  EXPECT_THAT(ErrorOf<NetworkError>([&] { store->Get("k"); }),
              AllOf(HasSubstr("'k'"), HasSubstr(etcd.endpoint(0).ToString())));
  store->SetTimeout(kPatience);
  etcd.Start(0);
  EXPECT_EQ(store->Get("k"), "v");
}

TEST(EtcdStoreTest, CompactionDoesNotDisturbAWait) {
  MUSTER_REQUIRE(EtcdNeed());
  EtcdCluster etcd;
  const std::shared_ptr<Store> store = OpenEtcdStore(At(etcd));
  Background<void> waiter([&] { store->Wait({"a", "b"}); });
  ASSERT_TRUE(waiter.UntilBlocked());
  const std::shared_ptr<Store> other = OpenEtcdStore(At(etcd, *EtcdStorePrefix(*store)));
  for (int i = 0; i < 20; ++i) other->Set("else", std::to_string(i));
  other->Set("a", "1");
  const std::string fields = etcd.Control({"get", "x", "--write-out=fields"});
  const std::string revision = fields.substr(fields.find("\"Revision\" : ") + 13, 10);
  etcd.Control({"compact", std::to_string(std::stoll(revision))});
  etcd.Kill(0);  // changes that were not received before are gone
  etcd.Start(0);
  OpenEtcdStore(At(etcd, *EtcdStorePrefix(*store)))->Set("b", "1");
  waiter.Result();
}

}  // namespace muster::test
