// Whom a leader in etcd sees: records of members that come, change and go.
#include <algorithm>
#include <utility>

#include "base/probe.h"
#include "base/text.h"
#include "etcd/leader.h"

namespace muster {

namespace {

using Wish = wire::EtcdMember::Wish;

constexpr Duration kPatience = 5s;

}  // namespace

EtcdLeader::Seat* EtcdLeader::Seated(const EtcdPair& pair) {
  auto record = wire::ReadEtcdMember(pair.key, pair.value);
  if (record && pair.key != keys_.Member(record->hello.node))
    record = Error{Code::kProtocol, Concat(pair.key, ": the record of another node")};
  if (!record) {
    MUSTER_ETCD_PROBE("somebody else had written where members are");
    owner_.OnLeaderTrouble(Concat("passed over: ", record.error().message));
    return nullptr;
  }
  by_key_[pair.key] = pair.created;
  Seat& seat = seats_[pair.created];
  seat.record = std::move(*record);
  seat.record.hello.run_id = options_.run_id;
  seat.changed = pair.changed;
  seat.key.session = SessionId{static_cast<uint64_t>(pair.created)};
  seat.key.round = seat.record.hello.round;
  seat.notice.session = pair.created;
  seat.notice.lease = pair.lease;
  return &seat;
}

void EtcdLeader::OpenSession(Seat& seat, Instant now, Pushes& out) {
  Pushes opened;
  coordinator_->Open(seat.key.session, seat.record.hello, now, opened);
  for (Push& push : opened) {
    if (push.to == seat.key.session && push.kind == Push::Kind::kOpened) {
      seat.key.token = push.token;
      seat.key.incarnation = push.incarnation;
    }
    out.push_back(std::move(push));
  }
  // That is the answer to whatever it wants.
  if (seat.key.token == 0) seat.notice.said = seat.record.said;
  // It may have been one of those for whom the run was closed, and not have heard it.
  const Coordinator::Run* run = coordinator_->Find(options_.run_id);
  if (seat.key.token != 0 && run->state.closed) {
    out.push_back({.to = seat.key.session,
                   .kind = Push::Kind::kClosed,
                   .round = run->state.round,
                   .who = run->state.closed_by});
  }
}

// Not who only leads because those in whose run it wants to be are dead.
bool EtcdLeader::IsMember() const {
  const auto key = by_key_.find(keys_.Member(options_.node));
  return key != by_key_.end() && seats_.at(key->second).key.token != 0;
}

void EtcdLeader::Heed(Seat& seat, Instant now, Pushes& out) {
  if (seat.key.token == 0) return;  // it was refused, and comes again or not at all
  const wire::EtcdMember& record = seat.record;
  if (record.said != seat.heeded) {
    seat.heeded = seat.notice.said = record.said;
    if (record.wish == Wish::kJoin) coordinator_->Join(seat.key, record.join_timeout, now, out);
    if (record.wish == Wish::kLeave) coordinator_->Leave(seat.key, now, out);
  }
  if (record.closes && !seat.closes) {
    seat.closes = true;
    coordinator_->Close(seat.key, record.close_reason, now, out);
  }
}

void EtcdLeader::Gone(const std::string& key, Instant now, Pushes& out) {
  const auto found = by_key_.find(key);
  if (found == by_key_.end()) return;
  const auto its = seats_.find(found->second);
  const Seat& seat = its->second;
  const std::string notice = keys_.Notice(seat.record.hello.node);
  // The next leader will want to know whether it had left before.
  if (seat.notice.round >= 0 && seat.notice.round == record_.round) {
    leftovers_.insert(notice);
  } else if (seat.written) {
    outbox_->Delete({.begin = notice});
  }
  const SessionId session = seat.key.session;
  seats_.erase(its);
  by_key_.erase(found);
  coordinator_->Disconnect(session, now);
  coordinator_->Tick(now, out);
}

// One by one: a round that one of them completes is written down before the next may change it.
void EtcdLeader::OnChanges(const std::vector<EtcdChange>& changes) {
  Tick();
  for (const EtcdChange& change : changes) OnChange(change);
  const auto was_there = [this](const auto& seat) { return seat.first < closed_at_; };
  if (record_.closed && std::ranges::none_of(seats_, was_there)) Read();  // it is not closed for us
}

void EtcdLeader::OnChange(const EtcdChange& change) {
  const EtcdPair& pair = change.pair;
  const Instant now = loop_.Now();
  Pushes out;
  const auto known = by_key_.find(pair.key);
  const bool is_new = known == by_key_.end() || known->second != pair.created;
  if (change.deleted || is_new) Gone(pair.key, now, out);
  Seat* const seat = change.deleted ? nullptr : Seated(pair);
  if (seat != nullptr && is_new) OpenSession(*seat, now, out);
  if (seat != nullptr) Heed(*seat, now, out);
  Deliver(out);
}

void EtcdLeader::OnTrouble(const std::string& why) {
  owner_.OnLeaderTrouble(why);
  Resync();
}

// After the connection was lost. The watch could go on where it was; but etcd may have been
// restored from older data, in which that revision has not come yet, or is another one.
void EtcdLeader::Resync() {
  watch_.reset();
  retry_.reset();
  etcd_.Commit({.conditions = fence_.Conditions(),
                .then = {{.kind = EtcdOperation::Kind::kGet, .range = EtcdPrefix(keys_.Members())},
                         {.kind = EtcdOperation::Kind::kGet, .range = {.begin = keys_.Turn()}}}},
               kPatience,
               lifetime_.Guard([this](Result<EtcdAnswer> answer) { OnResync(std::move(answer)); }));
}

void EtcdLeader::OnResync(Result<EtcdAnswer> answer) {
  if (!answer && answer.error().code == Code::kInvalid) return owner_.OnBroken(answer.error());
  if (!answer) return TryAgain(answer.error(), [this] { Resync(); });
  if (!answer->held) return owner_.OnDeposed();
  const auto& turn = answer->results[1].pairs;
  if (!outbox_->IsTurn(turn.empty() ? 0 : turn.front().changed)) {
    MUSTER_ETCD_PROBE("a leader found that what it had written is gone");
    return Read();
  }
  const std::vector<EtcdPair>& found = answer->results[0].pairs;
  watch_ = etcd_.Watch(EtcdPrefix(keys_.Members()), answer->revision + 1, *this);
  // Who is gone first: a revision that has come twice may be another node's session now.
  std::vector<EtcdChange> changes;
  for (const auto& [key, session] : by_key_) {
    const auto pair = std::ranges::find(found, key, &EtcdPair::key);
    if (pair == found.end() || pair->created != session)
      changes.push_back({.deleted = true, .pair = {.key = key, .changed = answer->revision}});
  }
  const size_t gone = changes.size();
  for (const EtcdPair& pair : found) {
    const auto seat = seats_.find(pair.created);
    const bool is_known = seat != seats_.end() && by_key_.contains(pair.key) &&
                          by_key_.at(pair.key) == pair.created &&
                          seat->second.changed == pair.changed;
    if (!is_known) changes.push_back({.pair = pair});
  }
  std::ranges::sort(changes.begin() + static_cast<std::ptrdiff_t>(gone), changes.end(), {},
                    [](const EtcdChange& change) { return change.pair.changed; });
  OnChanges(changes);
}

// What happened meanwhile is not known any more: all over again, from what there is.
void EtcdLeader::OnEnd(const Error& why) {
  if (why.code != Code::kNotFound) return owner_.OnBroken(why);
  MUSTER_ETCD_PROBE("a leader had to read everything anew");
  Read();
}

}  // namespace muster
