// Nodes that meet in a simulated etcd, each with a link of its own and no handler.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/lifetime.h"
#include "base/text.h"
#include "etcd/link.h"
#include "etcd/records.h"
#include "sim/etcd_fixture.h"

namespace muster::sim {

/// Passes everything on to the node's etcd, except what a test changes.
class ChangedEtcd : public Etcd {
 public:
  ChangedEtcd(std::shared_ptr<Etcd> etcd, Loop& loop) : etcd_(std::move(etcd)), loop_(loop) {}

  void Commit(EtcdTransaction transaction, Duration patience,
              std::function<void(Result<EtcdAnswer>)> done) override {
    etcd_->Commit(std::move(transaction), patience, std::move(done));
  }
  void Grant(Duration ttl, Duration patience,
             std::function<void(Result<EtcdLease>)> done) override {
    etcd_->Grant(ttl, patience, std::move(done));
  }
  void KeepAlive(int64_t lease, Duration patience,
                 std::function<void(Result<Duration>)> done) override {
    etcd_->KeepAlive(lease, patience, std::move(done));
  }
  void Revoke(int64_t lease, Duration patience, std::function<void(Status)> done) override {
    etcd_->Revoke(lease, patience, std::move(done));
  }
  std::unique_ptr<EtcdWatch> Watch(const EtcdRange& range, int64_t revision,
                                   EtcdWatcher& watcher) override {
    return etcd_->Watch(range, revision, watcher);
  }
  std::string Describe() const override { return etcd_->Describe(); }

 protected:
  const std::shared_ptr<Etcd> etcd_;
  Loop& loop_;
};

/// Watches of single keys fail at once, as with an etcd that refuses streams.
class UnwatchableEtcd final : public ChangedEtcd {
 public:
  UnwatchableEtcd(std::shared_ptr<Etcd> etcd, Loop& loop, size_t& failed)
      : ChangedEtcd(std::move(etcd), loop), failed_(failed) {}

  std::unique_ptr<EtcdWatch> Watch(const EtcdRange& range, int64_t revision,
                                   EtcdWatcher& watcher) override {
    if (!range.end.empty()) return etcd_->Watch(range, revision, watcher);
    struct Failing final : EtcdWatch {
      Lifetime lifetime;
    };
    auto watch = std::make_unique<Failing>();
    loop_.Post(watch->lifetime.Guard([this, &watcher] {
      ++failed_;
      watcher.OnTrouble("no streams here");
    }));
    return watch;
  }

 private:
  size_t& failed_;
};

/// Answers to writes take their time.
class SlowEtcd final : public ChangedEtcd {
 public:
  static constexpr Duration kTakes = 500ms;
  using ChangedEtcd::ChangedEtcd;

  void Commit(EtcdTransaction transaction, Duration patience,
              std::function<void(Result<EtcdAnswer>)> done) override {
    if (OnlyReads(transaction))
      return etcd_->Commit(std::move(transaction), patience, std::move(done));
    etcd_->Commit(std::move(transaction), patience, [this, done](const Result<EtcdAnswer>& answer) {
      late_.push_back(loop_.After(kTakes, [done, answer] { done(answer); }));
    });
  }

 private:
  std::vector<std::unique_ptr<Timer>> late_;
};

class LinkNode final : public RendezvousLinkListener {
 public:
  using Change = std::function<std::shared_ptr<Etcd>(std::shared_ptr<Etcd>, Loop&)>;

  LinkNode(Scheduler& scheduler, Network& network, SimEtcd& etcd, uint32_t pid,
           const RunSettings& settings, Change change = nullptr)
      : process(scheduler, network, network.AddHost(Concat("10.1.0.", pid)), pid, {.start = 1h},
                pid),
        loop(process) {
    link = std::make_unique<EtcdLink>(
        loop,
        EtcdLinkOptions{.connect = ConnectorOf(etcd, std::move(change)),
                        .hello = {.run_id = "a run/1",
                                  .node = {Concat("10.1.0.", pid), pid, 0},
                                  .settings = settings,
                                  .bootstrap_port = 1000},
                        .seed = pid},
        *this);
    link->Start();
  }
  ~LinkNode() override { Kill(); }

