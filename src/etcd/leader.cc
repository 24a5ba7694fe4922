#include "etcd/leader.h"

#include <algorithm>
#include <utility>

#include "base/assert.h"
#include "base/planted.h"
#include "base/prng.h"
#include "base/probe.h"
#include "base/text.h"

namespace muster {

namespace {

using Stage = wire::EtcdNotice::Stage;
using Wish = wire::EtcdMember::Wish;

constexpr Duration kPatience = 5s;
constexpr Duration kFirstPause = 20ms;
constexpr Duration kLongestPause = 1s;
constexpr Duration kStatusPause = 500ms;

// What Read() asks for, in this order.
enum Found : size_t { kRun, kPlans, kMembers, kNotices, kTurn };

EtcdOperation Get(EtcdRange range) {
  return {.kind = EtcdOperation::Kind::kGet, .range = std::move(range)};
}

// The member has been answered, for good: it does not wish for that any more.
bool IsAnswered(const wire::EtcdNotice& notice, const wire::EtcdMember& record) {
  return notice.said == record.said &&
         (notice.closed || notice.stage == Stage::kTimedOut || notice.stage == Stage::kLeft ||
          notice.stage == Stage::kRefused);
}

// It knows that it is out of that round: it left, or wanted another one in vain.
bool HasLeft(const std::optional<wire::EtcdNotice>& notice, int64_t round) {
  return notice && notice->round == round &&
         (notice->stage == Stage::kLeft || notice->stage == Stage::kTimedOut);
}

}  // namespace

EtcdLeader::EtcdLeader(Etcd& etcd, Loop& loop, EtcdLeaderOptions options, Owner& owner)
    : etcd_(etcd),
      loop_(loop),
      options_(std::move(options)),
      owner_(owner),
      prng_(options_.seed),
      backoff_(kFirstPause, kLongestPause, prng_.Next()) {}

EtcdLeader::~EtcdLeader() = default;

void EtcdLeader::Start() { Read(); }

// ----------------------------------------------------------------------------------------------
// taking over

void EtcdLeader::TryAgain(const Error& why, std::function<void()> what) {
  retry_ = loop_.Every(backoff_.Next(), [this, what = std::move(what)] {
    const auto again = what;
    retry_.reset();
    again();
  });
  owner_.OnLeaderTrouble(why.message);
}

// Everything, as of one moment in which we lead.
void EtcdLeader::Read() {
  lifetime_.Renew();
  watch_.reset();
  retry_.reset();
  keeper_.reset();
  outbox_.reset();
  coordinator_.reset();
  due_.reset();
  seats_.clear();
  by_key_.clear();
  leftovers_.clear();
  status_.clear();
  etcd_.Commit({.conditions = fence_.Conditions(),
                .then = {Get({.begin = keys_.Run()}), Get(EtcdPrefix(keys_.Plans())),
                         Get(EtcdPrefix(keys_.Members())), Get(EtcdPrefix(keys_.Notices())),
                         Get({.begin = keys_.Turn()})}},
               kPatience,
               lifetime_.Guard([this](Result<EtcdAnswer> answer) { OnRead(std::move(answer)); }));
}

void EtcdLeader::OnRead(Result<EtcdAnswer> answer) {
  if (!answer && answer.error().code == Code::kInvalid) return owner_.OnBroken(answer.error());
  if (!answer) return TryAgain(answer.error(), [this] { Read(); });
  if (!answer->held) return owner_.OnDeposed();
  read_ = std::move(*answer);
  const auto& found = read_->results[kRun].pairs;
  // Whoever has deleted the record: no round is counted twice.
  record_ = {.settings = record_.settings, .round = record_.round};
  is_recorded_ = !found.empty() || record_.round >= 0;
  if (!found.empty()) {
    auto record = wire::ReadEtcdRun(keys_.Run(), found.front().value);
    if (!record) return owner_.OnBroken(record.error());
    record_ = std::move(*record);
    run_lease_ = found.front().lease;
  }
  KeepRun();
}

// What belongs to the run goes when nobody has led it for a while.
void EtcdLeader::KeepRun() {
  const auto kept = [this](Duration ttl) {
    keeper_ = loop_.Every(ttl / 3, [this] {
      etcd_.KeepAlive(run_lease_, kPatience, lifetime_.Guard([this](Result<Duration> left) {
        if (!left && left.error().code == Code::kNotFound) LoseRun();
      }));
    });
    if (!coordinator_) Begin();
  };
  if (run_lease_ != 0) {
    etcd_.KeepAlive(run_lease_, kPatience, lifetime_.Guard([this, kept](Result<Duration> left) {
      if (left) return kept(*left);
      if (left.error().code != Code::kNotFound) return TryAgain(left.error(), [this] { Read(); });
      LoseRun();
    }));
    return;
  }
  etcd_.Grant(options_.run_kept, kPatience, lifetime_.Guard([this, kept](Result<EtcdLease> lease) {
    if (!lease) return TryAgain(lease.error(), [this] { Read(); });
    run_lease_ = lease->id;
    kept(lease->ttl);
  }));
}

// Somebody has revoked it, and with it all that was written.
void EtcdLeader::LoseRun() {
  run_lease_ = 0;
  Read();
}

// Closed by nodes that are all gone: it was for them. Whoever comes now begins anew.
bool EtcdLeader::IsStale() const {
  if (!record_.closed) return false;
  const int64_t closed_at = read_->results[kRun].pairs.front().changed;
  return std::ranges::none_of(read_->results[kMembers].pairs,
                              [&](const EtcdPair& member) { return member.created < closed_at; });
}

Result<std::vector<wire::EtcdSeat>> EtcdLeader::LastRound() const {
  std::vector<wire::EtcdSeat> seats;
  int64_t parts = 0;
  const std::string prefix = Concat(keys_.Plans(), record_.plan, "/");
  for (const EtcdPair& pair : read_->results[kPlans].pairs) {
    if (!pair.key.starts_with(prefix)) continue;
    MUSTER_TRY(auto more, wire::ReadPlan(pair.key, pair.value));
    seats.insert(seats.end(), more.begin(), more.end());
    ++parts;
  }
  std::set<Node> nodes;
  std::set<int64_t> sessions;
  std::set<int64_t> ranks;
  for (const wire::EtcdSeat& seat : seats) {
    const auto member = seats_.find(seat.session);
    const bool is_another = member != seats_.end() && member->second.record.hello.node != seat.node;
    const bool is_new = nodes.insert(seat.node).second && sessions.insert(seat.session).second &&
                        ranks.insert(seat.rank).second;
    if (!is_new || is_another || seat.rank < 0 || seat.rank >= record_.world_size) {
      return Error{Code::kProtocol,
                   Concat(prefix, ": node '", seat.node.ToString(), "' as rank ", seat.rank, " of ",
                          record_.world_size, " cannot be, or not twice")};
    }
  }
  if (parts != record_.parts) {
    return Error{Code::kProtocol, Concat(prefix, ": ", parts, " parts of the plan of round ",
                                         record_.round, " are there, of ", record_.parts)};
  }
  return seats;
}

Status EtcdLeader::AdoptRun(Instant now, Pushes& out) {
  const bool stale = IsStale();
  if (stale) MUSTER_ETCD_PROBE("a run began anew after an earlier one of its name was closed");
  ResumedRun adopted{.id = options_.run_id,
                     .settings = record_.settings,
                     .settings_of = record_.settings_of,
                     .round = record_.round,
                     .world_size = record_.world_size,
                     .first_addr = record_.addr,
                     .first_port = record_.port,
                     .closed = record_.closed && !stale,
                     .closed_by = stale ? "" : record_.closed_by};
  if (stale) record_.closed = false, record_.closed_by.clear();
  MUSTER_TRY(const auto seats, LastRound());
  for (const wire::EtcdSeat& seat : seats) {
    ResumedRun::Member member{.node = seat.node, .rank = seat.rank};
    const auto found = seats_.find(seat.session);
    if (found != seats_.end() && HasLeft(found->second.written, record_.round)) {
      MUSTER_ETCD_PROBE("a leader found a node that had left the round, and lived");
      continue;
    }
    if (found != seats_.end()) {
      member.session = SessionId{static_cast<uint64_t>(seat.session)};
      member.label = found->second.record.hello.label;
      member.bootstrap_port = found->second.record.hello.bootstrap_port;
    } else {
      // Who had left, or wanted the next round, has not been lost by this one.
      const auto& notices = read_->results[kNotices].pairs;
      const std::string key = keys_.Notice(seat.node);
      const auto notice = std::ranges::find(notices, key, &EtcdPair::key);
      if (notice != notices.end()) {
        const auto told = wire::ReadEtcdNotice(key, notice->value);
        const bool had_left = told && told->session == seat.session &&
                              told->round == record_.round && told->stage != Stage::kComplete;
        if (had_left) continue;
      }
    }
    adopted.members.push_back(std::move(member));
  }
  coordinator_->ResumeRun(adopted, now, out);
  return Ok();
}

// A member as the last leader has left it.
void EtcdLeader::TakeUp(Seat& seat, Instant now, Pushes& out) {
  const wire::EtcdMember& record = seat.record;
  const bool adopted = seat.key.token != 0;
  if (!adopted) OpenSession(seat, now, out);
  // Its wish was granted: the round that it has, or is about to hear of.
  const bool granted = adopted && record.wish == Wish::kJoin && record.hello.round < record_.round;
  const bool answered = seat.written && IsAnswered(*seat.written, record);
  if (granted || answered) seat.heeded = seat.notice.said = record.said;
  Heed(seat, now, out);
}

void EtcdLeader::Begin() {
  const Instant now = loop_.Now();
  std::function<uint64_t()> entropy = options_.entropy;
  if (!entropy) entropy = [prng = Prng(options_.seed)]() mutable { return prng.Next(); };
  coordinator_.emplace(CoordinatorOptions{.entropy = entropy, .judges_silence = false});
  EtcdOutbox::Owner& owner = *this;
  const auto& turn = read_->results[kTurn].pairs;
  outbox_.emplace(etcd_, loop_, fence_,
                  EtcdTurn{.key = keys_.Turn(),
                           .changed = turn.empty() ? 0 : turn.front().changed,
                           .name = Concat(options_.epoch, "-", ++outboxes_),
                           .lease = run_lease_},
                  prng_.Next(), owner);
  for (const EtcdPair& pair : read_->results[kMembers].pairs) Seated(pair);
  for (const EtcdPair& pair : read_->results[kNotices].pairs) {
    const auto notice = wire::ReadEtcdNotice(pair.key, pair.value);
    const auto its = notice ? seats_.find(notice->session) : seats_.end();
    if (its != seats_.end()) {
      its->second.notice = *notice;
      its->second.written = *notice;
    } else {
      leftovers_.insert(pair.key);
    }
  }
  const std::string plan = Concat(keys_.Plans(), record_.plan, "/");
  for (const EtcdPair& pair : read_->results[kPlans].pairs) {
    if (!pair.key.starts_with(plan)) leftovers_.insert(pair.key);  // of a leader that is gone
  }
  Pushes out;
  if (is_recorded_) {
    const Status adopted = AdoptRun(now, out);
    if (!adopted) return owner_.OnBroken(adopted.error());
    for (const Push& push : out) {
      SessionKey& key = seats_.at(static_cast<int64_t>(push.to)).key;
      key.token = push.token;
      key.incarnation = push.incarnation;
    }
    coordinator_->Tick(now, out);  // those who are gone
    if (record_.closed) closed_at_ = read_->results[kRun].pairs.front().changed;
  }
  for (auto& [session, seat] : seats_) TakeUp(seat, now, out);  // who came first is served first
  watch_ = etcd_.Watch(EtcdPrefix(keys_.Members()), read_->revision + 1, *this);
  read_.reset();
  // Who waits was taken up one after the other, and all of them wait: nobody is told of the first
  // alone.
  const Coordinator::Run* run = coordinator_->Find(options_.run_id);
  for (Push& push : out) {
    if (push.kind == Push::Kind::kNodesWaiting)
      push.count = static_cast<int64_t>(run->state.wait_list.size());
  }
  Deliver(out);
}

// ----------------------------------------------------------------------------------------------
// what they are told

void EtcdLeader::Note(Seat& seat, const Push& push) const {
  using Kind = Push::Kind;
  wire::EtcdNotice& notice = seat.notice;
  const auto reach = [&](Stage stage) {
    notice.stage = stage;
    notice.stage_round = push.round;
    notice.count = push.count;
    notice.why = push.why;
    notice.refusal = push.refusal;
  };
  switch (push.kind) {
    case Kind::kOpened:
    case Kind::kEnded:
      return;
    case Kind::kRefused:
      notice.for_good = push.refusal == Push::Refusal::kSettings && IsMember();
      return reach(Stage::kRefused);
    case Kind::kAdmitted:
      return reach(Stage::kAdmitted);
    case Kind::kWaiting:
      return reach(Stage::kWaiting);
    case Kind::kSpare:
      return reach(Stage::kSpare);
    case Kind::kTimedOut:
      return reach(Stage::kTimedOut);
    case Kind::kLeft:
      return reach(Stage::kLeft);
    case Kind::kComplete:
      reach(Stage::kComplete);
      notice.run_lease = run_lease_;
      if (notice.round == push.round) return;  // said again
      notice.round = push.round;
      notice.rank = push.rank;
      notice.world_size = push.world_size;
      notice.addr = push.addr;
      notice.port = push.port;
      notice.lost = 0;
      notice.lost_who = notice.lost_why = "";
      notice.waiting = 0;
      return;
    case Kind::kLost:
      // In all: who was told of some by the last leader is not told of them again.
      notice.lost = std::max(notice.lost, coordinator_->Find(options_.run_id)->losses.count);
      notice.lost_who = push.who;
      notice.lost_why = push.why;
      return;
    case Kind::kNodesWaiting:
      notice.waiting = push.count;
      return;
    case Kind::kClosed:
      notice.closed = true;
      notice.graceful = push.graceful;
      notice.closed_by = push.who;
      return;
  }
}

void EtcdLeader::Deliver(const Pushes& pushes) {
  std::set<Seat*> changed;
  std::vector<wire::EtcdSeat> round;
  const Push* completed = nullptr;
  for (const Push& push : pushes) {
    const auto found = seats_.find(static_cast<int64_t>(push.to));
    if (found == seats_.end()) continue;  // gone since
    Seat& seat = found->second;
    Note(seat, push);
    changed.insert(&seat);
    if (push.kind != Push::Kind::kComplete || push.round <= record_.round) continue;
    completed = &push;
    round.push_back({.node = seat.record.hello.node, .session = found->first, .rank = push.rank});
  }
  const Coordinator::Run* run = coordinator_->Find(options_.run_id);
  if (completed != nullptr && !Planted(Bug::kUncommittedRound)) CommitRound(round, *completed);
  if (run != nullptr && run->state.closed && !record_.closed) {
    closed_at_ = seats_.empty() ? 0 : seats_.rbegin()->first + 1;  // or later
    CommitRun();
  }
  for (Seat* seat : changed) {
    if (seat->notice.round == record_.round) seat->notice.plan = record_.plan;
    WriteNotice(*seat);
  }
  Rearm();
}

// Before anybody hears of it: the next leader must know what was promised.
void EtcdLeader::CommitRound(const std::vector<wire::EtcdSeat>& seats, const Push& any) {
  const std::string before_last = std::exchange(record_.last_plan, record_.plan);
  record_.round = any.round;
  record_.world_size = any.world_size;
  record_.addr = any.addr;
  record_.port = any.port;
  // The number at the end is for an etcd that is restored from older data, and with it revisions
  // that come twice: a plan's name does not, nor do the keys of the round's store.
  record_.plan = Concat(any.round, "-", options_.epoch, "-", outboxes_, "-", prng_.Next());
  const std::vector<std::string> parts = wire::WritePlan(seats);
  record_.parts = static_cast<int64_t>(parts.size());
  outbox_->Seal();
  for (size_t i = 0; i < parts.size(); ++i)
    outbox_->Put(keys_.Plan(record_.plan, i), parts[i], run_lease_);
  CommitRun();
  if (!record_.last_plan.empty())
    outbox_->Delete(EtcdPrefix(Concat(keys_.Plans(), record_.last_plan, "/")));
  for (const std::string& key : std::exchange(leftovers_, {})) outbox_->Delete({.begin = key});
  // Whoever is slow may still look into the store of the last one.
  if (!before_last.empty()) outbox_->Delete(EtcdPrefix(Concat(keys_.Store(), before_last, "/")));
}

void EtcdLeader::CommitRun() {
  const Coordinator::Run& run = *coordinator_->Find(options_.run_id);
  record_.settings = run.settings;
  record_.settings_of = run.settings_of;
  record_.closed = run.state.closed;
  record_.closed_by = run.state.closed_by;
  outbox_->Seal();
  outbox_->Put(keys_.Run(), wire::Write(record_), run_lease_);
  outbox_->Seal();
}

void EtcdLeader::WriteNotice(Seat& seat) {
  if (seat.written == seat.notice) return;
  seat.written = seat.notice;
  const std::string key = keys_.Notice(seat.record.hello.node);
  leftovers_.erase(key);
  outbox_->Put(key, wire::Write(seat.notice), run_lease_);
}

void EtcdLeader::Rearm() {
  const Instant due = coordinator_->NextDue();
  due_.reset();
  if (due != Instant::Never())
    due_ = loop_.Every(std::max<Duration>(due - loop_.Now(), 1ms), [this] { Tick(); });
  if (!status_timer_) {
    status_timer_ = loop_.Every(kStatusPause, [this] {
      status_timer_.reset();
      TellStatus();
    });
  }
}

void EtcdLeader::Tick() {
  Pushes out;
  coordinator_->Tick(loop_.Now(), out);
  Deliver(out);
}

void EtcdLeader::TellStatus() {
  if (!coordinator_) return;
  const auto report = coordinator_->Report(options_.run_id, kNamesInMessage, loop_.Now());
  if (!report) return;
  std::string status = wire::WriteStatus(*report);
  if (status == status_) return;
  status_ = status;
  outbox_->Put(keys_.Status(), std::move(status), run_lease_);
}

void EtcdLeader::OnDeposed() { owner_.OnDeposed(); }

void EtcdLeader::OnOvertaken() { Read(); }

void EtcdLeader::OnWriteFailed(const Error& why) {
  if (why.code == Code::kNotFound) return LoseRun();
  // Not permitted, it seems. Where it was until now, etcd may be full: a round that runs needs
  // nothing from us, and goes on.
  if (why.code == Code::kInvalid && !has_written_) return owner_.OnBroken(why);
  owner_.OnLeaderTrouble(why.message);
}

}  // namespace muster
