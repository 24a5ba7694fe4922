// What a node in etcd is told: by its leader, and by what it finds when it looks anew.
#include <algorithm>
#include <utility>

#include "base/planted.h"
#include "base/probe.h"
#include "base/text.h"
#include "etcd/link.h"

namespace muster {

namespace {

using Stage = wire::EtcdNotice::Stage;

constexpr Duration kPatience = 5s;
constexpr Duration kFirstPause = 20ms;
constexpr Duration kLongestPause = 1s;

EtcdOperation Get(std::string key) {
  return {.kind = EtcdOperation::Kind::kGet, .range = {.begin = std::move(key)}};
}

// Of two notices of one session: a place comes after the last one, and for a wish that was not
// answered before.
bool IsUndone(const wire::EtcdNotice& before, const wire::EtcdNotice& now) {
  if (before.round < 0 || before.plan == now.plan) return false;
  const bool was_answered = before.stage == Stage::kComplete || before.stage == Stage::kLeft ||
                            before.stage == Stage::kTimedOut || before.stage == Stage::kRefused;
  return now.round <= before.round || (was_answered && now.said <= before.said);
}

}  // namespace

void EtcdLink::KeyWatch::Begin(const std::string& key, int64_t revision) {
  watch_ = link_.etcd_->Watch({.begin = key}, revision, *this);
}

void EtcdLink::KeyWatch::OnChanges(const std::vector<EtcdChange>& changes) {
  if (link_.IsOver()) {
    MUSTER_ETCD_PROBE("a node was told something when its lease was over");
    return;
  }
  for (const EtcdChange& change : changes) {
    if (!watch_) return;  // what was heard has ended it
    link_.See(change.pair.changed);
    (link_.*change_)(change);
  }
}

void EtcdLink::KeyWatch::OnEnd(const Error& why) {
  watch_.reset();
  if (why.code == Code::kNotFound) return link_.Refresh();
  link_.Fail(why);
}

// ----------------------------------------------------------------------------------------------
// whether etcd has gone back

void EtcdLink::Commit(EtcdTransaction transaction,
                      std::function<void(Result<EtcdAnswer>, const Known&)> then) {
  etcd_->Commit(
      std::move(transaction), kPatience,
      lifetime_.Guard([this, known = known_, then = std::move(then)](Result<EtcdAnswer> answer) {
        if (IsOver()) return;
        // Answers may overtake each other: it is about what was known when we asked.
        if (answer && answer->revision < known.revision && !Planted(Bug::kRestoreUnnoticed)) {
          return GoneBack(
              Concat("it is at revision ", answer->revision, ", and was at ", known.revision));
        }
        if (answer) See(answer->revision);
        then(std::move(answer), known);
      }));
}

void EtcdLink::GoneBack(const std::string& what) {
  MUSTER_ETCD_PROBE("a node noticed that etcd had gone back");
  LoseLease(Concat("etcd has older data than before, restored from a backup: ", what));
}

void EtcdLink::Doubt(const std::string& why) {
  doubted_ = true;
  Troubled(why);
  if (!verifying_ && !verify_) Verify();
}

// Revisions alone do not tell: others may have written since, and more than was lost.
bool EtcdLink::HasGoneBack(const EtcdAnswer& answer, const Known& known) {
  if (Planted(Bug::kRestoreUnnoticed)) return false;
  const auto& record = answer.results[0].pairs;
  const auto& notice = answer.results[1].pairs;
  if (record.empty() || record.front().created != session_ || record.front().lease != lease_) {
    LoseLease("its record is gone");
  } else if (record.front().changed < known.written_at) {
    GoneBack("its record is an older one");
  } else if (known.notice_at > 0 && notice.empty()) {
    GoneBack("what its leader told it is gone");
  } else if (!notice.empty() && notice.front().changed < known.notice_at) {
    GoneBack("what its leader told it is older");
  } else if (!notice.empty() && notice.front().changed == known_.notice_at &&
             notice.front().value != notice_) {
    GoneBack("what its leader told it is something else");
  } else {
    return false;
  }
  return true;
}

void EtcdLink::Look(std::function<void(Result<EtcdAnswer>, const Known&)> then) {
  Commit({.then = {Get(my_key_), Get(keys_.Notice(options_.hello.node)), Get(keys_.Leader())}},
         std::move(then));
}

void EtcdLink::TakeIn(const EtcdAnswer& looked) {
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
  Look([this](Result<EtcdAnswer> answer, const Known& known) {
    verifying_ = false;
    const bool hopeless = !answer && answer.error().code == Code::kInvalid;
    if (hopeless && join_) return Fail(answer.error());
    if (answer && HasGoneBack(*answer, known)) return;
    if (answer && !doubted_) return TakeIn(*answer);
    // Out of reach, or lost once more since.
    const Duration pause = hopeless ? kLongestPause : kFirstPause;
    verify_ = loop_.Every(pause + Duration(prng_.Below(100'000'000)), [this] {
      verify_.reset();
      Verify();
    });
  });
}

// ----------------------------------------------------------------------------------------------
// what we hear

// What happened meanwhile is not known any more: what is now is enough.
void EtcdLink::Refresh() {
  MUSTER_ETCD_PROBE("a node had to look anew at what it was told");
  notice_watch_.End();
  leader_watch_.End();
  Look([this](Result<EtcdAnswer> answer, const Known& known) {
    if (!answer && answer.error().code == Code::kInvalid) return Fail(answer.error());
    if (!answer) {
      Troubled(answer.error().message);
      rest_ = loop_.Every(kFirstPause + Duration(prng_.Below(100'000'000)), [this] {
        rest_.reset();
        Refresh();
      });
      return;
    }
    if (HasGoneBack(*answer, known)) return;
    notice_watch_.Begin(keys_.Notice(options_.hello.node), answer->revision + 1);
    leader_watch_.Begin(keys_.Leader(), answer->revision + 1);
    TakeIn(*answer);
  });
}

void EtcdLink::OnNotice(const EtcdChange& change) {
  if (change.deleted) return;
  bytes_ += change.pair.value.size();
  ++messages_;
  const auto notice = wire::ReadEtcdNotice(change.pair.key, change.pair.value);
  if (!notice) return Fail(notice.error());
  // A restored etcd may have given our session's number to an earlier node of our name.
  const bool is_ours =
      notice->session == session_ && (notice->lease == lease_ || notice->lease == 0);
  // The watch may tell what was found already.
  if (!is_ours || change.pair.changed <= known_.notice_at) return;
  known_.notice_at = change.pair.changed;
  notice_ = change.pair.value;
  if (IsUndone(heard_, *notice) && !Planted(Bug::kRestoreUnnoticed))
    return GoneBack("its place is another one than it was told");
  Hear(*notice);
}

void EtcdLink::Hear(const wire::EtcdNotice& notice) {
  Recovered();
  const wire::EtcdNotice before = std::exchange(heard_, notice);
  if (notice.stage != Stage::kRefused && std::exchange(refused_since_, std::nullopt)) Opened();
  HearPlace(before);
  const bool is_new = notice.said != before.said || notice.stage != before.stage ||
                      notice.stage_round != before.stage_round || notice.count != before.count;
  if (is_new && notice.said == said_) HearStage();
  if (step_ != Step::kOpen) return;
  if (!heard_.closed || before.closed) return;
  join_.reset();
  close_.reset();  // done: the next run of this name is not meant
  owner_.OnPush({.kind = Push::Kind::kClosed,
                 .round = heard_.stage_round,
                 .graceful = heard_.graceful,
                 .who = heard_.closed_by});
}

void EtcdLink::HearPlace(const wire::EtcdNotice& before) {
  const wire::EtcdNotice& now = heard_;
  if (now.round < 0) return;
  const bool is_old = now.round <= round_;
  if (is_old && join_)
    MUSTER_ETCD_PROBE("a node that wants the next round was told of its last place");
  if (!is_old || (Planted(Bug::kAssignmentOfOldRound) && join_)) {
    round_ = now.round;
    if (!join_) {
      MUSTER_ETCD_PROBE("a place in etcd came too late, and was given back");
      return Wish(wire::EtcdMember::Wish::kLeave);
    }
    // It answers a wish that was given up since: the leader takes us for a member of that round,
    // and will let us into the next one only from there.
    if (now.said != said_ && !Planted(Bug::kAssignmentOfOldRound)) {
      MUSTER_ETCD_PROBE("a place in etcd came too late, and the next one is wished for");
      return Wish(wire::EtcdMember::Wish::kJoin);
    }
    join_.reset();
    wish_ = wire::EtcdMember::Wish::kNone;  // a record that is written again must not repeat it
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

void EtcdLink::HearStage() {
  const wire::EtcdNotice& now = heard_;
  Push push{.round = now.stage_round, .count = now.count, .why = now.why};
  switch (now.stage) {
    case Stage::kOpened:
    case Stage::kComplete:
      return;
    case Stage::kAdmitted:
    case Stage::kWaiting:
      push.kind = now.stage == Stage::kAdmitted ? Push::Kind::kAdmitted : Push::Kind::kWaiting;
      if (join_ && join_->until == Instant::Never()) join_->until = loop_.Now() + join_->timeout;
      break;
    case Stage::kSpare:
      push.kind = Push::Kind::kSpare;
      if (join_) join_->until = Instant::Never();  // a spare waits without limit
      break;
    case Stage::kTimedOut:
      push.kind = Push::Kind::kTimedOut;
      join_.reset();
      break;
    case Stage::kLeft:
      push.kind = Push::Kind::kLeft;
      break;
    case Stage::kRefused:
      if (now.refusal != Push::Refusal::kPast) return Refused();
      push.kind = Push::Kind::kRefused;
      push.refusal = now.refusal;
      break;
  }
  owner_.OnPush(push);
}

// Those who are in the way may be dead, and etcd not know it yet; unless one of them says so.
void EtcdLink::Refused() {
  const Instant now = loop_.Now();
  if (!refused_since_) refused_since_ = now;
  const wire::EtcdNotice told = heard_;
  if (!told.for_good && now - *refused_since_ < ttl_ + 2s) return LoseLease(told.why);
  Stop();
  owner_.OnPush({.kind = Push::Kind::kRefused, .refusal = told.refusal, .why = told.why});
}

void EtcdLink::Troubled(const std::string& why) {
  troubled_ = true;
  owner_.OnTrouble(why);
}

void EtcdLink::Recovered() {
  if (!std::exchange(troubled_, false)) return;
  owner_.OnPush({.kind = Push::Kind::kOpened, .resumed = true, .addr = options_.hello.node.addr});
}

}  // namespace muster
