#include "server/store_service.h"

#include <algorithm>
#include <utility>

#include "base/assert.h"
#include "base/text.h"
#include "server/store_connection.h"
#include "store/wire/layout.h"

namespace muster {

namespace {
constexpr int kLinesPerSecondMax = 10;

// A tick looks at every connection, so it is as rare as the shortest time it has to notice allows.
Duration TickPeriod(const StoreServiceOptions& options) {
  const Duration shortest = std::min(options.handshake_max, options.stall_max);
  return std::clamp<Duration>(shortest / 10, 10ms, 1s);
}
}  // namespace

void KeepScopes(SessionHub& sessions, StoreHub& store) {
  sessions.ReportScopesTo([&store](const ScopeChange& change) {
    const std::string scope = ScopeOf(change.generation, change.round);
    if (change.in_use) {
      store.OpenScope(scope);
    } else {
      store.DropScope(scope);
    }
  });
}

StoreService::StoreService(Loop& loop, StoreHub& hub, SessionHub& sessions, size_t index,
                           const StoreServiceOptions& options, LogSink log)
    : loop_(loop),
      hub_(hub),
      sessions_(sessions),
      index_(index),
      options_(options),
      log_(std::move(log)),
      workspace_(hub.hasher()) {
  MUSTER_ASSERT(loop_.IsCurrent());
}

StoreService::~StoreService() { MUSTER_ASSERT(loop_.IsCurrent()); }

void StoreService::Adopt(StreamPtr stream) {
  const ClientId id = StoreHub::MakeClientId(index_, ++connections_made_);
  auto connection = std::make_unique<StoreConnection>(*this, id, std::move(stream));
  StoreConnection& started = *connection;
  connections_.emplace(id, std::move(connection));
  started.Start();
  // The tick runs only while there is somebody to watch over.
  if (!tick_) tick_ = loop_.Every(TickPeriod(options_), [this] { Tick(); });
}

void StoreService::Later(ClientId id) {
  loop_.Post([this, id, alive = std::weak_ptr(alive_)] {
    if (alive.expired()) return;
    const auto found = connections_.find(id);
    if (found != connections_.end()) found->second->Continue();
  });
}

void StoreService::Collect() {
  StoreHub::Turn turn(hub_, index_);
  Deliver(turn.Finish());
}

void StoreService::Deliver(const Released& clients) {
  for (const ClientId client : clients) {
    const auto found = connections_.find(client);
    if (found != connections_.end()) found->second->StopWaiting();
  }
}

void StoreService::CollectPushes() {
  Deliver(sessions_.Collect(index_));
  CloseEnded();
}

void StoreService::Deliver(const Pushes& pushes) {
  for (const Push& push : pushes) {
    const auto found = connections_.find(static_cast<ClientId>(push.to));
    if (found == connections_.end()) continue;
    found->second->Tell(push);
    if (push.kind == Push::Kind::kEnded) ended_.emplace_back(push.to, push.why);
    if (found->second->HasTooMuchWaiting())
      ended_.emplace_back(push.to, "does not read what it is told");
  }
  if (!ended_.empty()) sessions_.Wake(index_);
}

void StoreService::CloseEnded() {
  for (const auto& [session, why] : std::exchange(ended_, {})) {
    const auto found = connections_.find(static_cast<ClientId>(session));
    if (found != connections_.end()) Close(*found->second, LogLevel::kDebug, why);
  }
}

void StoreService::WatchSessions() {
  if (!sessions_.BeginTicking()) return;
  session_tick_ = loop_.Every(kSessionTick, [this] { Deliver(sessions_.Tick(index_)); });
}

void StoreService::Close(StoreConnection& connection, LogLevel level, const std::string& why) {
  if (!why.empty()) Log(level, Concat("closed ", connection.peer(), ": ", why));
  const ClientId id = connection.id();
  const bool had_session = connection.has_session();
  connection.Abandon();
  connections_.erase(id);  // destroys the connection, which closes its stream
  if (had_session) Deliver(sessions_.Disconnect(index_, id));
  StoreHub::Turn turn(hub_, index_);
  turn.Drop(id, loop_.Now());
  Deliver(turn.Finish());
}

size_t StoreService::CloseLeastUsed(const PeerGroup& from, size_t count, bool only_unused) {
  // Without a request: VALIDATE alone, or less.
  constexpr uint64_t kUnusedBytes = 1 + sizeof wire::kMagic;
  // How many are looked at, at most, for each that is to be closed: the others may be parked.
  constexpr size_t kLooks = 8;
  struct Idle {
    bool used;
    Duration last;
    StoreConnection* connection;
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
    StoreHub::Turn turn(hub_, index_);
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

void StoreService::Tick() {
  const Instant now = loop_.Now();
  std::vector<std::pair<StoreConnection*, std::string>> overdue;
  for (const auto& [id, connection] : connections_) {
    if (std::string why = connection->Overdue(now, options_); !why.empty()) {
      overdue.emplace_back(connection.get(), std::move(why));
    }
  }
  for (const auto& [connection, why] : overdue) Close(*connection, LogLevel::kWarning, why);
  Expire();
  // Also where no other line follows.
  RenewLogBudget();
  if (connections_.empty() && warnings_ <= kLinesPerSecondMax) tick_.reset();
}

void StoreService::Expire() {
  StoreHub::Turn turn(hub_, index_);
  const bool more = turn.Expire(loop_.Now());
  Deliver(turn.Finish());
  if (!more) return;
  loop_.Post([this, alive = std::weak_ptr(alive_)] {
    if (!alive.expired()) Expire();
  });
}

void StoreService::Log(LogLevel level, const std::string& line) {
  if (!log_) return;
  RenewLogBudget();
  if (++lines_of(level) <= kLinesPerSecondMax) log_(level, line);
}

void StoreService::RenewLogBudget() {
  if (loop_.Now() - log_second_ < 1s) return;
  log_second_ = loop_.Now();
  for (const LogLevel level : {LogLevel::kDebug, LogLevel::kWarning}) {
    const int withheld = std::exchange(lines_of(level), 0) - kLinesPerSecondMax;
    if (withheld > 0) log_(level, Concat(withheld, " lines like the last withheld"));
  }
}

}  // namespace muster
