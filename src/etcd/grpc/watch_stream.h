// All watches of one client, on one stream, which is reopened after failures. Lives on the loop's
// thread.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>

#include "etcd/etcd_port.h"
#include "etcd/grpc/bidi_stream.h"
#include "etcd/grpc/client.h"

namespace muster::etcd {

class WatchStream final : public SharedStream {
 public:
  explicit WatchStream(Client& client);
  ~WatchStream() override;
  WatchStream(const WatchStream&) = delete;
  WatchStream& operator=(const WatchStream&) = delete;

  /// The number of the new watch, for Remove().
  int64_t Add(const EtcdRange& range, int64_t revision, EtcdWatcher& watcher);
  void Remove(int64_t watch);

  bool IsWanted() const override { return !watches_.empty(); }
  std::shared_ptr<Connection> Over() const override;
  void Abandon(const Connection& connection) override;

 private:
  using Rpc = BidiStream<etcdserverpb::WatchRequest, etcdserverpb::WatchResponse>;
  struct Watch {
    EtcdRange range;
    int64_t next;  ///< The revision to go on from; 0: the present one.
    EtcdWatcher* watcher;
    int64_t id = kNoId;    ///< The server's number for it on this stream.
    bool denied = false;   ///< Refused with the last stream's token.
    uint64_t cluster = 0;  ///< Of the last server that answered; 0: none.
    uint64_t term = 0;     ///< Of that server's raft; it only grows.
  };
  static constexpr int64_t kNoId = -1;

  void Open();
  void Connect();
  void Create(int64_t number, const Watch& watch);
  void Cancel(int64_t id);
  void OnOpen();
  void OnMessage(const etcdserverpb::WatchResponse& response);
  void OnCreated(const etcdserverpb::WatchResponse& response);
  /// Whether the server's history is not that of the watch: it is older, or of another cluster.
  static bool IsBehind(const etcdserverpb::ResponseHeader& header, const Watch& watch);
  static void UpdateHistory(const etcdserverpb::ResponseHeader& header, Watch& watch);
  void OnCancelled(int64_t number, const etcdserverpb::WatchResponse& response);
  void OnLost(const grpc::Status& status, bool reached);
  void Reopen(const std::string& why, Duration pause);
  void ReportTrouble(const std::string& why);
  void End(int64_t number, const Error& why);
  void EndAll(const Error& why);

  Client& client_;
  std::map<int64_t, Watch> watches_;  ///< By our own number.
  int64_t last_number_ = 0;
  bool opening_ = false;
  std::shared_ptr<Rpc> rpc_;
  std::deque<int64_t> creating_;      ///< On this stream, in the order in which answers come.
  std::map<int64_t, int64_t> by_id_;  ///< Our number, by the server's.
  size_t attempts_ = 0;               ///< Without an answer since.
  std::unique_ptr<Timer> pause_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace muster::etcd
