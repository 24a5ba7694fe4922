// A simulated etcd, and a client of it in a process of its own.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sim/etcd.h"
#include "sim/process.h"

namespace muster::sim {

inline constexpr Duration kPatience = 5s;

inline EtcdOperation Put(std::string key, std::string value, int64_t lease = 0) {
  return {.kind = EtcdOperation::Kind::kPut,
          .range = {.begin = std::move(key)},
          .value = std::move(value),
          .lease = lease};
}
inline EtcdOperation Get(EtcdRange range) {
  return {.kind = EtcdOperation::Kind::kGet, .range = std::move(range)};
}
inline EtcdOperation Delete(EtcdRange range) {
  return {.kind = EtcdOperation::Kind::kDelete, .range = std::move(range)};
}
inline EtcdCondition IsAbsent(std::string key) {
  return {.kind = EtcdCondition::Kind::kCreatedAt, .key = std::move(key)};
}

struct Heard final : public EtcdWatcher {
  void OnChanges(const std::vector<EtcdChange>& changes) override {
    for (const EtcdChange& each : changes) {
      EXPECT_TRUE(revisions.empty() || each.pair.changed >= revisions.back());
      revisions.push_back(each.pair.changed);
      keys.push_back((each.deleted ? "-" : "") + each.pair.key);
    }
  }
  void OnTrouble(const std::string& why) override { troubles.push_back(why); }
  void OnEnd(const Error& why) override { end = why; }

  std::vector<int64_t> revisions;
  std::vector<std::string> keys;
  std::vector<std::string> troubles;
  std::optional<Error> end;
};

class SimEtcdTest : public testing::Test {
 protected:
  explicit SimEtcdTest(const EtcdFaults& faults = {}, uint64_t seed = 1)
      : etcd(network, trace, faults, seed) {
    StartCluster();
  }
  ~SimEtcdTest() override {
    for (auto& each : clusters) each->Kill(Network::Ending::kSilent);
  }

  void StartCluster() {
    network.PowerOn(there);
    clusters.push_back(
        std::make_unique<SimProcess>(scheduler, network, there, 1, ClockError{.start = 1h}, 1));
    etcd.Serve(*clusters.back());
  }
  SimProcess& cluster() { return *clusters.back(); }

  void Run(Duration time) { scheduler.RunUntil(scheduler.now() + time); }
  std::shared_ptr<Etcd> Connect(SimProcess& its_process, Loop& its_loop) {
    return std::move(*etcd.ConnectorOf(its_process)(its_loop));
  }

  Result<EtcdAnswer> Commit(EtcdTransaction transaction, Duration patience = kPatience) {
    return Await<EtcdAnswer>(
        [&](auto done) { client->Commit(std::move(transaction), patience, std::move(done)); });
  }
  Result<EtcdLease> Grant(Duration ttl) {
    return Await<EtcdLease>([&](auto done) { client->Grant(ttl, kPatience, std::move(done)); });
  }
  Result<Duration> KeepAlive(int64_t lease) {
    return Await<Duration>([&](auto done) { client->KeepAlive(lease, kPatience, done); });
  }
  Status Revoke(int64_t lease) {
    return Await<Unit>([&](auto done) { client->Revoke(lease, kPatience, done); });
  }

  template <typename T, typename Call>
  Result<T> Await(const Call& call) {
    const auto answer = std::make_shared<std::optional<Result<T>>>();
    call([answer](Result<T> result) {
      EXPECT_FALSE(answer->has_value());
      *answer = std::move(result);
    });
    EXPECT_FALSE(answer->has_value());  // later, never at once
    while (!answer->has_value() && scheduler.Step(scheduler.now() + 1min)) {
    }
    if (!answer->has_value()) return Error{Code::kProtocol, "it never ended"};
    return **answer;
  }

  Scheduler scheduler;
  Trace trace;
  Network network{scheduler, {}, 1, trace};
  HostId there = network.AddHost("10.0.0.1");
  HostId here = network.AddHost("10.1.0.0");
  std::vector<std::unique_ptr<SimProcess>> clusters;
  SimEtcd etcd;
  SimProcess process{scheduler, network, here, 2, {.start = 2h}, 2};
  SimLoop loop{process};
  std::shared_ptr<Etcd> client = Connect(process, loop);
};

}  // namespace muster::sim
