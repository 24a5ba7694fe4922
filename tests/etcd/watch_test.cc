// Watches of a real etcd: every change once, despite failures.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "etcd/test_client.h"

namespace muster::test {
namespace {

using EtcdWatchTest = EtcdTest;

TEST_F(EtcdWatchTest, ChangesAreReceivedOnceAndInOrder) {
  const EtcdCluster cluster;
  TestClient test_client(cluster.access());
  const int64_t revision = test_client.Put("w/0", "before")->revision;
  TestWatcher watcher(test_client, EtcdPrefix("w/"), revision + 1);
  std::vector<std::string> expected;
  for (int i = 0; i < 50; ++i) {
    const std::string value = std::to_string(i);
    ASSERT_TRUE(test_client.Put("w/" + value, value));
    expected.push_back("w/" + value + "=" + value);
  }
  ASSERT_TRUE(test_client.Commit(
      {.then = {{.kind = EtcdOperation::Kind::kDelete, .range = {.begin = "w/7"}}}}));
  expected.push_back("-w/7");
  EXPECT_TRUE(watcher.HasReceived(expected)) << ::testing::PrintToString(watcher.changes());
  EXPECT_TRUE(watcher.troubles().empty());
}

TEST_F(EtcdWatchTest, PastChangesAreReceivedToo) {
  const EtcdCluster cluster;
  TestClient test_client(cluster.access());
  const int64_t first = test_client.Put("k", "1")->revision;
  ASSERT_TRUE(test_client.Put("k", "2"));
  const TestWatcher watcher(test_client, {.begin = "k"}, first);
  EXPECT_TRUE(watcher.HasReceived({"k=1", "k=2"}));
}

TEST_F(EtcdWatchTest, ManyWatchesOfOneClientAreServed) {
  const EtcdCluster cluster;
  TestClient test_client(cluster.access());
  const int64_t next = test_client.Put("x", "")->revision + 1;
  std::vector<std::unique_ptr<TestWatcher>> watchers;
  for (int i = 0; i < 100; ++i) {
    watchers.push_back(std::make_unique<TestWatcher>(
        test_client, EtcdRange{.begin = "k" + std::to_string(i)}, next));
  }
  // Half of them are removed, some before the server has answered.
  for (size_t i = 0; i < watchers.size(); i += 2) watchers[i].reset();
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(test_client.Put("k" + std::to_string(i), "v"));
  for (size_t i = 1; i < watchers.size(); i += 2)
    EXPECT_TRUE(watchers[i]->HasReceived({"k" + std::to_string(i) + "=v"})) << i;
}

TEST_F(EtcdWatchTest, AWatchContinuesAfterARestartOfTheServer) {
  EtcdCluster cluster;
  TestClient test_client(cluster.access());
  const int64_t next = test_client.Put("k", "0")->revision + 1;
  const TestWatcher watcher(test_client, {.begin = "k"}, next);
  ASSERT_TRUE(test_client.Put("k", "1"));
  ASSERT_TRUE(watcher.HasReceived({"k=1"}));
  cluster.Kill(0);
  ASSERT_TRUE(EventuallyTrue([&] { return !watcher.troubles().empty(); }));
  EXPECT_NE(watcher.troubles().front().find(cluster.endpoint(0).ToString()), std::string::npos);
  cluster.Start(0);
  cluster.Control({"get", "k", "--command-timeout=30s"});  // answers when the server does
  cluster.Control({"put", "k", "2"});
  EXPECT_TRUE(watcher.HasReceived({"k=1", "k=2"})) << ::testing::PrintToString(watcher.changes());
  EXPECT_FALSE(watcher.end());
}

TEST_F(EtcdWatchTest, CompactionEndsAWatchOfThePast) {
  const EtcdCluster cluster;
  TestClient test_client(cluster.access());
  const int64_t first = test_client.Put("k", "1")->revision;
  const int64_t last = test_client.Put("k", "2")->revision;
  cluster.Control({"compact", std::to_string(last)});
  const TestWatcher watcher(test_client, {.begin = "k"}, first);
  ASSERT_TRUE(EventuallyTrue([&] { return watcher.end().has_value(); }));
  EXPECT_EQ(watcher.end()->code, Code::kNotFound);
  EXPECT_NE(watcher.end()->message.find("compacted at " + std::to_string(last)), std::string::npos)
      << watcher.end()->message;
  EXPECT_TRUE(watcher.changes().empty());
}

/// Ends its watch, or its whole client, at the first change.
class Quitter final : public EtcdWatcher {
 public:
  explicit Quitter(std::function<void()> quit) : quit_(std::move(quit)) {}
  void OnChanges(const std::vector<EtcdChange>&) override {
    heard += 1;
    quit_();
  }
  void OnTrouble(const std::string&) override {}
  void OnEnd(const Error&) override {}
  std::atomic<int> heard{0};

 private:
  const std::function<void()> quit_;
};

TEST_F(EtcdWatchTest, AWatcherMayEndItsWatchFromInside) {
  const EtcdCluster cluster;
  TestClient test_client(cluster.access());
  const int64_t next = test_client.Put("k", "0")->revision + 1;
  std::unique_ptr<EtcdWatch> watch;
  Quitter quitter([&] { watch.reset(); });
  test_client.thread().RunAndWait(
      [&] { watch = test_client.etcd().Watch({.begin = "k"}, next, quitter); });
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(test_client.Put("k", "v"));
  EXPECT_TRUE(EventuallyTrue([&] { return quitter.heard > 0; }));
  EXPECT_EQ(quitter.heard, 1);
}

TEST_F(EtcdWatchTest, AWatcherMayDestroyTheClientFromInside) {
  const EtcdCluster cluster;
  auto thread = *UvThread::Open();
  std::shared_ptr<Etcd> etcd;
  std::unique_ptr<EtcdWatch> watch;
  Quitter quitter([&] { etcd.reset(); });
  thread->RunAndWait([&] {
    etcd = *ConnectorTo(cluster.access())(thread->loop());
    watch = etcd->Watch({.begin = "k"}, 0, quitter);
  });
  ASSERT_TRUE(EventuallyTrue([&] {
    cluster.Control({"put", "k", "v"});
    return quitter.heard > 0;
  }));
  thread->RunAndWait([&] { watch.reset(); });
  EXPECT_EQ(quitter.heard, 1);
}

}  // namespace
}  // namespace muster::test
