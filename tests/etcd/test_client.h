// A client of etcd on a loop of its own, for tests that wait for its answers, and a watcher that
// records changes.
#pragma once

#include <gtest/gtest.h>

#include <condition_variable>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "etcd/cluster.h"
#include "etcd/etcd_port.h"
#include "etcd/grpc/grpc_etcd.h"
#include "os/uv/uv_loop.h"
#include "support/eventually.h"

namespace muster::test {

inline constexpr Duration kCallPatience = 20s;

class TestClient {
 public:
  explicit TestClient(const EtcdOptions& access) : thread_(*UvThread::Open()) {
    Result<std::shared_ptr<Etcd>> etcd = ConnectorTo(access)(thread_->loop());
    if (!etcd) throw std::runtime_error(etcd.error().message);
    etcd_ = std::move(*etcd);
  }
  ~TestClient() { Destroy(); }
  TestClient(const TestClient&) = delete;
  TestClient& operator=(const TestClient&) = delete;

  void Destroy() {
    thread_->RunAndWait([this] { etcd_.reset(); });
  }
  UvThread& thread() { return *thread_; }
  Etcd& etcd() { return *etcd_; }

  Result<EtcdAnswer> Commit(EtcdTransaction transaction, Duration patience = kCallPatience) {
    return Await<Result<EtcdAnswer>>(
        [&](auto done) { etcd_->Commit(transaction, patience, done); });
  }
  Result<EtcdAnswer> Put(const std::string& key, const std::string& value, int64_t lease = 0,
                         Duration patience = kCallPatience) {
    EtcdTransaction put;
    put.then.push_back({.kind = EtcdOperation::Kind::kPut,
                        .range = {.begin = key},
                        .value = value,
                        .lease = lease});
    return Commit(std::move(put), patience);
  }
  Result<EtcdAnswer> Read(EtcdRange range, Duration patience = kCallPatience) {
    EtcdTransaction get;
    get.then.push_back({.kind = EtcdOperation::Kind::kGet, .range = std::move(range)});
    return Commit(std::move(get), patience);
  }
  /// "(none)" if the key does not exist, "(error) ..." after a failure.
  std::string Value(const std::string& key) {
    const Result<EtcdAnswer> answer = Read({.begin = key});
    if (!answer) return "(error) " + answer.error().message;
    const auto& pairs = answer->results.at(0).pairs;
    return pairs.empty() ? "(none)" : pairs[0].value;
  }
  Result<EtcdLease> Grant(Duration ttl, Duration patience = kCallPatience) {
    return Await<Result<EtcdLease>>([&](auto done) { etcd_->Grant(ttl, patience, done); });
  }
  Result<Duration> KeepAlive(int64_t lease, Duration patience = kCallPatience) {
    return Await<Result<Duration>>([&](auto done) { etcd_->KeepAlive(lease, patience, done); });
  }
  Status Revoke(int64_t lease, Duration patience = kCallPatience) {
    return Await<Status>([&](auto done) { etcd_->Revoke(lease, patience, done); });
  }

 private:
  template <typename T>
  T Await(std::function<void(std::function<void(T)>)> start) {
    auto promise = std::make_shared<std::promise<T>>();
    auto future = promise->get_future();
    thread_->RunAndWait(
        [&] { start([promise](T result) { promise->set_value(std::move(result)); }); });
    if (future.wait_for(kPatience) != std::future_status::ready)
      throw std::runtime_error("a call of etcd's that should have ended is still under way");
    return future.get();
  }

  std::unique_ptr<UvThread> thread_;
  std::shared_ptr<Etcd> etcd_;
};

/// Records the changes of one watch: "key=value", "-key" for a deletion.
class TestWatcher final : public EtcdWatcher {
 public:
  TestWatcher(TestClient& test_client, EtcdRange range, int64_t revision) : client_(test_client) {
    client_.thread().RunAndWait([&] { watch_ = client_.etcd().Watch(range, revision, *this); });
  }
  ~TestWatcher() override { Stop(); }
  void Stop() {
    client_.thread().RunAndWait([&] { watch_.reset(); });
  }

  std::vector<std::string> changes() const { return Copy(changes_); }
  std::vector<std::string> troubles() const { return Copy(troubles_); }
  std::optional<Error> end() const {
    const std::lock_guard lock(mutex_);
    return end_;
  }
  bool HasReceived(const std::vector<std::string>& what) const {
    return EventuallyTrue([&] { return changes() == what; });
  }

 private:
  void OnChanges(const std::vector<EtcdChange>& changes) override {
    const std::lock_guard lock(mutex_);
    for (const EtcdChange& each : changes)
      changes_.push_back(each.deleted ? "-" + each.pair.key
                                      : each.pair.key + "=" + each.pair.value);
  }
  void OnTrouble(const std::string& why) override {
    const std::lock_guard lock(mutex_);
    troubles_.push_back(why);
  }
  void OnEnd(const Error& why) override {
    const std::lock_guard lock(mutex_);
    end_ = why;
  }
  std::vector<std::string> Copy(const std::vector<std::string>& what) const {
    const std::lock_guard lock(mutex_);
    return what;
  }

  TestClient& client_;
  std::unique_ptr<EtcdWatch> watch_;
  mutable std::mutex mutex_;
  std::vector<std::string> changes_;
  std::vector<std::string> troubles_;
  std::optional<Error> end_;
};

/// For tests that need etcd.
class EtcdTest : public ::testing::Test {
 protected:
  void SetUp() override { MUSTER_REQUIRE(EtcdNeed()); }
};

}  // namespace muster::test
