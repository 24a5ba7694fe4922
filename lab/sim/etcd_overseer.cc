#include "sim/etcd_overseer.h"

#include <algorithm>
#include <utility>

#include "base/text.h"

namespace muster::sim {

EtcdOverseer::EtcdOverseer(const SimEtcd& etcd, Checkers& checkers, std::string_view prefix,
                           std::string_view run_id, std::function<void(const std::string&)> say)
    : etcd_(etcd), checkers_(checkers), keys_(prefix, run_id), say_(std::move(say)) {}

void EtcdOverseer::OnChange(const SimProcess* by, int64_t revision) {
  // Changes of one revision are judged by the leader before it.
  const EtcdRange all{.begin = "", .end = std::string(1, '\0')};
  const std::vector<EtcdChange> changes = etcd_.state().ChangesFrom(all, revision);
  for (const EtcdChange& change : changes) {
    if (change.pair.changed != revision) continue;
    say_(Concat("revision ", revision, by == nullptr ? ", a lease has expired: " : ": ",
                change.deleted ? "-" : "", change.pair.key, " ", change.pair.value));
    SeeWriter(by, change);
  }
  for (const EtcdChange& change : changes) {
    if (change.pair.changed != revision) continue;
    const std::string& key = change.pair.key;
    if (key == keys_.Leader()) {
      leader_ = change.deleted ? nullptr : by;
      say_(change.deleted ? "no node leads" : Concat("led by ", change.pair.value));
    }
    if (key == keys_.Run()) SeeRun(change);
    if (IsMember(key)) SeeMember(by, change);
  }
}

// Members write under their own names, and workers into the store; all other keys are the leader's.
// Keys that end with a lease have no writer.
void EtcdOverseer::SeeWriter(const SimProcess* by, const EtcdChange& change) {
  const std::string& key = change.pair.key;
  if (by == nullptr || by == leader_ || !key.starts_with(keys_.root())) return;
  if (key == keys_.Leader() || IsMember(key) || key.starts_with(keys_.Store())) return;
  checkers_.Violate(Concat(by->network().address(by->host()), " writes ", key,
                           " and does not lead: ", change.deleted ? "deleted" : change.pair.value));
}

void EtcdOverseer::SeeMember(const SimProcess* by, const EtcdChange& change) {
  if (!change.deleted) {
    members_[change.pair.key] = {by, change.pair.created};
    sessions_[by] = {change.pair.created, change.pair.lease};
    return;
  }
  const auto member = members_.find(change.pair.key);
  const auto [whose, session] = member->second;
  members_.erase(member);
  CheckSurvivors();
  if (by == nullptr && whose != nullptr && on_expired) on_expired(*whose, session);
}

// Within one life the checkers allow no node to open a closed run.
void EtcdOverseer::CheckSurvivors() {
  if (!closed_at_) return;
  const auto was_there = [&](const auto& each) { return each.second.created < *closed_at_; };
  if (std::ranges::any_of(members_, was_there)) return;
  say_("all nodes that were there when it was closed are gone");
  closed_at_.reset();
  ++epoch_;
}

EtcdOverseer::Session EtcdOverseer::SessionOf(const SimProcess& process) const {
  const auto found = sessions_.find(&process);
  return found == sessions_.end() ? Session{} : found->second;
}

int64_t EtcdOverseer::Round() const {
  const EtcdPair* pair = etcd_.state().Find(keys_.Run());
  const auto run = pair == nullptr ? Result<wire::EtcdRun>(Error{Code::kNotFound, ""})
                                   : wire::Read<wire::EtcdRun>(pair->key, pair->value);
  return run ? run->round : -1;
}

void EtcdOverseer::BackUp() {
  say_(Concat("a backup is made, of revision ", etcd_.state().revision()));
  backups_.push_back({etcd_.state(), leader_, closed_at_, is_closed_, members_});
}

void EtcdOverseer::Restore(SimEtcd& etcd, size_t backup) {
  const Backup& kept = backups_[backup];
  say_(Concat("goes back from revision ", etcd_.state().revision(), " to ", kept.state.revision()));
  etcd.Restore(kept.state);
  leader_ = kept.leader;
  closed_at_ = kept.closed_at;
  is_closed_ = kept.is_closed;
  members_ = kept.members;
  ++epoch_;
}

void EtcdOverseer::SeeRun(const EtcdChange& change) {
  if (change.deleted) {
    say_("the run is forgotten");
    ++epoch_;
    closed_at_.reset();
    is_closed_ = false;
    return;
  }
  say_(Concat("run: ", change.pair.value));
  const Result<wire::EtcdRun> run = wire::Read<wire::EtcdRun>(change.pair.key, change.pair.value);
  if (!run) return checkers_.Violate(Concat("the run: ", run.error().message));
  const bool was_closed = std::exchange(is_closed_, run->closed);
  // It may be closed again: the node that closed it may come back when all others are gone.
  if (is_closed_ && (!was_closed || !closed_at_)) {
    was_closed_ = true;
    closed_at_ = change.pair.changed;
    CheckSurvivors();
  }
  if (const auto state = StateOf(*run)) checkers_.SeeState(epoch_, *state);
}

std::optional<RendezvousState> EtcdOverseer::StateOf(const wire::EtcdRun& run) {
  RendezvousState state{.closed = run.closed, .closed_by = run.closed_by};
  // Without a plan, a leader keeps only the number of a round that a restored etcd no longer knows.
  if (run.plan.empty()) return state;
  state.round = run.round;
  state.complete = true;
  state.completion = {run.round, run.world_size};
  for (size_t part = 0; part < static_cast<size_t>(run.parts); ++part) {
    const EtcdPair* pair = etcd_.state().Find(keys_.Plan(run.plan, part));
    const auto seats =
        pair == nullptr
            ? Result<std::vector<wire::EtcdPlace>>(Error{Code::kNotFound, "it is not there"})
            : wire::ReadPlan(pair->key, pair->value);
    if (!seats) {
      checkers_.Violate(
          Concat("round ", run.round, ", part ", part, " of its plan: ", seats.error().message));
      return std::nullopt;
    }
    for (const wire::EtcdPlace& seat : *seats) {
      if (!state.participants.emplace(seat.node, seat.rank).second)
        checkers_.Violate(Concat(seat.node.ToString(), " twice in round ", run.round));
    }
  }
  return state;
}

}  // namespace muster::sim
