// All watches of one client, on one stream, which is reopened after failures. Lives on the loop's
// thread.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>

#include "etcd/etcd_port.h"
#include "etcd/grpc/shared_stream.h"

namespace muster::etcd {

class WatchStream final
    : public ReopenedStream<etcdserverpb::WatchRequest, etcdserverpb::WatchResponse> {
 public:
  using ReopenedStream::ReopenedStream;

  /// The number of the new watch, for Remove().
  int64_t Add(const EtcdRange& range, int64_t revision, EtcdWatcher& watcher);
  void Remove(int64_t watch);

  bool IsWanted() const override { return !watches_.empty(); }

 private:
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

  std::unique_ptr<Rpc::Stream> Prepare(Connection& over, grpc::ClientContext& context,
                                       grpc::CompletionQueue* queue) override;
  void Create(int64_t number, const Watch& watch);
  void Cancel(int64_t id);
  void OnOpen() override;
  void OnMessage(const etcdserverpb::WatchResponse& response) override;
  void OnCreated(const etcdserverpb::WatchResponse& response);
  /// Whether the server's history is not that of the watch: it is older, or of another cluster.
  static bool IsBehind(const etcdserverpb::ResponseHeader& header, const Watch& watch);
  static void UpdateHistory(const etcdserverpb::ResponseHeader& header, Watch& watch);
  void OnCancelled(int64_t number, const etcdserverpb::WatchResponse& response);
  void OnLost(const grpc::Status& status, bool reached) override;
  void Reopen(const std::string& why, Duration pause) override;
  void Refuse(const Error& why) override;
  void ReportTrouble(const std::string& why);
  void End(int64_t number, const Error& why);

  std::map<int64_t, Watch> watches_;  ///< By our own number.
  int64_t last_number_ = 0;
  std::deque<int64_t> creating_;      ///< On this stream, in the order in which answers come.
  std::map<int64_t, int64_t> by_id_;  ///< Our number, by the server's.
};

}  // namespace muster::etcd
