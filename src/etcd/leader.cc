#include "etcd/leader.h"

#include <algorithm>
#include <utility>

#include "base/instrumented.h"
#include "base/text.h"

namespace muster {

namespace {

using Stage = Push::Kind;
using Request = wire::EtcdMember::Request;

constexpr Duration kStatusPause = 500ms;

// What Read() reads, in this order.
enum Found : size_t { kRun, kPlans, kMembers, kNotices, kTurn };

// The member's last request has its final answer.
bool IsAnswered(const wire::EtcdNotice& notice, const wire::EtcdMember& record) {
  const Stage stage = notice.stage.kind;
  return notice.serial == record.serial && (notice.closed || stage == Stage::kTimedOut ||
                                            stage == Stage::kLeft || stage == Stage::kRefused);
}

// The member has been notified that it is not in that round any more: it left, or its join for the
// next one timed out.
bool HasLeft(const wire::EtcdNotice& notice, int64_t round) {
  return notice.place.round == round &&
         (notice.stage.kind == Stage::kLeft || notice.stage.kind == Stage::kTimedOut);
}

}  // namespace

EtcdLeader::EtcdLeader(Etcd& etcd, Loop& loop, const EtcdLinkOptions& options, EtcdPair fence,
                       uint64_t seed, Owner& owner)
    : etcd_(etcd),
      loop_(loop),
      options_(options),
      fence_(std::move(fence)),
      seed_(seed),
      owner_(owner),
      prng_(seed_),
      backoff_(kEtcdFirstPause, kEtcdLongestPause, prng_.Next()) {}

// ----------------------------------------------------------------------------------------------
// taking over

void EtcdLeader::Retry(const Error& why, std::function<void()> what) {
  retry_ = loop_.After(backoff_.Next(), std::move(what));
  owner_.OnLeaderTrouble(why.message);
}

// Reads all keys of the run in one transaction, on condition that this node leads.
void EtcdLeader::Read() {
  lifetime_.Renew();
  watch_.reset();
  retry_.reset();
  keeper_.reset();
  outbox_.reset();
  coordinator_.reset();
  due_.reset();
  members_.clear();
  by_key_.clear();
  leftovers_.clear();
  status_.clear();
  etcd_.Commit({.conditions = IfLeading(fence_),
                .then = {EtcdGet(keys_.Run()), EtcdGet(EtcdPrefix(keys_.Plans())),
                         EtcdGet(EtcdPrefix(keys_.Members())), EtcdGet(EtcdPrefix(keys_.Notices())),
                         EtcdGet(keys_.Turn())}},
               kEtcdPatience, lifetime_.Guard(std::bind_front(&EtcdLeader::OnRead, this)));
}

void EtcdLeader::OnRead(Result<EtcdAnswer> answer) {
  if (!answer && answer.error().code == Code::kInvalid) return owner_.OnBroken(answer.error());
  if (!answer) return Retry(answer.error(), [this] { Read(); });
  if (!answer->held) return owner_.OnDeposed();
  read_ = std::move(*answer);
  const EtcdPair* const found = read_->Pair(kRun);
  // If the record was deleted by hand, the numbers of rounds still only grow.
  record_ = {.settings = record_.settings, .round = record_.round};
  is_recorded_ = found != nullptr || record_.round >= 0;
  if (found != nullptr) {
    auto record = wire::Read<wire::EtcdRun>(keys_.Run(), found->value);
    if (!record) return owner_.OnBroken(record.error());
    record_ = std::move(*record);
    run_lease_ = found->lease;
  }
  // The keys of the run are under a lease that each leader keeps alive.
  if (run_lease_ == 0) {
    etcd_.Grant(options_.run_kept, kEtcdPatience, lifetime_.Guard([this](Result<EtcdLease> lease) {
      if (!lease) return Retry(lease.error(), [this] { Read(); });
      run_lease_ = lease->id;
      Begin(lease->ttl);
    }));
    return;
  }
  etcd_.KeepAlive(run_lease_, kEtcdPatience, lifetime_.Guard([this](Result<Duration> left) {
    if (left) return Begin(*left);
    if (left.error().code == Code::kNotFound) return LoseRun();
    Retry(left.error(), [this] { Read(); });
  }));
}

// The run's lease was revoked by hand, which deleted its keys.
void EtcdLeader::LoseRun() {
  run_lease_ = 0;
  Read();
}

// Whether all nodes for which the run was closed are gone. The next node begins a new run.
bool EtcdLeader::IsStale() const {
  if (!record_.closed) return false;
  const int64_t closed_at = read_->Pair(kRun)->changed;
  return std::ranges::none_of(read_->results[kMembers].pairs,
                              [&](const EtcdPair& member) { return member.created < closed_at; });
}

Result<std::vector<wire::EtcdPlace>> EtcdLeader::LastRound() const {
  std::vector<wire::EtcdPlace> places;
  int64_t parts = 0;
  const std::string prefix = keys_.Plan(record_.plan);
  for (const EtcdPair& pair : read_->results[kPlans].pairs) {
    if (!pair.key.starts_with(prefix)) continue;
    MUSTER_TRY(auto more, wire::ReadPlan(pair.key, pair.value));
    places.insert(places.end(), more.begin(), more.end());
    ++parts;
  }
  std::set<Node> nodes;
  std::set<int64_t> sessions;
  std::set<int64_t> ranks;
  for (const wire::EtcdPlace& place : places) {
    const auto member = members_.find(place.session);
    const bool is_another =
        member != members_.end() && member->second.record.hello.node != place.node;
    const bool is_new = nodes.insert(place.node).second && sessions.insert(place.session).second &&
                        ranks.insert(place.rank).second;
    if (!is_new || is_another || place.rank < 0 || place.rank >= record_.world_size) {
      return MakeError(Code::kProtocol, prefix, ": node '", place.node.ToString(), "' as rank ",
                       place.rank, " of ", record_.world_size, " is impossible, or there twice");
    }
  }
  if (parts != record_.parts) {
    return MakeError(Code::kProtocol, prefix, ": ", parts, " parts of the plan of round ",
                     record_.round, " are there, of ", record_.parts);
  }
  return places;
}

Status EtcdLeader::ResumeRun(Instant now, Pushes& out) {
  const bool stale = IsStale();
  if (stale) MUSTER_ETCD_PROBE("a run began after an earlier one of its name was closed");
  ResumedRun resumed{.id = options_.hello.run_id,
                     .settings = record_.settings,
                     .settings_of = record_.settings_of,
                     .round = record_.round,
                     .world_size = record_.world_size,
                     .first_addr = record_.addr,
                     .first_port = record_.port,
                     .closed = record_.closed && !stale,
                     .closed_by = stale ? "" : record_.closed_by};
  if (stale) record_.closed = false, record_.closed_by.clear();
  MUSTER_TRY(const auto places, LastRound());
  for (const wire::EtcdPlace& place : places) {
    ResumedRun::Member member{.hello = {.run_id = options_.hello.run_id, .node = place.node},
                              .rank = place.rank};
    const auto found = members_.find(place.session);
    if (found != members_.end() && HasLeft(found->second.notice, record_.round)) {
      MUSTER_ETCD_PROBE("a leader found a live node that had left the round");
      continue;
    }
    if (found != members_.end()) {
      member.session = SessionId{static_cast<uint64_t>(place.session)};
      member.hello.label = found->second.record.hello.label;
      member.hello.bootstrap_port = found->second.record.hello.bootstrap_port;
      // An earlier leader of an older version did not record all of them.
      resumed.settings.Complete(found->second.record.hello.settings);
    } else {
      // A node that had left, or had requested the next round, does not count as lost in this
      // round.
      const auto& notices = read_->results[kNotices].pairs;
      const std::string key = keys_.Notice(place.node);
      const auto notice = std::ranges::find(notices, key, &EtcdPair::key);
      if (notice != notices.end()) {
        const auto last = wire::Read<wire::EtcdNotice>(key, notice->value);
        const bool had_left = last && last->session == place.session &&
                              last->place.round == record_.round &&
                              last->stage.kind != Stage::kComplete;
        if (had_left) continue;
      }
    }
    resumed.members.push_back(std::move(member));
  }
  coordinator_->ResumeRun(resumed, now, out);
  return Ok();
}

// Continues with a member where the last leader stopped.
void EtcdLeader::ResumeMember(Member& member, Instant now, Pushes& out) {
  const wire::EtcdMember& record = member.record;
  const bool resumed = member.key.token != 0;
  const bool answered = !member.written.empty() && IsAnswered(member.notice, record);
  if (!resumed) OpenSession(member, now, out);
  // The last round has granted its join, whether or not the node has received that.
  const bool granted =
      resumed && record.request == Request::kJoin && record.hello.round < record_.round;
  if (granted || answered) member.processed = member.notice.serial = record.serial;
  OnRequest(member, now, out);
}

void EtcdLeader::Begin(Duration run_ttl) {
  keeper_ = loop_.Every(run_ttl / 3, [this] {
    etcd_.KeepAlive(run_lease_, kEtcdPatience, lifetime_.Guard([this](Result<Duration> left) {
      if (!left && left.error().code == Code::kNotFound) LoseRun();
    }));
  });
  const Instant now = loop_.Now();
  std::function<uint64_t()> entropy = options_.entropy;
  if (!entropy) entropy = [prng = Prng(seed_)]() mutable { return prng.Next(); };
  coordinator_.emplace(CoordinatorOptions{.entropy = entropy, .judges_silence = false});
  const EtcdPair* const turn = read_->Pair(kTurn);
  outbox_.emplace(etcd_, loop_, fence_,
                  EtcdTurn{.key = keys_.Turn(),
                           .changed = turn == nullptr ? 0 : turn->changed,
                           .name = Concat(fence_.created, "-", ++outboxes_),
                           .lease = run_lease_},
                  prng_.Next(), std::bind_front(&EtcdLeader::OnWrite, this));
  for (const EtcdPair& pair : read_->results[kMembers].pairs) ReadMember(pair);
  for (const EtcdPair& pair : read_->results[kNotices].pairs) {
    const auto notice = wire::Read<wire::EtcdNotice>(pair.key, pair.value);
    const auto its = notice ? members_.find(notice->session) : members_.end();
    if (its != members_.end()) {
      its->second.notice = *notice;
      its->second.written = pair.value;
    } else {
      leftovers_.insert(pair.key);
    }
  }
  const std::string plan = keys_.Plan(record_.plan);
  for (const EtcdPair& pair : read_->results[kPlans].pairs) {
    if (!pair.key.starts_with(plan)) leftovers_.insert(pair.key);  // of an earlier leader
  }
  Pushes out;
  if (is_recorded_) {
    const Status resumed = ResumeRun(now, out);
    if (!resumed) return owner_.OnBroken(resumed.error());
    for (const Push& push : out) {
      SessionKey& key = members_.at(static_cast<int64_t>(push.to)).key;
      key.token = push.token;
      key.incarnation = push.incarnation;
    }
    coordinator_->Tick(now, out);  // reports the members that are gone
    if (record_.closed) closed_at_ = read_->Pair(kRun)->changed;
  }
  for (auto& [session, member] : members_) ResumeMember(member, now, out);  // in order of arrival
  watch_ = etcd_.Watch(EtcdPrefix(keys_.Members()), read_->revision + 1, *this);
  read_.reset();
  // The waiting nodes were resumed one after the other. Report their final number only.
  const Coordinator::Run* run = coordinator_->Find(options_.hello.run_id);
  for (Push& push : out) {
    if (push.kind == Push::Kind::kNodesWaiting) push.count = std::ssize(run->state.wait_list);
  }
  Deliver(out);
}

// ----------------------------------------------------------------------------------------------
// notices

void EtcdLeader::UpdateNotice(wire::EtcdNotice& notice, const Push& push, int64_t lost) const {
  using Kind = Push::Kind;
  switch (push.kind) {
    case Kind::kOpened:
    case Kind::kEnded:
      return;
    case Kind::kRefused:
      notice.is_final = push.refusal == Push::Refusal::kSettings && IsMember();
      [[fallthrough]];
    case Kind::kAdmitted:
    case Kind::kWaiting:
    case Kind::kSpare:
    case Kind::kTimedOut:
    case Kind::kLeft:
      notice.stage = push;
      return;
    case Kind::kComplete:
      notice.stage = push;
      if (notice.place.round != push.round) {  // not a repetition
        notice.place = push;
        notice.lost = {.kind = Kind::kLost};
        notice.waiting = 0;
      }
      notice.place.token = static_cast<uint64_t>(run_lease_);
      return;
    case Kind::kLost: {
      // The total number: losses that the last leader reported are not reported again.
      const int64_t before = notice.lost.count;
      notice.lost = push;
      notice.lost.count = std::max(before, lost);
      return;
    }
    case Kind::kNodesWaiting:
      notice.waiting = push.count;
      return;
    case Kind::kClosed:
      notice.closed = true;
      notice.closing = push;
      return;
  }
}

void EtcdLeader::Deliver(const Pushes& pushes) {
  std::set<Member*> changed;
  std::vector<wire::EtcdPlace> round;
  const Push* completed = nullptr;
  const Coordinator::Run* run = coordinator_->Find(options_.hello.run_id);
  for (const Push& push : pushes) {
    const auto found = members_.find(static_cast<int64_t>(push.to));
    if (found == members_.end()) continue;  // removed since then
    Member& member = found->second;
    UpdateNotice(member.notice, push, run == nullptr ? 0 : run->losses.count);
    changed.insert(&member);
    if (push.kind != Push::Kind::kComplete || push.round <= record_.round) continue;
    completed = &push;
    round.push_back({.node = member.record.hello.node, .session = found->first, .rank = push.rank});
  }
  if (completed != nullptr && !Planted(Bug::kUncommittedRound)) CommitRound(round, *completed);
  if (run != nullptr && run->state.closed && !record_.closed) {
    closed_at_ = members_.empty() ? 0 : members_.rbegin()->first + 1;  // or later
    CommitRun();
  }
  for (Member* member : changed) {
    wire::EtcdNotice& notice = member->notice;
    if (notice.place.round == record_.round) notice.place.who = record_.plan;
    WriteNotice(*member);
  }
  ArmTimers();
}

// Written before any notice of the round: the next leader must know which ranks were assigned.
void EtcdLeader::CommitRound(const std::vector<wire::EtcdPlace>& places, const Push& any) {
  const std::string before_last = std::exchange(record_.last_plan, record_.plan);
  record_.round = any.round;
  record_.world_size = any.world_size;
  record_.addr = any.addr;
  record_.port = any.port;
  // In an etcd that is restored from older data, revisions come twice. The random number at the end
  // keeps the names of plans, and with them the stores of rounds, unique.
  record_.plan = Concat(any.round, "-", fence_.created, "-", outboxes_, "-", prng_.Next());
  const std::vector<std::string> parts = wire::WritePlan(places);
  record_.parts = static_cast<int64_t>(parts.size());
  outbox_->Seal();
  for (size_t i = 0; i < parts.size(); ++i)
    outbox_->Put(keys_.Plan(record_.plan, i), parts[i], run_lease_);
  CommitRun();
  if (!record_.last_plan.empty()) outbox_->Delete(EtcdPrefix(keys_.Plan(record_.last_plan)));
  for (const std::string& key : std::exchange(leftovers_, {})) outbox_->Delete({.begin = key});
  // A slow node may still read the store of the last round.
  if (!before_last.empty()) outbox_->Delete(EtcdPrefix(Concat(keys_.Store(), before_last, "/")));
}

void EtcdLeader::CommitRun() {
  const Coordinator::Run& run = *coordinator_->Find(options_.hello.run_id);
  record_.settings = run.settings;
  record_.settings_of = run.settings_of;
  record_.closed = run.state.closed;
  record_.closed_by = run.state.closed_by;
  outbox_->Seal();
  outbox_->Put(keys_.Run(), wire::Write(record_), run_lease_);
  outbox_->Seal();
}

void EtcdLeader::WriteNotice(Member& member) {
  std::string notice = wire::Write(member.notice);
  if (member.written == notice) return;
  member.written = notice;
  const std::string key = keys_.Notice(member.record.hello.node);
  leftovers_.erase(key);
  outbox_->Put(key, std::move(notice), run_lease_);
}

void EtcdLeader::ArmTimers() {
  const Instant due = coordinator_->NextDue();
  due_.reset();
  if (due != Instant::Never())
    due_ = loop_.After(std::max<Duration>(due - loop_.Now(), 1ms), [this] { Tick(); });
  if (!status_timer_) {
    status_timer_ = loop_.After(kStatusPause, [this] {
      status_timer_.reset();
      WriteStatus();
    });
  }
}

void EtcdLeader::Tick() {
  Pushes out;
  coordinator_->Tick(loop_.Now(), out);
  Deliver(out);
}

void EtcdLeader::WriteStatus() {
  if (!coordinator_) return;
  const auto report = coordinator_->Report(options_.hello.run_id, kNamesInMessage, loop_.Now());
  if (!report) return;
  std::string status = wire::Write(*report);
  if (status == status_) return;
  status_ = status;
  outbox_->Put(keys_.Status(), std::move(status), run_lease_);
}

void EtcdLeader::OnWrite(const Status& status) {
  if (status) {
    has_written_ = true;
    return;
  }
  const Error& why = status.error();
  if (why.code == Code::kClosed) return owner_.OnDeposed();
  if (why.code == Code::kConflict) return Read();
  if (why.code == Code::kNotFound) return LoseRun();
  // Probably not permitted. If earlier writes were, etcd may be full: a running round continues
  // without this leader.
  if (why.code == Code::kInvalid && !has_written_) return owner_.OnBroken(why);
  owner_.OnLeaderTrouble(why.message);
}

}  // namespace muster
