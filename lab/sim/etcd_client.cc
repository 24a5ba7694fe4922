#include "sim/etcd_client.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/instrumented.h"
#include "base/text.h"

namespace muster::sim {

namespace {

constexpr Duration kConnectPatience = 2s;
constexpr Duration kPingEvery = 1s;
constexpr Duration kSilenceMax = 2500ms;
constexpr Duration kAgainFirst = 100ms;
constexpr Duration kAgainMax = 1s;
constexpr Duration kForEver = 24h;

}  // namespace

class SimEtcdClient::Handle final : public EtcdWatch {
 public:
  Handle(SimEtcdClient& client, uint64_t id) : client_(client), alive_(client.alive_), id_(id) {}
  ~Handle() override {
    if (!*alive_ || client_.watches_.erase(id_) == 0) return;
    client_.Send({.id = id_, .what = EtcdRequest::Unwatch{}});
  }

 private:
  SimEtcdClient& client_;
  const std::shared_ptr<bool> alive_;
  const uint64_t id_;
};

SimEtcdClient::SimEtcdClient(SimEtcd& cluster, SimProcess& process, Loop& loop)
    : cluster_(cluster), process_(process), loop_(loop), prng_(process.Seed()) {}

SimEtcdClient::~SimEtcdClient() {
  *alive_ = false;
  if (socket_) socket_->Close();
}

std::string SimEtcdClient::Describe() const {
  return Concat("etcd at ", cluster_.endpoint().ToString());
}

Error SimEtcdClient::Failure(Code code, std::string_view why) const {
  return {code, Concat(Describe(), ": ", why)};
}

void SimEtcdClient::Later(Duration time, std::function<void()> work) {
  process_.DoAt(process_.ToWorld(process_.Now() + time), [alive = alive_, work = std::move(work)] {
    if (*alive) work();
  });
}

// ----------------------------------------------------------------------------------------------
// calls

template <typename T>
void SimEtcdClient::Ask(decltype(EtcdRequest::what) what, Duration patience,
                        std::function<void(Result<T>)> done) {
  const uint64_t id = ++made_;
  Call call{.request = {.id = id, .what = std::move(what)},
            .done = [done = std::move(done)](Result<What> reply) {
              if (!reply) return done(reply.error());
              done(std::get<T>(std::move(*reply)));
            }};
  if (socket_) {
    call.is_sent = true;
    Send(call.request);
  }
  calls_.emplace(id, std::move(call));
  Expect(id, patience);
  Reach();
}

void SimEtcdClient::Expect(uint64_t id, Duration patience) {
  if (patience > kForEver) return;
  Later(patience, [this, id, patience] {
    const auto call = calls_.find(id);
    if (call == calls_.end()) return;
    const bool is_sent = call->second.is_sent;
    Finish(id, Failure(is_sent ? Code::kTimeout : Code::kUnavailable,
                       Concat(is_sent ? "no answer" : "not reached", " within ",
                              Milliseconds(patience), " ms")));
  });
}

void SimEtcdClient::Finish(uint64_t id, Result<What> result) {
  const auto call = calls_.find(id);
  if (call == calls_.end()) return;
  const auto done = std::move(call->second.done);
  calls_.erase(call);
  done(std::move(result));
}

void SimEtcdClient::Commit(EtcdTransaction transaction, Duration patience,
                           std::function<void(Result<EtcdAnswer>)> done) {
  Ask<EtcdAnswer>(std::move(transaction), patience, std::move(done));
}

void SimEtcdClient::Grant(Duration ttl, Duration patience,
                          std::function<void(Result<EtcdLease>)> done) {
  Ask<EtcdLease>(EtcdRequest::Grant{ttl}, patience, std::move(done));
}

void SimEtcdClient::KeepAlive(int64_t lease, Duration patience,
                              std::function<void(Result<Duration>)> done) {
  Ask<Duration>(EtcdRequest::KeepAlive{lease}, patience, std::move(done));
}

void SimEtcdClient::Revoke(int64_t lease, Duration patience, std::function<void(Status)> done) {
  Ask<Unit>(EtcdRequest::Revoke{lease}, patience, std::move(done));
}

std::unique_ptr<EtcdWatch> SimEtcdClient::Watch(const EtcdRange& range, int64_t revision,
                                                EtcdWatcher& watcher) {
  const uint64_t id = ++made_;
  watches_.emplace(
      id, Watched{.range = range, .next = std::max<int64_t>(revision, 0), .watcher = &watcher});
  if (socket_) {
    SendWatch(id);
  } else {
    Reach();
  }
  return std::make_unique<Handle>(*this, id);
}

// ----------------------------------------------------------------------------------------------
// the connection

void SimEtcdClient::Reach() {
  if (socket_ || is_reaching_) return;
  is_reaching_ = true;
  cluster_.network().Connect(process_, cluster_.endpoint(), kConnectPatience,
                             [this, alive = alive_](Result<std::shared_ptr<Socket>> made) {
                               if (*alive) return OnConnected(std::move(made));
                               if (made) (*made)->Close();
                             });
}

void SimEtcdClient::OnConnected(Result<std::shared_ptr<Socket>> made) {
  is_reaching_ = false;
  if (!made) {
    const Error why = Failure(Code::kUnavailable, made.error().message);
    std::vector<uint64_t> unsent;
    for (const auto& [id, call] : calls_) unsent.push_back(id);
    ReachLater();
    const auto alive = alive_;
    for (const uint64_t id : unsent) {
      Finish(id, why);
      if (!*alive) return;
    }
    return ReportTrouble(why.message);
  }
  attempts_ = 0;
  socket_ = std::move(*made);
  socket_->on_event = [this] { Read(); };
  arrived_.clear();
  received_at_ = process_.Now();
  for (const auto& [id, watch] : watches_) SendWatch(id);
  for (auto& [id, call] : calls_) {
    call.is_sent = true;
    Send(call.request);
  }
  const uint64_t connection = ++connections_;
  Later(kPingEvery, [this, connection] { Beat(connection); });
}

// Requests that arrive meanwhile wait for the next attempt.
void SimEtcdClient::ReachLater() {
  is_reaching_ = true;
  const Duration pause = std::min(kAgainFirst * (1 << std::min(attempts_++, 6)), kAgainMax);
  const auto jitter = static_cast<int64_t>(prng_.Below(static_cast<uint64_t>(pause.count())));
  Later(pause / 2 + Duration(jitter), [this] {
    is_reaching_ = false;
    if (!calls_.empty() || !watches_.empty()) Reach();
  });
}

void SimEtcdClient::Send(const EtcdRequest& request) {
  if (socket_) socket_->Write(cluster_.requests_.Hand(request));
}

void SimEtcdClient::SendWatch(uint64_t id) {
  const Watched& watch = watches_.at(id);
  Send({.id = id, .what = EtcdRequest::Watch{watch.range, watch.next}});
}

void SimEtcdClient::Beat(uint64_t connection) {
  if (!socket_ || connection != connections_) return;
  const Duration silence = process_.Now() - received_at_;
  if (silence >= kSilenceMax)
    return Lose(Concat("nothing received for ", Milliseconds(silence), " ms"));
  Send({.what = EtcdRequest::Ping{}});
  Later(kPingEvery, [this, connection] { Beat(connection); });
}

void SimEtcdClient::Lose(const std::string& why) {
  const std::shared_ptr<Socket> socket = std::exchange(socket_, nullptr);
  socket->Close();
  const auto alive = alive_;
  std::vector<uint64_t> asked;
  for (const auto& [id, call] : calls_) asked.push_back(id);
  if (!watches_.empty()) ReachLater();
  for (const uint64_t id : asked) {
    Finish(id, Failure(Code::kTimeout, Concat("the connection was lost: ", why)));
    if (!*alive) return;
  }
  ReportTrouble(Failure(Code::kUnavailable, why).message);
}

void SimEtcdClient::ReportTrouble(const std::string& why) {
  const auto alive = alive_;
  std::vector<uint64_t> all;
  for (const auto& [id, watch] : watches_) all.push_back(id);
  for (const uint64_t id : all) {
    const auto watch = watches_.find(id);
    if (watch == watches_.end()) continue;
    watch->second.watcher->OnTrouble(why);
    if (!*alive) return;
  }
}

// ----------------------------------------------------------------------------------------------
// what is received

void SimEtcdClient::Read() {
  const auto alive = alive_;
  const std::shared_ptr<Socket> socket = socket_;
  const std::string bytes = std::exchange(socket->inbox, {});
  socket->Consumed(bytes.size());
  arrived_ += bytes;
  received_at_ = process_.Now();
  for (EtcdReply& reply : cluster_.replies_.Collect(arrived_)) {
    OnReply(std::move(reply));
    if (!*alive || socket_ != socket) return;
  }
  if (socket->ended) Lose(socket->orderly ? "it was closed" : "connection reset by peer");
}

void SimEtcdClient::OnReply(EtcdReply reply) {
  if (std::holds_alternative<EtcdReply::Pong>(reply.what)) return;
  if (const auto* changes = std::get_if<EtcdReply::Changes>(&reply.what))
    return OnChanges(reply.id, *changes);
  const auto watch = watches_.find(reply.id);
  if (const auto* watching = std::get_if<EtcdReply::Watching>(&reply.what)) {
    if (watch == watches_.end()) return;
    if (watch->second.next == 0) watch->second.next = watching->revision + 1;
    if (watch->second.next <= watching->revision + 1) return;
    EtcdWatcher* watcher = watch->second.watcher;
    const int64_t next = watch->second.next;
    watches_.erase(watch);
    return watcher->OnEnd(Failure(Code::kNotFound, Concat("it is at revision ", watching->revision,
                                                          ", a watch was at ", next)));
  }
  if (const auto* ended = std::get_if<EtcdReply::WatchEnded>(&reply.what)) {
    if (watch == watches_.end()) return;
    EtcdWatcher* watcher = watch->second.watcher;
    watches_.erase(watch);
    return watcher->OnEnd(ended->why);
  }
  if (const auto* error = std::get_if<Error>(&reply.what)) {
    const auto call = calls_.find(reply.id);
    const auto* keep = call == calls_.end()
                           ? nullptr
                           : std::get_if<EtcdRequest::KeepAlive>(&call->second.request.what);
    if (keep != nullptr && error->code == Code::kNotFound && cluster_.on_lease_lost)
      cluster_.on_lease_lost(process_, keep->lease);
    return Finish(reply.id, *error);
  }
  Finish(reply.id, std::move(reply.what));
}

void SimEtcdClient::OnChanges(uint64_t id, const std::vector<EtcdChange>& changes) {
  const auto watch = watches_.find(id);
  if (watch == watches_.end()) return;
  watch->second.next = changes.back().pair.changed + 1;
  // The bug: some changes are never sent. Losing changes while the connection is broken would not
  // show: a watcher reads again then.
  if (Planted(Bug::kLostWatchEvent) && prng_.Below(8) == 0) return;
  watch->second.watcher->OnChanges(changes);
}

}  // namespace muster::sim
