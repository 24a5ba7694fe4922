#include "sim/etcd.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/assert.h"
#include "base/instrumented.h"
#include "base/text.h"
#include "sim/etcd_client.h"

namespace muster::sim {

namespace {

constexpr Duration kWork = 1ms;  // at most, for a call without faults
constexpr Duration kSlow = 1s;
constexpr Duration kWatchSlow = 3s;

}  // namespace

SimEtcd::SimEtcd(Network& network, Trace& trace, const EtcdFaults& faults, uint64_t seed)
    : network_(network), trace_(trace), faults_(faults), prng_(seed), state_(prng_.Next()) {}

SimEtcd::~SimEtcd() {
  for (auto& [id, session] : sessions_) session.socket->Close();
}

void SimEtcd::Serve(SimProcess& process) {
  for (auto& [id, session] : sessions_) session.socket->Close();
  sessions_.clear();
  process_ = &process;
  ++lives_;
  electing_until_ = {};
  state_.Promote(process.Now());
  network_.Listen(process, kPort,
                  [this](std::shared_ptr<Socket> socket) { Accept(std::move(socket)); });
  LookAtLeases();
}

EtcdConnector SimEtcd::ConnectorOf(SimProcess& process) {
  return [this, &process](Loop& loop) -> Result<std::shared_ptr<Etcd>> {
    return std::shared_ptr<Etcd>(std::make_shared<SimEtcdClient>(*this, process, loop));
  };
}

Endpoint SimEtcd::endpoint() const { return {network_.address(process_->host()), kPort}; }

WorldTime SimEtcd::now() const { return process_->scheduler().now(); }

bool SimEtcd::is_electing() const { return process_ != nullptr && now() < electing_until_; }

Duration SimEtcd::Draw(Duration most) {
  return Duration(static_cast<int64_t>(prng_.Below(static_cast<uint64_t>(most.count()) + 1)));
}

void SimEtcd::Note(std::string_view what) {
  trace_.Note(now(), static_cast<uint64_t>(state_.revision()), what);
}

// ----------------------------------------------------------------------------------------------
// what goes wrong

void SimEtcd::Elect(Duration time) {
  MUSTER_ASSERT(process_ != nullptr);
  if (!process_->alive()) return;
  Note("election");
  electing_until_ = std::max(electing_until_, now() + time);
  process_->DoAt(electing_until_, [this, election = ++elections_, life = lives_] {
    if (election == elections_ && life == lives_) EndElection();
  });
  std::vector<uint64_t> lost;
  for (const auto& [id, session] : sessions_) {
    if (OneIn(3)) lost.push_back(id);
  }
  for (const uint64_t id : lost) Close(id);
}

void SimEtcd::EndElection() {
  electing_until_ = {};
  state_.Promote(process_->Now());
  Note("elected");
}

void SimEtcd::Close(uint64_t session) {
  const auto found = sessions_.find(session);
  if (found == sessions_.end()) return;
  const std::shared_ptr<Socket> socket = found->second.socket;
  sessions_.erase(found);
  socket->Close();
}

void SimEtcd::Compact(int64_t revision) {
  revision = std::min(revision, state_.revision());
  if (revision <= state_.compacted()) return;
  // Watches that have not sent these changes yet never will.
  std::vector<std::pair<uint64_t, uint64_t>> over;
  for (auto& [id, session] : sessions_) {
    for (auto& [number, watch] : session.watches) {
      const auto first = state_.FirstChangeFrom(watch.range, watch.next);
      if (first && *first < revision) {
        over.emplace_back(id, number);
      } else {
        watch.next = std::max(watch.next, revision);
      }
    }
  }
  state_.Compact(revision);
  Note("compaction");
  for (const auto& [session, id] : over)
    EndWatch(session, id, {Code::kNotFound, Concat("history before ", revision, " is forgotten")});
}

void SimEtcd::Restore(const EtcdState& backup) {
  MUSTER_ASSERT(process_ != nullptr && !process_->alive());
  Note("restore");
  state_.Restore(backup);
  sent_revision_ = state_.revision();
}

void SimEtcd::Meddle(EtcdRequest request) {
  process_->Do([this, request = std::move(request)] {
    static_cast<void>(Perform(request));
    SendToWatches(process_);
  });
}

void SimEtcd::Heal() {
  faults_ = {};
  if (is_electing() && process_->alive()) {
    ++elections_;
    EndElection();
  }
}

SimEtcd::Fate SimEtcd::DrawFate() {
  Fate fate{.before = Draw(kWork), .after = Draw(kWork)};
  if (faults_.slow && OneIn(8)) (OneIn(2) ? fate.before : fate.after) = Draw(kSlow);
  if (faults_.lost && OneIn(12)) (OneIn(2) ? fate.refused : fate.unanswered) = true;
  return fate;
}

// ----------------------------------------------------------------------------------------------
// calls

void SimEtcd::Accept(std::shared_ptr<Socket> socket) {
  const uint64_t id = socket->connection().id;
  socket->on_event = [this, id] { Read(id); };
  sessions_[id] = {.socket = socket, .client = socket->connection().owner(Connection::kClient)};
  Read(id);
}

void SimEtcd::Read(uint64_t id) {
  const auto found = sessions_.find(id);
  if (found == sessions_.end()) return;
  Session& session = found->second;
  const std::string bytes = std::exchange(session.socket->inbox, {});
  session.socket->Consumed(bytes.size());
  session.arrived += bytes;
  const bool ended = session.socket->ended;
  for (EtcdRequest& request : requests_.Collect(session.arrived)) Take(id, std::move(request));
  if (ended) Close(id);
}

void SimEtcd::Take(uint64_t session, EtcdRequest request) {
  const auto found = sessions_.find(session);
  if (found == sessions_.end()) return;
  if (std::holds_alternative<EtcdRequest::Ping>(request.what))
    return Send(session, {.id = request.id, .what = EtcdReply::Pong{}});
  if (const auto* watch = std::get_if<EtcdRequest::Watch>(&request.what))
    return BeginWatch(session, request.id, *watch);
  if (std::holds_alternative<EtcdRequest::Unwatch>(request.what)) {
    found->second.watches.erase(request.id);
    return;
  }
  // Each call has its own delay: one may overtake another.
  const Job job{session, found->second.client, std::move(request), DrawFate()};
  process_->DoAt(now() + job.fate.before, [this, job] { Execute(job); });
}

void SimEtcd::Execute(const Job& job) {
  const EtcdRequest& request = job.request;
  if (is_electing()) return Stall(job);
  if (job.fate.refused)
    return Answer(job.session, Failure(request.id, Code::kUnavailable, "too many requests"),
                  job.fate.after);
  const auto* keep = std::get_if<EtcdRequest::KeepAlive>(&request.what);
  if (keep != nullptr && state_.IsExpired(keep->lease, process_->Now())) {
    // The call is answered when the keys of the lease are gone.
    return process_->DoAt(now() + kLookAtLeases / 4, [this, job] { Execute(job); });
  }
  EtcdReply reply = Perform(request);
  if (job.fate.unanswered) reply = Failure(request.id, Code::kTimeout, "request timed out");
  Answer(job.session, std::move(reply), job.fate.after);
  SendToWatches(job.by);
}

// Some calls wait for the next leader. Others are refused. Of some, the last leader had already
// passed them on, and only the answer is lost.
void SimEtcd::Stall(const Job& job) {
  const EtcdRequest& request = job.request;
  switch (prng_.Below(4)) {
    case 0:
      return Answer(job.session, Failure(request.id, Code::kUnavailable, "no leader"),
                    Draw(electing_until_ - now()));
    case 1:
      if (std::holds_alternative<EtcdRequest::KeepAlive>(request.what)) break;
      static_cast<void>(Perform(request));
      Answer(job.session, Failure(request.id, Code::kTimeout, "the leader was lost"),
             Draw(electing_until_ - now()));
      return SendToWatches(job.by);
    default:
      break;
  }
  process_->DoAt(electing_until_ + job.fate.before, [this, job] { Execute(job); });
}

EtcdReply SimEtcd::Failure(uint64_t id, Code code, std::string_view why) const {
  return {.id = id, .what = Error{code, Concat("etcd at ", endpoint().ToString(), ": ", why)}};
}

EtcdReply SimEtcd::Perform(const EtcdRequest& request) {
  const Instant local = process_->Now();
  const auto reply = [&](auto result) {
    if (!result) return Failure(request.id, result.error().code, result.error().message);
    return EtcdReply{.id = request.id, .what = std::move(*result)};
  };
  if (const auto* transaction = std::get_if<EtcdTransaction>(&request.what))
    return reply(state_.Commit(*transaction));
  if (const auto* grant = std::get_if<EtcdRequest::Grant>(&request.what))
    return {.id = request.id, .what = state_.Grant(grant->ttl, local)};
  if (const auto* keep = std::get_if<EtcdRequest::KeepAlive>(&request.what))
    return reply(state_.KeepAlive(keep->lease, local));
  return reply(state_.Revoke(std::get<EtcdRequest::Revoke>(request.what).lease));
}

void SimEtcd::Answer(uint64_t session, EtcdReply reply, Duration after) {
  process_->DoAt(now() + after, [this, session, reply = std::move(reply)]() mutable {
    Send(session, std::move(reply));
  });
}

void SimEtcd::Send(uint64_t session, EtcdReply reply) {
  const auto found = sessions_.find(session);
  if (found == sessions_.end()) return;
  found->second.socket->Write(replies_.Hand(std::move(reply)));
}

// ----------------------------------------------------------------------------------------------
// watches

void SimEtcd::BeginWatch(uint64_t session, uint64_t id, const EtcdRequest::Watch& ask) {
  const int64_t from = ask.revision > 0 ? ask.revision : state_.revision() + 1;
  if (from < state_.compacted()) {
    MUSTER_ETCD_PROBE("a watch began before what etcd remembers");
    const Error why{Code::kNotFound,
                    Concat("etcd at ", endpoint().ToString(), ": revision ", from,
                           " is forgotten, history begins at ", state_.compacted())};
    return Send(session, {.id = id, .what = EtcdReply::WatchEnded{why}});
  }
  WatchState& watch = sessions_.at(session).watches[id];
  watch = {.range = ask.range, .next = from};
  Send(session, {.id = id, .what = EtcdReply::Watching{state_.revision()}});
  if (state_.FirstChangeFrom(watch.range, from)) SendLater(session, id, watch);
}

void SimEtcd::EndWatch(uint64_t session, uint64_t id, const Error& why) {
  const auto found = sessions_.find(session);
  if (found == sessions_.end() || found->second.watches.erase(id) == 0) return;
  const Error told{why.code, Concat("etcd at ", endpoint().ToString(), ": ", why.message)};
  Send(session, {.id = id, .what = EtcdReply::WatchEnded{told}});
}

void SimEtcd::SendToWatches(const SimProcess* by) {
  if (state_.revision() == sent_revision_) return;
  const int64_t from = std::exchange(sent_revision_, state_.revision()) + 1;
  Note("changed");
  for (auto& [id, session] : sessions_) {
    for (auto& [number, watch] : session.watches) {
      if (!watch.is_due && state_.FirstChangeFrom(watch.range, std::max(from, watch.next)))
        SendLater(id, number, watch);
    }
  }
  for (int64_t each = from; on_change && each <= sent_revision_; ++each) on_change(by, each);
}

void SimEtcd::SendLater(uint64_t session, uint64_t id, WatchState& watch) {
  watch.is_due = true;
  const bool is_late = faults_.watch_delay && OneIn(4);
  process_->DoAt(now() + Draw(is_late ? kWatchSlow : kWork),
                 [this, session, id] { SendToWatch(session, id); });
}

// Everything that has happened meanwhile is sent at once.
void SimEtcd::SendToWatch(uint64_t session, uint64_t id) {
  const auto found = sessions_.find(session);
  if (found == sessions_.end()) return;
  const auto place = found->second.watches.find(id);
  if (place == found->second.watches.end()) return;
  WatchState& watch = place->second;
  watch.is_due = false;
  std::vector<EtcdChange> changes = state_.ChangesFrom(watch.range, watch.next);
  watch.next = std::max(watch.next, state_.revision() + 1);
  if (!changes.empty()) Send(session, {.id = id, .what = std::move(changes)});
}

// ----------------------------------------------------------------------------------------------
// leases

void SimEtcd::LookAtLeases() {
  process_->DoAt(now() + kLookAtLeases, [this, life = lives_] {
    if (life != lives_) return;
    // Only a leader ends leases.
    if (!is_electing()) {
      state_.Expire(process_->Now(), kRevokedAtOnce);
      SendToWatches(nullptr);
    }
    LookAtLeases();
  });
}

}  // namespace muster::sim
