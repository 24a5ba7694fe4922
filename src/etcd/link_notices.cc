// A node in etcd receives its leader's notices, and detects an etcd that has older data.
#include <utility>

#include "base/instrumented.h"
#include "base/text.h"
#include "etcd/link.h"

namespace muster {

namespace {

using Stage = Push::Kind;

// Whether `now` contradicts `before`, an earlier notice of the same session: a later place is of a
// later round, and answers a later request.
bool IsUndone(const wire::EtcdNotice& before, const wire::EtcdNotice& now) {
  if (before.place.round < 0 || before.place.who == now.place.who) return false;
  const Stage stage = before.stage.kind;
  const bool was_answered = stage == Stage::kComplete || stage == Stage::kLeft ||
                            stage == Stage::kTimedOut || stage == Stage::kRefused;
  return now.place.round <= before.place.round || (was_answered && now.serial <= before.serial);
}

}  // namespace

void EtcdLink::Watch(int64_t revision) {
  notice_watch_ = etcd_->Watch({.begin = keys_.Notice(options_.hello.node)}, revision, *this);
  leader_watch_ = etcd_->Watch({.begin = keys_.Leader()}, revision, *this);
}

void EtcdLink::Unwatch() {
  notice_watch_.reset();
  leader_watch_.reset();
}

void EtcdLink::OnChanges(const std::vector<EtcdChange>& changes) {
  if (IsOver()) {
    MUSTER_ETCD_PROBE("a node received a change after its lease had ended");
    return;
  }
  for (const EtcdChange& change : changes) {
    if (!notice_watch_) return;  // a change before this one has ended the watches
    NoteRevision(change.pair.changed);
    if (change.pair.key == keys_.Leader())
      OnLeaderKey(change);
    else
      OnNotice(change);
  }
}

// The connection was lost, and etcd may have been restored from older data. The watches could
// continue at their revision, but that may be a different one now.
void EtcdLink::OnTrouble(const std::string& why) {
  ReportTrouble(why);
  Unwatch();
  // After a pause, because new watches make their first attempt without one.
  Later(retry_, ShortPause(), &EtcdLink::Refresh);
}

// kNotFound: etcd has compacted the changes since the last one. The present state is enough.
void EtcdLink::OnEnd(const Error& why) {
  if (why.code != Code::kNotFound) return Fail(why);
  MUSTER_ETCD_PROBE("a node had to read its notice again");
  Refresh();
}

// ----------------------------------------------------------------------------------------------
// an etcd that is restored from older data

void EtcdLink::Commit(EtcdTransaction transaction,
                      std::function<void(Result<EtcdAnswer>, const Seen&)> then) {
  etcd_->Commit(
      std::move(transaction), kEtcdPatience,
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

bool EtcdLink::IsRecordLost(const EtcdPair* record, const Seen& seen) {
  if (record == nullptr || record->created != session_ || record->lease != lease_) {
    LoseLease("its record is gone");
  } else if (record->changed < seen.written_at) {
    OnRollback("its record is an older one");
  } else {
    return false;
  }
  return true;
}

// Revisions alone do not show it: others may have written more revisions than were lost.
bool EtcdLink::HasRolledBack(const EtcdAnswer& answer, const Seen& seen) {
  if (Planted(Bug::kRestoreUnnoticed)) return false;
  if (IsRecordLost(answer.Pair(0), seen)) return true;
  const EtcdPair* const notice = answer.Pair(1);
  if (seen.notice_at > 0 && notice == nullptr) {
    OnRollback("its notice is gone");
  } else if (notice != nullptr && notice->changed < seen.notice_at) {
    OnRollback("its notice is an older one");
  } else if (notice != nullptr && notice->changed == seen_.notice_at && notice->value != notice_) {
    OnRollback("its notice is another one");
  } else {
    return false;
  }
  return true;
}

void EtcdLink::Refresh() {
  Unwatch();
  Commit({.then = {EtcdGet(my_key_), EtcdGet(keys_.Notice(options_.hello.node)),
                   EtcdGet(keys_.Leader())}},
         [this](Result<EtcdAnswer> answer, const Seen& seen) {
           if (answer) return OnRefreshed(*answer, seen);
           const bool hopeless = answer.error().code == Code::kInvalid;
           if (hopeless && join_) return Fail(answer.error());
           ReportTrouble(answer.error().message);
           Later(retry_, hopeless ? kEtcdLongestPause : ShortPause(), &EtcdLink::Refresh);
         });
}

void EtcdLink::OnRefreshed(const EtcdAnswer& answer, const Seen& seen) {
  if (HasRolledBack(answer, seen)) return;
  Watch(answer.revision + 1);
  const EtcdPair* const leader = answer.Pair(2);
  OnLeaderKey(leader != nullptr
                  ? EtcdChange{.pair = *leader}
                  : EtcdChange{.deleted = true,
                               .pair = {.key = keys_.Leader(), .changed = answer.revision}});
  const EtcdPair* const notice = answer.Pair(1);
  if (step_ == Step::kOpen && notice != nullptr) OnNotice({.pair = *notice});
}

// ----------------------------------------------------------------------------------------------
// the leader's notices

void EtcdLink::OnNotice(const EtcdChange& change) {
  if (change.deleted) return;
  bytes_ += change.pair.value.size();
  ++messages_;
  const auto notice = wire::Read<wire::EtcdNotice>(change.pair.key, change.pair.value);
  if (!notice) return Fail(notice.error());
  // In a restored etcd an earlier node of our name may have our session number.
  const bool is_ours =
      notice->session == session_ && (notice->lease == lease_ || notice->lease == 0);
  // Refresh() may find a notice that the watch has reported already.
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
  const Push& stage = received_.stage;
  if (stage.kind != Stage::kRefused && std::exchange(refused_since_, std::nullopt)) Opened();
  OnPlace(before);
  const bool is_new = notice.serial != before.serial || stage.kind != before.stage.kind ||
                      stage.round != before.stage.round || stage.count != before.stage.count;
  if (is_new && notice.serial == serial_) OnStage();
  if (step_ != Step::kOpen) return;
  if (!received_.closed || before.closed) return;
  join_.reset();
  close_.reset();  // done; the next run of this name must not be closed
  owner_.OnPush(received_.closing);
}

void EtcdLink::OnPlace(const wire::EtcdNotice& before) {
  const Push& place = received_.place;
  if (place.round < 0) return;
  const bool is_old = place.round <= round_;
  if (is_old && join_)
    MUSTER_ETCD_PROBE("a node that requests the next round received its last place");
  if (!is_old || (Planted(Bug::kAssignmentOfOldRound) && join_)) {
    round_ = place.round;
    if (!join_) {
      MUSTER_ETCD_PROBE("a place in etcd came too late, and was released");
      return Request(wire::EtcdMember::Request::kLeave);
    }
    // It answers an abandoned join. For the leader this node is a member of that round, and can
    // enter the next one only from there.
    if (received_.serial != serial_ && !Planted(Bug::kAssignmentOfOldRound)) {
      MUSTER_ETCD_PROBE("a place in etcd came too late, and the next one is requested");
      return Request(wire::EtcdMember::Request::kJoin);
    }
    join_.reset();
    // A record that is written again must not repeat the join.
    request_ = wire::EtcdMember::Request::kNone;
    owner_.OnPush(place);
  }
  const bool same = before.place.round == place.round;
  Push lost = received_.lost;
  lost.count -= same ? before.lost.count : 0;
  if (lost.count > 0) owner_.OnPush(lost);
  if (received_.waiting != (same ? before.waiting : 0)) {
    owner_.OnPush(
        {.kind = Push::Kind::kNodesWaiting, .round = place.round, .count = received_.waiting});
  }
}

void EtcdLink::OnStage() {
  const Push stage = received_.stage;
  switch (stage.kind) {
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
      if (stage.refusal != Push::Refusal::kPast) return Refused();
      break;
    default:  // kOpened; kComplete, which OnPlace() has reported
      return;
  }
  owner_.OnPush(stage);
}

// The nodes that conflict with this one may be dead, with leases that have not ended yet: try again
// until then, unless the leader is one of them.
void EtcdLink::Refused() {
  const Instant now = loop_.Now();
  if (!refused_since_) refused_since_ = now;
  const Push refusal = received_.stage;
  if (!received_.is_final && now - *refused_since_ < ttl_ + 2s) return LoseLease(refusal.why);
  Shutdown([] {});
  owner_.OnPush(refusal);
}

void EtcdLink::ReportTrouble(const std::string& why) {
  troubled_ = true;
  owner_.OnTrouble(why);
}

void EtcdLink::Recovered() {
  if (!std::exchange(troubled_, false)) return;
  owner_.OnPush({.kind = Push::Kind::kOpened, .resumed = true, .addr = options_.hello.node.addr});
}

}  // namespace muster