  EtcdConnector ConnectorOf(SimEtcd& etcd, Change change) {
    EtcdConnector connect = etcd.ConnectorOf(process);
    if (!change) return connect;
    return [connect, change](Loop& on) -> Result<std::shared_ptr<Etcd>> {
      MUSTER_TRY(std::shared_ptr<Etcd> connected, connect(on));
      return change(std::move(connected), on);
    };
  }

  void Kill() {
    if (process.alive()) process.Kill(Network::Ending::kSilent);
    link.reset();
  }
  /// As a handler does when it is destroyed.
  void Go() {
    link->Shutdown([] {});
  }

  const Push* Last(Push::Kind kind) const {
    const auto found =
        std::find_if(heard.rbegin(), heard.rend(), [&](const Push& p) { return p.kind == kind; });
    return found == heard.rend() ? nullptr : &*found;
  }
  size_t Count(Push::Kind kind) const {
    return static_cast<size_t>(
        std::ranges::count_if(heard, [&](const Push& push) { return push.kind == kind; }));
  }

  void OnPush(const Push& push) override { heard.push_back(push); }
  void OnReport(std::optional<RunReport> given) override { report = std::move(given); }
  void OnTrouble(const std::string& why) override { troubles.push_back(why); }
  void OnPlainServer() override { ADD_FAILURE(); }
  void OnPlaceLost(const std::string& why) override { place_lost = why; }
  void OnFailed(const Error& why) override { failure = why; }

  SimProcess process;
  SimLoop loop;
  std::unique_ptr<EtcdLink> link;
  std::vector<Push> heard;
  std::vector<std::string> troubles;
  std::optional<RunReport> report;
  std::optional<std::string> place_lost;
  std::optional<Error> failure;
};

class EtcdLinkTest : public SimEtcdTest {
 protected:
  ~EtcdLinkTest() override {
    nodes.clear();
    buried_.clear();
  }

  LinkNode& Node(LinkNode::Change change = nullptr) {
    const uint32_t pid = 100 + made_++;
    nodes[pid] =
        std::make_unique<LinkNode>(scheduler, network, etcd, pid, settings, std::move(change));
    return *nodes[pid];
  }
  LinkNode& Joining() {
    LinkNode& node = Node();
    node.link->Join(60s);
    return node;
  }

  /// They are removed from the list, but planned events still refer to them.
  void Bury() {
    for (auto& [pid, node] : nodes) buried_.push_back(std::move(node));
    nodes.clear();
  }

  /// The ranks of living nodes in that round.
  std::multiset<int64_t> Ranks(int64_t round) const {
    std::multiset<int64_t> ranks;
    for (const auto& [pid, node] : nodes) {
      for (const Push& push : node->heard) {
        if (push.kind == Push::Kind::kComplete && push.round == round) ranks.insert(push.rank);
      }
    }
    return ranks;
  }
  LinkNode* Leader() const {
    for (const auto& [pid, node] : nodes) {
      if (node->link && node->link->leads()) return node.get();
    }
    return nullptr;
  }
  std::vector<LinkNode*> Others(const LinkNode* than) const {
    std::vector<LinkNode*> others;
    for (const auto& [pid, node] : nodes) {
      if (node.get() != than && node->link) others.push_back(node.get());
    }
    return others;
  }
  std::string ValueOf(const std::string& key) {
    const auto answer = Commit({.then = {Get({.begin = key})}});
    const auto& found = answer->results.front().pairs;
    return found.empty() ? "" : found.front().value;
  }

  RunSettings settings{.min_nodes = 3, .max_nodes = 4, .last_call = 1s, .grace = 0s};
  wire::EtcdKeys keys{"/muster", "a run/1"};
  std::map<uint32_t, std::unique_ptr<LinkNode>> nodes;

 private:
  uint32_t made_ = 0;
  std::vector<std::unique_ptr<LinkNode>> buried_;
};

}  // namespace muster::sim
