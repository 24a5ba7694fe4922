// Watches of a real etcd: every change once, whatever happens on the way.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "etcd/patron.h"

namespace muster::test {
namespace {

using EtcdWatchTest = EtcdTest;

TEST_F(EtcdWatchTest, ChangesAreHeardOnceAndInOrder) {
  const EtcdCluster cluster;
  Patron patron(cluster.access());
  const int64_t revision = patron.Put("w/0", "before")->revision;
  Hearer hearer(patron, EtcdPrefix("w/"), revision + 1);
  std::vector<std::string> expected;
  for (int i = 0; i < 50; ++i) {
    const std::string value = std::to_string(i);
    ASSERT_TRUE(patron.Put("w/" + value, value));
    expected.push_back("w/" + value + "=" + value);
  }
  ASSERT_TRUE(
      patron.Commit({.then = {{.kind = EtcdOperation::Kind::kDelete, .range = {.begin = "w/7"}}}}));
  expected.push_back("-w/7");
  EXPECT_TRUE(hearer.HasHeard(expected)) << ::testing::PrintToString(hearer.changes());
  EXPECT_TRUE(hearer.troubles().empty());
}

TEST_F(EtcdWatchTest, ThePastIsHeardToo) {
  const EtcdCluster cluster;
  Patron patron(cluster.access());
  const int64_t first = patron.Put("k", "1")->revision;
  ASSERT_TRUE(patron.Put("k", "2"));
  const Hearer hearer(patron, {.begin = "k"}, first);
  EXPECT_TRUE(hearer.HasHeard({"k=1", "k=2"}));
}

TEST_F(EtcdWatchTest, ManyWatchesShareAStream) {
  const EtcdCluster cluster;
  Patron patron(cluster.access());
  const int64_t next = patron.Put("x", "")->revision + 1;
  std::vector<std::unique_ptr<Hearer>> hearers;
  for (int i = 0; i < 100; ++i) {
    hearers.push_back(
        std::make_unique<Hearer>(patron, EtcdRange{.begin = "k" + std::to_string(i)}, next));
  }
  // Half of them go, some before the server has answered.
  for (size_t i = 0; i < hearers.size(); i += 2) hearers[i].reset();
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(patron.Put("k" + std::to_string(i), "v"));
  for (size_t i = 1; i < hearers.size(); i += 2)
    EXPECT_TRUE(hearers[i]->HasHeard({"k" + std::to_string(i) + "=v"})) << i;
}

TEST_F(EtcdWatchTest, AWatchGoesOnAfterARestartOfTheServer) {
  EtcdCluster cluster;
  Patron patron(cluster.access());
  const int64_t next = patron.Put("k", "0")->revision + 1;
  const Hearer hearer(patron, {.begin = "k"}, next);
  ASSERT_TRUE(patron.Put("k", "1"));
  ASSERT_TRUE(hearer.HasHeard({"k=1"}));
  cluster.Kill(0);
  ASSERT_TRUE(EventuallyTrue([&] { return !hearer.troubles().empty(); }));
  EXPECT_NE(hearer.troubles().front().find(cluster.endpoint(0).ToString()), std::string::npos);
  cluster.Start(0);
  cluster.Control({"get", "k", "--command-timeout=30s"});  // answers when the server does
  cluster.Control({"put", "k", "2"});
  EXPECT_TRUE(hearer.HasHeard({"k=1", "k=2"})) << ::testing::PrintToString(hearer.changes());
  EXPECT_FALSE(hearer.end());
}

TEST_F(EtcdWatchTest, CompactionEndsAWatchOfThePast) {
  const EtcdCluster cluster;
  Patron patron(cluster.access());
  const int64_t first = patron.Put("k", "1")->revision;
  const int64_t last = patron.Put("k", "2")->revision;
  cluster.Control({"compact", std::to_string(last)});
  const Hearer hearer(patron, {.begin = "k"}, first);
  ASSERT_TRUE(EventuallyTrue([&] { return hearer.end().has_value(); }));
  EXPECT_EQ(hearer.end()->code, Code::kNotFound);
  EXPECT_NE(hearer.end()->message.find("compacted at " + std::to_string(last)), std::string::npos)
      << hearer.end()->message;
  EXPECT_TRUE(hearer.changes().empty());
}

/// Ends its watch, or its whole client, when it hears of something.
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
  Patron patron(cluster.access());
  const int64_t next = patron.Put("k", "0")->revision + 1;
  std::unique_ptr<EtcdWatch> watch;
  Quitter quitter([&] { watch.reset(); });
  patron.thread().RunAndWait([&] { watch = patron.etcd().Watch({.begin = "k"}, next, quitter); });
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(patron.Put("k", "v"));
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
    etcd = *ConnectEtcd(cluster.access(), thread->loop());
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
