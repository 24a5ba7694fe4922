// The store server's share of one loop: its connections, and their way to the shared machine.
// Lives on the loop's thread from construction to destruction.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/limits.h"
#include "base/log.h"
#include "base/time.h"
#include "os/ports/loop.h"
#include "os/ports/transport.h"
#include "rendezvous/session/session_hub.h"
#include "server/store_hub.h"
#include "store/wire/reply_writer.h"
#include "store/wire/request_reader.h"

namespace muster {

struct StoreServiceOptions {
  wire::RequestLimits request{};
  uint64_t queued_reply_bytes_max =
      kQueuedReplyBytesMax;      ///< Per connection; above it, its requests wait.
  Duration handshake_max = 30s;  ///< A connection that has not sent VALIDATE by then is closed.
  /// A connection that for so long takes its replies, or sends its request, more slowly than
  /// `rate_min` is closed.
  Duration stall_max = 60s;
  uint64_t rate_min = kRateMin;
};

/// Has the store delete the keys of a round when the coordinator has no use for them any more.
void KeepScopes(SessionHub& sessions, StoreHub& store);

class StoreConnection;

class StoreService {
 public:
  /// `index` is this loop's number in the hub. All references outlive the service.
  StoreService(Loop& loop, StoreHub& hub, SessionHub& sessions, size_t index,
               const StoreServiceOptions& options, LogSink log);
  ~StoreService();
  StoreService(const StoreService&) = delete;
  StoreService& operator=(const StoreService&) = delete;

  /// Serves a new connection until it ends.
  void Adopt(StreamPtr stream);

  /// Delivers what other loops decided for connections of this one: the answer to the hubs' knocks.
  void Collect();
  void CollectPushes();

  /// Descriptors are short. Closes up to `count` connections of this peer that have neither a
  /// session nor a parked wait: those that never asked for anything first, then those silent for
  /// longest (not if `only_unused`). A parked wait may be a worker of a large job behind one
  /// address: a stranger's connections must not end it. Returns how many.
  size_t CloseLeastUsed(const PeerGroup& from, size_t count, bool only_unused);

  size_t connections() const { return connections_.size(); }

 private:
  friend class StoreConnection;

  /// What one batch of requests needs while it runs; kept here so that idle connections own
  /// nothing.
  struct Workspace {
    struct Decoded {
      Request request;
      size_t end;  // offset behind the request's last byte
    };
    explicit Workspace(const KeyHasher& hasher) : decoder(hasher) {}

    wire::RequestDecoder decoder;
    std::vector<Decoded> batch;
    bool has_large_value = false;  // one of the batch
    std::string replies;
    std::vector<wire::PieceAt> reply_pieces;
    std::vector<Piece> given;                                          // large values of the batch
    std::vector<std::pair<std::string_view, std::string_view>> pairs;  // of a long request
  };

  void Tick();
  /// One short step of what a tick has to clear up; the rest after others had their turn.
  void Expire();
  void Deliver(const Released& clients);
  /// Connections whose session ends here end a little later, in CloseEnded(): one of them may be
  /// calling.
  void Deliver(const Pushes& pushes);
  void CloseEnded();
  /// A node has opened a session: from now on time is looked at closely.
  void WatchSessions();
  /// Calls the connection's Continue() in a later turn of the loop, after others had theirs.
  void Later(ClientId id);
  /// Ends and destroys the connection. `why` is logged, unless empty.
  void Close(StoreConnection& connection, LogLevel level, const std::string& why);
  /// At most a few lines a second: whoever floods us must not flood the log. Details have a budget
  /// of their own: clients that vanish must not hide those that are refused.
  void Log(LogLevel level, const std::string& line);
  void RenewLogBudget();
  int& lines_of(LogLevel level) { return level >= LogLevel::kWarning ? warnings_ : details_; }

  Loop& loop_;
  StoreHub& hub_;
  SessionHub& sessions_;
  const size_t index_;
  const StoreServiceOptions options_;
  const LogSink log_;
  uint64_t connections_made_ = 0;
  std::unordered_map<ClientId, std::unique_ptr<StoreConnection>> connections_;
  Workspace workspace_;
  std::unique_ptr<Timer> tick_;
  std::unique_ptr<Timer> session_tick_;
  std::vector<std::pair<SessionId, std::string>> ended_;
  std::shared_ptr<const bool> alive_ = std::make_shared<const bool>(true);
  Instant log_second_{};  // the budgets are of the second that began then
  int warnings_ = 0;
  int details_ = 0;
};

}  // namespace muster
