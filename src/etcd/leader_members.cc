// A leader in etcd follows the members' records, which are created, changed and deleted.
#include <algorithm>
#include <functional>
#include <utility>

#include "base/instrumented.h"
#include "base/text.h"
#include "etcd/leader.h"

namespace muster {

EtcdLeader::Member* EtcdLeader::ReadMember(const EtcdPair& pair) {
  auto record = wire::Read<wire::EtcdMember>(pair.key, pair.value);
  if (record && pair.key != keys_.Member(record->hello.node))
    record = MakeError(Code::kProtocol, pair.key, ": the record of another node");
  if (!record) {
    MUSTER_ETCD_PROBE("a foreign value was found among the members");
    owner_.OnLeaderTrouble(Concat("ignored: ", record.error().message));
    return nullptr;
  }
  by_key_[pair.key] = pair.created;
  Member& member = members_[pair.created];
  member.record = std::move(*record);
  member.record.hello.run_id = options_.hello.run_id;
  member.changed = pair.changed;
  member.key.session = SessionId{static_cast<uint64_t>(pair.created)};
  member.key.round = member.record.hello.round;
  member.notice.session = pair.created;
  member.notice.lease = pair.lease;
  return &member;
}

void EtcdLeader::OpenSession(Member& member, Instant now, Pushes& out) {
  Pushes opened;
  coordinator_->Open(member.key.session, member.record.hello, now, opened);
  for (Push& push : opened) {
    if (push.to == member.key.session && push.kind == Push::Kind::kOpened) {
      member.key.token = push.token;
      member.key.incarnation = push.incarnation;
    }
    out.push_back(std::move(push));
  }
  // Without a session, the refusal answers its request.
  if (member.key.token == 0) member.notice.serial = member.record.serial;
  // The run may have been closed for this node, which may not have received that.
  const Coordinator::Run* run = coordinator_->Find(options_.hello.run_id);
  if (member.key.token != 0 && run->state.closed) {
    out.push_back({.to = member.key.session,
                   .kind = Push::Kind::kClosed,
                   .round = run->state.round,
                   .who = run->state.closed_by});
  }
}

// A node whose settings differ can lead while the dead members' leases run out; it is no member.
bool EtcdLeader::IsMember() const {
  const auto key = by_key_.find(keys_.Member(options_.hello.node));
  return key != by_key_.end() && members_.at(key->second).key.token != 0;
}

void EtcdLeader::OnRequest(Member& member, Instant now, Pushes& out) {
  if (member.key.token == 0) return;  // it was refused, and must register again
  const wire::EtcdMember& record = member.record;
  if (record.serial != member.processed) {
    member.processed = member.notice.serial = record.serial;
    if (record.request == wire::EtcdMember::Request::kJoin)
      coordinator_->Join(member.key, record.join_timeout, now, out);
    if (record.request == wire::EtcdMember::Request::kLeave)
      coordinator_->Leave(member.key, now, out);
  }
  if (record.closes && !member.closes) {
    member.closes = true;
    coordinator_->Close(member.key, record.close_reason, now, out);
  }
}

void EtcdLeader::OnGone(const std::string& key, Instant now, Pushes& out) {
  const auto found = by_key_.find(key);
  if (found == by_key_.end()) return;
  const auto its = members_.find(found->second);
  const Member& member = its->second;
  const std::string notice = keys_.Notice(member.record.hello.node);
  // Kept for the next leader, which must know whether the node had left before.
  if (member.notice.place.round >= 0 && member.notice.place.round == record_.round) {
    leftovers_.insert(notice);
  } else if (!member.written.empty()) {
    outbox_->Delete({.begin = notice});
  }
  const SessionId session = member.key.session;
  members_.erase(its);
  by_key_.erase(found);
  coordinator_->Disconnect(session, now);
  coordinator_->Tick(now, out);
}

// One by one: a round that a change completes is written before the next change can affect it.
void EtcdLeader::OnChanges(const std::vector<EtcdChange>& changes) {
  Tick();
  for (const EtcdChange& change : changes) OnChange(change);
  const auto was_there = [this](const auto& member) { return member.first < closed_at_; };
  if (record_.closed && std::ranges::none_of(members_, was_there))
    Read();  // the run was not closed for this node
}

void EtcdLeader::OnChange(const EtcdChange& change) {
  const EtcdPair& pair = change.pair;
  const Instant now = loop_.Now();
  Pushes out;
  const auto known = by_key_.find(pair.key);
  const bool is_new = known == by_key_.end() || known->second != pair.created;
  if (change.deleted || is_new) OnGone(pair.key, now, out);
  Member* const member = change.deleted ? nullptr : ReadMember(pair);
  if (member != nullptr && is_new) OpenSession(*member, now, out);
  if (member != nullptr) OnRequest(*member, now, out);
  Deliver(out);
}

void EtcdLeader::OnTrouble(const std::string& why) {
  owner_.OnLeaderTrouble(why);
  Resync();
}

// After a lost connection. The watch could continue at its revision, but in an etcd that was
// restored from older data that revision is in the future, or is a different one.
void EtcdLeader::Resync() {
  watch_.reset();
  retry_.reset();
  etcd_.Commit({.conditions = IfLeading(fence_),
                .then = {EtcdGet(EtcdPrefix(keys_.Members())), EtcdGet(keys_.Turn())}},
               kEtcdPatience, lifetime_.Guard(std::bind_front(&EtcdLeader::OnResync, this)));
}

void EtcdLeader::OnResync(Result<EtcdAnswer> answer) {
  if (!answer && answer.error().code == Code::kInvalid) return owner_.OnBroken(answer.error());
  if (!answer) return Retry(answer.error(), [this] { Resync(); });
  if (!answer->held) return owner_.OnDeposed();
  const EtcdPair* const turn = answer->Pair(1);
  if (!outbox_->IsTurn(turn == nullptr ? 0 : turn->changed)) {
    MUSTER_ETCD_PROBE("a leader found that its writes were gone");
    return Read();
  }
  const std::vector<EtcdPair>& found = answer->results[0].pairs;
  watch_ = etcd_.Watch(EtcdPrefix(keys_.Members()), answer->revision + 1, *this);
  // Deletions first: a revision that has come twice may be the session of another node now, or of
  // the same node with another lease.
  std::vector<EtcdChange> changes;
  const auto is_session_of = [this](int64_t session, const EtcdPair& pair) {
    return session == pair.created && members_.at(session).notice.lease == pair.lease;
  };
  for (const auto& [key, session] : by_key_) {
    const auto pair = std::ranges::find(found, key, &EtcdPair::key);
    if (pair == found.end() || !is_session_of(session, *pair))
      changes.push_back({.deleted = true, .pair = {.key = key, .changed = answer->revision}});
  }
  const size_t gone = changes.size();
  for (const EtcdPair& pair : found) {
    const auto known = by_key_.find(pair.key);
    const bool is_known = known != by_key_.end() && is_session_of(known->second, pair) &&
                          members_.at(known->second).changed == pair.changed;
    if (!is_known) changes.push_back({.pair = pair});
  }
  std::ranges::sort(changes.begin() + static_cast<std::ptrdiff_t>(gone), changes.end(), {},
                    [](const EtcdChange& change) { return change.pair.changed; });
  OnChanges(changes);
}

// etcd has compacted the changes since: start again from the present state.
void EtcdLeader::OnEnd(const Error& why) {
  if (why.code != Code::kNotFound) return owner_.OnBroken(why);
  MUSTER_ETCD_PROBE("a leader had to read everything again");
  Read();
}

}  // namespace muster
