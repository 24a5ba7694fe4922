// A client of a simulated etcd, in a simulated process. It behaves like the real one: it has one
// connection with pings, reconnects when it is lost, and continues its watches.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "base/prng.h"
#include "etcd/etcd_port.h"
#include "sim/etcd.h"

namespace muster::sim {

class SimEtcdClient final : public Etcd {
 public:
  /// All of them outlive it.
  SimEtcdClient(SimEtcd& cluster, SimProcess& process, Loop& loop);
  ~SimEtcdClient() override;

  void Commit(EtcdTransaction transaction, Duration patience,
              std::function<void(Result<EtcdAnswer>)> done) override;
  void Grant(Duration ttl, Duration patience, std::function<void(Result<EtcdLease>)> done) override;
  void KeepAlive(int64_t lease, Duration patience,
                 std::function<void(Result<Duration>)> done) override;
  void Revoke(int64_t lease, Duration patience, std::function<void(Status)> done) override;
  std::unique_ptr<EtcdWatch> Watch(const EtcdRange& range, int64_t revision,
                                   EtcdWatcher& watcher) override;
  std::string Describe() const override;

 private:
  class Handle;
  using What = decltype(EtcdReply::what);

  struct Call {
    EtcdRequest request;
    std::function<void(Result<What>)> done;
    bool is_sent = false;
  };
  struct Watched {
    EtcdRange range;
    int64_t next;  ///< The first revision that it has not received; 0: any.
    EtcdWatcher* watcher;
  };

  template <typename T>
  void Ask(decltype(EtcdRequest::what) what, Duration patience,
           std::function<void(Result<T>)> done);
  void Expect(uint64_t id, Duration patience);
  void Finish(uint64_t id, Result<What> result);

  /// Connects, unless it is connected or connecting.
  void Reach();
  void OnConnected(Result<std::shared_ptr<Socket>> made);
  void ReachLater();
  void Send(const EtcdRequest& request);
  void SendWatch(uint64_t id);
  void Read();
  void OnReply(EtcdReply reply);
  void OnChanges(uint64_t id, const std::vector<EtcdChange>& changes);
  void Beat(uint64_t connection);
  /// The connection is lost. Requests on it may have been executed.
  void Lose(const std::string& why);
  void ReportTrouble(const std::string& why);
  Error Failure(Code code, std::string_view why) const;
  /// Runs the work on this loop, after so long on its clock; never, once the client is gone.
  void Later(Duration time, std::function<void()> work);

  SimEtcd& cluster_;
  SimProcess& process_;
  Loop& loop_;
  Prng prng_;
  const std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
  uint64_t made_ = 0;
  std::map<uint64_t, Call> calls_;
  std::map<uint64_t, Watched> watches_;
  std::shared_ptr<Socket> socket_;
  bool is_reaching_ = false;
  int attempts_ = 0;          // failed ones in a row
  uint64_t connections_ = 0;  // so far
  Instant received_at_{};
  std::string arrived_;
};

}  // namespace muster::sim
