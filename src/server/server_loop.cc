#include "server/server_loop.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/assert.h"
#include "base/text.h"
#include "server/client_connection.h"
#include "store/wire/layout.h"

namespace muster {

namespace {
constexpr int kLinesPerSecondMax = 10;

// A tick checks every connection: it is as rare as the shortest deadline allows.
Duration TickPeriod(const StoreServerOptions& options) {
  const Duration shortest = std::min(options.handshake_max, options.stall_max);
  return std::clamp<Duration>(shortest / 10, 10ms, 1s);
}
}  // namespace

void KeepScopes(SessionHub& sessions, SharedStore& store) {
  sessions.ReportScopesTo([&store](const ScopeChange& change) {
    const std::string scope = ScopeOf(change.generation, change.round);
    if (change.in_use) {
      store.OpenScope(scope);
    } else {
      store.DropScope(scope);
    }
  });
}

ServerLoop::ServerLoop(Loop& loop, SharedStore& store, SessionHub& sessions, size_t index,
                       const StoreServerOptions& options, LogSink log,
                       std::function<bool()> on_tick)
    : loop_(loop),
      store_(store),
      sessions_(sessions),
      index_(index),
      options_(options),
      limits_{.key_bytes_max = options.key_bytes_max,
              .value_bytes_max = options.value_bytes_max,
              .keys_max = options.keys_per_request_max,
              .request_bytes_max = options.request_bytes_max},
      log_(std::move(log)),
      on_tick_(std::move(on_tick)),
      workspace_(store.hasher()) {
  MUSTER_ASSERT(loop_.IsCurrent());
}

ServerLoop::~ServerLoop() { MUSTER_ASSERT(loop_.IsCurrent()); }

void ServerLoop::Serve(StreamPtr stream) {
  const ClientId id = SharedStore::MakeClientId(index_, ++connections_made_);
  auto connection = std::make_unique<ClientConnection>(*this, id, std::move(stream));
  ClientConnection& started = *connection;
  connections_.emplace(id, std::move(connection));
  started.Start();
  KeepTicking();
}

void ServerLoop::ContinueLater(ClientId id) {
  loop_.Post(lifetime_.Guard([this, id] {
    const auto found = connections_.find(id);
    if (found != connections_.end()) found->second->Continue();
  }));
}

void ServerLoop::Collect() {
  KeepTicking();  // something may be left to Expire()
  SharedStore::Turn turn(store_, index_);
  Deliver(turn.Finish());
}

void ServerLoop::Deliver(const Released& clients) {
  if (!clients.empty()) KeepTicking();
  for (const ClientId client : clients) {
    const auto found = connections_.find(client);
    if (found != connections_.end()) found->second->SendStopWaiting();
  }
}

void ServerLoop::CollectPushes() {
  if (sessions_.TakeEndOfRest(index_)) {
    session_tick_ = loop_.Every(kSessionTick, [this] { TickSessions(); });
  }
  Deliver(sessions_.Collect(index_));
  CloseEnded();
}

void ServerLoop::Deliver(const Pushes& pushes) {
  if (!pushes.empty()) KeepTicking();
  for (const Push& push : pushes) {
    const auto found = connections_.find(static_cast<ClientId>(push.to));
    if (found == connections_.end()) continue;
    found->second->SendPush(push);
    if (push.kind == Push::Kind::kEnded) ended_.push_back({push.to, LogLevel::kDebug, push.why});
    if (found->second->HasTooMuchQueued()) {
      ended_.push_back({push.to, LogLevel::kWarning, "does not read what is sent to it"});
    } else if (found->second->HoldsTooMuch()) {
      ended_.push_back({push.to, LogLevel::kWarning, ClientConnection::WhyHoldsTooMuch()});
    }
  }
  if (!ended_.empty()) sessions_.Wake(index_);
}

void ServerLoop::CloseEnded() {
  for (const auto& [session, level, why] : std::exchange(ended_, {})) {
    const auto found = connections_.find(static_cast<ClientId>(session));
    if (found != connections_.end()) Close(*found->second, level, why);
  }
}

void ServerLoop::WatchSessions() {
  if (!sessions_.BeginTicking(index_)) return;
  session_tick_ = loop_.Every(kSessionTick, [this] { TickSessions(); });
}

void ServerLoop::TickSessions() {
  Deliver(sessions_.Tick(index_));
  const std::optional<Instant> due = sessions_.TryRest();
  if (!due) return;
  // Only ended runs are left: the next one is forgotten then.
  session_tick_.reset();
  if (*due == Instant::Never()) return;
  session_tick_ = loop_.After(*due - loop_.Now(), [this] { TickSessions(); });
}

void ServerLoop::Close(ClientConnection& connection, LogLevel level, const std::string& why) {
  if (!why.empty()) Log(level, Concat("closed ", connection.peer(), ": ", why));
  KeepTicking();  // places that its wait leaves are cleared in steps
  const ClientId id = connection.id();
  const bool had_session = connection.has_session();
  connection.Abandon();
  connections_.erase(id);  // destroys the connection, which closes its stream
  if (had_session) {
    Deliver(sessions_.Disconnect(index_, id));
    WatchSessions();  // if opening it has thrown, before the first call
  }
  SharedStore::Turn turn(store_, index_);
  turn.Drop(id, loop_.Now());
  Deliver(turn.Finish());
}

size_t ServerLoop::CloseLeastUsed(const PeerGroup& from, size_t count, bool only_unused) {
  // The bytes of a connection without a request: VALIDATE alone, or less.
  constexpr uint64_t kUnusedBytes = 1 + sizeof wire::kMagic;
  // How many connections are checked, at most, for each one to be closed: others may be parked.
  constexpr size_t kLooks = 8;
  struct Idle {
    bool used;
    Duration last;
    ClientConnection* connection;
  };
  std::vector<Idle> candidates;
  for (const auto& [id, connection] : connections_) {
    if (connection->has_session()) continue;
    const StreamUse use = connection->use();
    const bool used = use.received_bytes > kUnusedBytes;
    if (use.from != from || (used && only_unused)) continue;
    candidates.push_back({used, use.received_at.since_start, connection.get()});
  }
  const size_t looked_at = std::min(candidates.size(), kLooks * count);
  std::ranges::partial_sort(candidates, candidates.begin() + static_cast<std::ptrdiff_t>(looked_at),
                            {}, [](const Idle& c) { return std::pair(c.used, c.last); });
  candidates.resize(looked_at);
  {
    SharedStore::Turn turn(store_, index_);
    std::erase_if(candidates, [&](const Idle& c) { return turn.IsParked(c.connection->id()); });
    Deliver(turn.Finish());
  }
  count = std::min(count, candidates.size());
  candidates.resize(count);
  for (const Idle& idle : candidates) {
    Close(*idle.connection, LogLevel::kDebug, "idle, and its descriptor is needed for others");
  }
  return count;
}

void ServerLoop::StartTicking() {
  ticking_since_ = loop_.Now();
  tick_ = loop_.Every(TickPeriod(options_), [this] { Tick(); });
}

void ServerLoop::Tick() {
  CloseOverdue();
  Expire();
  // Done here for the case that no other line follows.
  RenewLogBudget();
  const bool called_again = on_tick_ && on_tick_();
  if (!called_again && !HasDeadlines()) tick_.reset();
}

void ServerLoop::CloseOverdue() {
  const Instant now = loop_.Now();
  std::vector<std::pair<ClientConnection*, std::string>> overdue;
  for (const auto& [id, connection] : connections_) {
    if (std::string why = connection->FindOverdue(now, ticking_since_); !why.empty()) {
      overdue.emplace_back(connection.get(), std::move(why));
    }
  }
  for (const auto& [connection, why] : overdue) Close(*connection, LogLevel::kWarning, why);
}

bool ServerLoop::HasDeadlines() {
  if (std::max(warnings_, details_) > kLinesPerSecondMax) return true;
  if (store_.HasDeadlines()) return true;
  return std::ranges::any_of(connections_,
                             [](const auto& known) { return known.second->HasDeadline(); });
}

void ServerLoop::Expire() {
  SharedStore::Turn turn(store_, index_);
  const bool more = turn.Expire(loop_.Now());
  Deliver(turn.Finish());
  if (more) loop_.Post(lifetime_.Guard([this] { Expire(); }));
}

void ServerLoop::Log(LogLevel level, const std::string& line) {
  if (!log_) return;
  RenewLogBudget();
  if (++lines_of(level) <= kLinesPerSecondMax) return log_(level, line);
  KeepTicking();
}

void ServerLoop::RenewLogBudget() {
  if (loop_.Now() - log_second_ < 1s) return;
  log_second_ = loop_.Now();
  for (const LogLevel level : {LogLevel::kDebug, LogLevel::kWarning}) {
    const int withheld = std::exchange(lines_of(level), 0) - kLinesPerSecondMax;
    if (withheld > 0) log_(level, Concat(withheld, " lines like the last withheld"));
  }
}

}  // namespace muster
