// A node in etcd receives its leader's notices, and notices an etcd that has older data.
#include <algorithm>
#include <utility>

#include "base/planted.h"
#include "base/probe.h"
#include "base/text.h"
#include "etcd/link.h"

namespace muster {

namespace {

using Stage = Push::Kind;

constexpr Duration kPatience = 5s;
constexpr Duration kFirstPause = 20ms;
constexpr Duration kLongestPause = 1s;

// Whether `now` contradicts `before`, an earlier notice of the same session: a later place is of a
// later round, and answers a later request.
bool IsUndone(const wire::EtcdNotice& before, const wire::EtcdNotice& now) {
  if (before.round < 0 || before.plan == now.plan) return false;
  const bool was_answered = before.stage == Stage::kComplete || before.stage == Stage::kLeft ||
                            before.stage == Stage::kTimedOut || before.stage == Stage::kRefused;
  return now.round <= before.round || (was_answered && now.serial <= before.serial);
}

}  // namespace

void EtcdLink::KeyWatch::Begin(const std::string& key, int64_t revision) {
  watch_ = link_.etcd_->Watch({.begin = key}, revision, *this);
}

void EtcdLink::KeyWatch::OnChanges(const std::vector<EtcdChange>& changes) {
  if (link_.IsOver()) {
    MUSTER_ETCD_PROBE("a node received a change after its lease had ended");
    return;
  }
  for (const EtcdChange& change : changes) {
    if (!watch_) return;  // a change before this one has ended the watch
    link_.NoteRevision(change.pair.changed);
    (link_.*change_)(change);
  }
}

void EtcdLink::KeyWatch::OnEnd(const Error& why) {
  watch_.reset();
  if (why.code == Code::kNotFound) return link_.Refresh();
  link_.Fail(why);
}

// ----------------------------------------------------------------------------------------------
// an etcd that is restored from older data

void EtcdLink::Commit(EtcdTransaction transaction,
                      std::function<void(Result<EtcdAnswer>, const Seen&)> then) {
  etcd_->Commit(
      std::move(transaction), kPatience,
      lifetime_.Guard([this, seen = seen_, then = std::move(then)](Result<EtcdAnswer> answer) {
        if (IsOver()) return;
        // Answers may overtake each other: compare with what was seen before the request.
        if (answer && answer->revision < seen.revision && !Planted(Bug::kRestoreUnnoticed)) {
          return OnRollback(
              Concat("it is at revision ", answer->revision, ", and was at ", seen.revision));
        }
        if (answer) NoteRevision(answer->revision);
        then(std::move(answer), seen);
      }));
}

void EtcdLink::OnRollback(const std::string& what) {
  MUSTER_ETCD_PROBE("a node noticed that etcd had gone back");
  LoseLease(Concat("etcd has older data than before, restored from a backup: ", what));
}

void EtcdLink::OnWatchTrouble(const std::string& why) {
  doubted_ = true;
  OnTrouble(why);
  if (!verifying_ && !verify_) Verify();
}

// Revisions alone do not show it: others may have written more revisions than were lost.
bool EtcdLink::HasRolledBack(const EtcdAnswer& answer, const Seen& seen) {
  if (Planted(Bug::kRestoreUnnoticed)) return false;
  const auto& record = answer.results[0].pairs;
  const auto& notice = answer.results[1].pairs;
  if (record.empty() || record.front().created != session_ || record.front().lease != lease_) {
    LoseLease("its record is gone");
  } else if (record.front().changed < seen.written_at) {
    OnRollback("its record is an older one");
  } else if (seen.notice_at > 0 && notice.empty()) {
    OnRollback("its notice is gone");
  } else if (!notice.empty() && notice.front().changed < seen.notice_at) {
    OnRollback("its notice is an older one");
  } else if (!notice.empty() && notice.front().changed == seen_.notice_at &&
             notice.front().value != notice_) {
    OnRollback("its notice is another one");
  } else {
    return false;
  }
  return true;
}

void EtcdLink::Look(std::function<void(Result<EtcdAnswer>, const Seen&)> then) {
  Commit({.then = {EtcdGet(my_key_), EtcdGet(keys_.Notice(options_.hello.node)),
                   EtcdGet(keys_.Leader())}},
         std::move(then));
}

void EtcdLink::Update(const EtcdAnswer& looked) {
  const auto& leader = looked.results[2].pairs;
  OnLeaderKey(
      leader.empty()
          ? EtcdChange{.deleted = true, .pair = {.key = keys_.Leader(), .changed = looked.revision}}
          : EtcdChange{.pair = leader.front()});
  if (step_ != Step::kOpen) return;
  const auto& notice = looked.results[1].pairs;
  if (!notice.empty()) OnNotice({.pair = notice.front()});
}

void EtcdLink::Verify() {
  verifying_ = true;
  doubted_ = false;
  Look([this](Result<EtcdAnswer> answer, const Seen& seen) {
    verifying_ = false;
    const bool hopeless = !answer && answer.error().code == Code::kInvalid;
    if (hopeless && join_) return Fail(answer.error());
    if (answer && HasRolledBack(*answer, seen)) return;
    if (answer && !doubted_) return Update(*answer);
    // Out of reach, or the connection was lost once more.
    const Duration pause = hopeless ? kLongestPause : kFirstPause;
    verify_ = loop_.Every(pause + Duration(prng_.Below(100'000'000)), [this] {
      verify_.reset();
      Verify();
    });
  });
}

// ----------------------------------------------------------------------------------------------
// the leader's notices

// etcd has compacted the changes since the last one. The present state is enough.
void EtcdLink::Refresh() {
  MUSTER_ETCD_PROBE("a node had to read its notice again");
  notice_watch_.End();
  leader_watch_.End();
  Look([this](Result<EtcdAnswer> answer, const Seen& seen) {
    if (!answer && answer.error().code == Code::kInvalid) return Fail(answer.error());
    if (!answer) {
      OnTrouble(answer.error().message);
      retry_ = loop_.Every(kFirstPause + Duration(prng_.Below(100'000'000)), [this] {
        retry_.reset();
        Refresh();
      });
      return;
    }
    if (HasRolledBack(*answer, seen)) return;
    notice_watch_.Begin(keys_.Notice(options_.hello.node), answer->revision + 1);
    leader_watch_.Begin(keys_.Leader(), answer->revision + 1);
    Update(*answer);
  });
}

void EtcdLink::OnNotice(const EtcdChange& change) {
  if (change.deleted) return;
  bytes_ += change.pair.value.size();
  ++messages_;
  const auto notice = wire::ReadEtcdNotice(change.pair.key, change.pair.value);
  if (!notice) return Fail(notice.error());
  // In a restored etcd an earlier node of our name may have our session number.
  const bool is_ours =
      notice->session == session_ && (notice->lease == lease_ || notice->lease == 0);
  // The watch may report a notice that Look() has found already.
  if (!is_ours || change.pair.changed <= seen_.notice_at) return;
  seen_.notice_at = change.pair.changed;
  notice_ = change.pair.value;
  if (IsUndone(received_, *notice) && !Planted(Bug::kRestoreUnnoticed))
    return OnRollback("its place is not the one that it was given");
  OnNews(*notice);
}

void EtcdLink::OnNews(const wire::EtcdNotice& notice) {
  Recovered();
  const wire::EtcdNotice before = std::exchange(received_, notice);
  if (notice.stage != Stage::kRefused && std::exchange(refused_since_, std::nullopt)) Opened();
  OnPlace(before);
  const bool is_new = notice.serial != before.serial || notice.stage != before.stage ||
                      notice.stage_round != before.stage_round || notice.count != before.count;
  if (is_new && notice.serial == serial_) OnStage();
  if (step_ != Step::kOpen) return;
  if (!received_.closed || before.closed) return;
  join_.reset();
  close_.reset();  // done; the next run of this name must not be closed
  owner_.OnPush({.kind = Push::Kind::kClosed,
                 .round = received_.stage_round,
                 .graceful = received_.graceful,
                 .who = received_.closed_by});
}

void EtcdLink::OnPlace(const wire::EtcdNotice& before) {
  const wire::EtcdNotice& now = received_;
  if (now.round < 0) return;
  const bool is_old = now.round <= round_;
  if (is_old && join_)
    MUSTER_ETCD_PROBE("a node that requests the next round received its last place");
  if (!is_old || (Planted(Bug::kAssignmentOfOldRound) && join_)) {
    round_ = now.round;
    if (!join_) {
      MUSTER_ETCD_PROBE("a place in etcd came too late, and was released");
      return Request(wire::EtcdMember::Request::kLeave);
    }
    // It answers a join that was abandoned since. For the leader we are a member of that round, and
    // enter the next one only from there.
    if (now.serial != serial_ && !Planted(Bug::kAssignmentOfOldRound)) {
      MUSTER_ETCD_PROBE("a place in etcd came too late, and the next one is requested");
      return Request(wire::EtcdMember::Request::kJoin);
    }
    join_.reset();
    request_ = wire::EtcdMember::Request::kNone;  // a record that is written again must not repeat
                                                  // the join
    owner_.OnPush({.kind = Push::Kind::kComplete,
                   .round = now.round,
                   .rank = now.rank,
                   .world_size = now.world_size,
                   .count = now.world_size,
                   .token = static_cast<uint64_t>(now.run_lease),
                   .addr = now.addr,
                   .port = now.port,
                   .who = now.plan});
  }
  const bool same = before.round == now.round;
  if (now.lost > (same ? before.lost : 0)) {
    owner_.OnPush({.kind = Push::Kind::kLost,
                   .round = now.round,
                   .count = now.lost - (same ? before.lost : 0),
                   .who = now.lost_who,
                   .why = now.lost_why});
  }
  if (now.waiting != (same ? before.waiting : 0)) {
    owner_.OnPush({.kind = Push::Kind::kNodesWaiting, .round = now.round, .count = now.waiting});
  }
}

void EtcdLink::OnStage() {
  const wire::EtcdNotice& now = received_;
  Push push{.kind = now.stage, .round = now.stage_round, .count = now.count, .why = now.why};
  switch (now.stage) {
    case Stage::kAdmitted:
    case Stage::kWaiting:
      if (join_ && join_->until == Instant::Never()) join_->until = loop_.Now() + join_->timeout;
      break;
    case Stage::kSpare:
      if (join_) join_->until = Instant::Never();  // a spare waits without limit
      break;
    case Stage::kTimedOut:
      join_.reset();
      break;
    case Stage::kLeft:
      break;
    case Stage::kRefused:
      if (now.refusal != Push::Refusal::kPast) return Refused();
      push.refusal = now.refusal;
      break;
    default:  // kOpened; kComplete, which OnPlace() has reported
      return;
  }
  owner_.OnPush(push);
}

// The nodes that conflict with this one may be dead, with leases that have not ended yet: try again
// until then, unless the leader is one of them.
void EtcdLink::Refused() {
  const Instant now = loop_.Now();
  if (!refused_since_) refused_since_ = now;
  const wire::EtcdNotice refusal = received_;
  if (!refusal.is_final && now - *refused_since_ < ttl_ + 2s) return LoseLease(refusal.why);
  Stop();
  owner_.OnPush({.kind = Push::Kind::kRefused, .refusal = refusal.refusal, .why = refusal.why});
}

void EtcdLink::OnTrouble(const std::string& why) {
  troubled_ = true;
  owner_.OnTrouble(why);
}

void EtcdLink::Recovered() {
  if (!std::exchange(troubled_, false)) return;
  owner_.OnPush({.kind = Push::Kind::kOpened, .resumed = true, .addr = options_.hello.node.addr});
}

}  // namespace muster
