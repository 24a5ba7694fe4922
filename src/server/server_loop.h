// The server's share of one loop: its connections, and their way to the store and the coordinator,
// which all loops share. Lives on the loop's thread from construction to destruction.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/lifetime.h"
#include "base/log.h"
#include "base/time.h"
#include "muster/store_server.h"
#include "os/ports/loop.h"
#include "os/ports/transport.h"
#include "rendezvous/session/session_hub.h"
#include "server/shared_store.h"
#include "store/wire/reply_writer.h"
#include "store/wire/request_reader.h"

namespace muster {

/// Makes the store delete the keys of a round when the coordinator does not need them any more.
void KeepScopes(SessionHub& sessions, SharedStore& store);

class ClientConnection;

class ServerLoop {
 public:
  /// `index` is this loop's number in store and sessions. `on_tick` is called with every tick of
  /// this loop; true: call it again, even if nothing else is due. All references outlive this.
  ServerLoop(Loop& loop, SharedStore& store, SessionHub& sessions, size_t index,
             const StoreServerOptions& options, LogSink log, std::function<bool()> on_tick);
  ~ServerLoop();
  ServerLoop(const ServerLoop&) = delete;
  ServerLoop& operator=(const ServerLoop&) = delete;

  /// Serves a new connection until it ends.
  void Serve(StreamPtr stream);

  /// Delivers what other loops decided for connections of this one.
  void Collect();
  void CollectPushes();

  /// Few descriptors are left. Closes up to `count` connections of this peer that have neither a
  /// session nor a parked wait: unused ones first, then (unless `only_unused`) those that have been
  /// silent for the longest time. A parked wait may belong to a worker of a large job behind one
  /// address; other clients' connections must not end it. Returns how many.
  size_t CloseLeastUsed(const PeerGroup& from, size_t count, bool only_unused);

 private:
  friend class ClientConnection;

  /// Memory for one batch of requests while it runs; kept here so that idle connections need none.
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

  /// Called when something may be due later: ticks run from now on, until nothing is due. An idle
  /// loop has no timer.
  void KeepTicking() {
    if (!tick_) StartTicking();
  }
  void StartTicking();
  void Tick();
  void CloseOverdue();
  /// Whether the next tick may have something to do.
  bool HasDeadlines();
  /// Executes one short step of the store's Expire(); the rest follows after the turns of others.
  void Expire();
  void Deliver(const Released& clients);
  /// Connections whose session ends here are closed a little later, in CloseEnded(): one of them
  /// may be the caller.
  void Deliver(const Pushes& pushes);
  void CloseEnded();
  /// Called when a node has opened a session: from now on one loop ticks for the coordinator.
  void WatchSessions();
  void TickSessions();
  /// Calls the connection's Continue() in a later turn of the loop, after others had theirs.
  void ContinueLater(ClientId id);
  /// Ends and destroys the connection. `why` is logged, unless empty.
  void Close(ClientConnection& connection, LogLevel level, const std::string& why);
  /// At most a few lines a second: a flood of connections must not flood the log. Details have
  /// their own budget: lines about disconnected clients must not crowd out those about refused
  /// ones.
  void Log(LogLevel level, const std::string& line);
  void RenewLogBudget();
  int& lines_of(LogLevel level) { return level >= LogLevel::kWarning ? warnings_ : details_; }

  Loop& loop_;
  SharedStore& store_;
  SessionHub& sessions_;
  const size_t index_;
  const StoreServerOptions options_;
  const wire::RequestLimits limits_;
  const LogSink log_;
  const std::function<bool()> on_tick_;
  uint64_t connections_made_ = 0;
  std::unordered_map<ClientId, std::unique_ptr<ClientConnection>> connections_;
  Workspace workspace_;
  std::unique_ptr<Timer> tick_;
  Instant ticking_since_{};
  std::unique_ptr<Timer> session_tick_;
  struct Ended {
    SessionId session;
    LogLevel level;
    std::string why;
  };
  std::vector<Ended> ended_;
  Lifetime lifetime_;
  Instant log_second_{};  // the beginning of the second that the budgets are for
  int warnings_ = 0;
  int details_ = 0;
};

}  // namespace muster
