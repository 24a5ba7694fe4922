#include "etcd/link.h"

#include <chrono>
#include <utility>

#include "base/assert.h"
#include "base/instrumented.h"
#include "base/text.h"

namespace muster {

namespace {

constexpr Duration kRevokePatience = 1s;  // the lease ends by itself, too
constexpr Duration kTtlMin = 2s;          // etcd's own floor
constexpr size_t kOwnLeasesMax = 1'000;

// Whole seconds, as etcd counts them.
Duration TtlOf(const RunSettings& settings) {
  return std::max<Duration>(std::chrono::ceil<std::chrono::seconds>(settings.dead_after()),
                            kTtlMin);
}

}  // namespace

EtcdLink::EtcdLink(Loop& loop, EtcdLinkOptions options, RendezvousLinkListener& owner)
    : loop_(loop),
      options_(std::move(options)),
      keys_(options_.prefix, options_.hello.run_id),
      my_key_(keys_.Member(options_.hello.node)),
      owner_(owner),
      prng_(options_.seed) {}

EtcdLink::~EtcdLink() { MUSTER_ASSERT(loop_.IsCurrent()); }

void EtcdLink::Start() {
  MUSTER_ASSERT(step_ == Step::kIdle);
  Grant();
}

// ----------------------------------------------------------------------------------------------
// the lease

void EtcdLink::Grant() {
  if (!etcd_) {
    auto made = options_.connect(loop_);
    if (!made) return Fail(made.error());
    etcd_ = std::move(*made);
  }
  step_ = Step::kConnecting;
  lifetime_.Renew();
  const Instant asked_at = loop_.Now();
  etcd_->Grant(TtlOf(options_.hello.settings), kEtcdPatience,
               lifetime_.Guard([this, asked_at](Result<EtcdLease> lease) {
                 if (lease) return Register(asked_at, *lease);
                 if (lease.error().code == Code::kInvalid) return Fail(lease.error());
                 RetryLater(lease.error().message);
               }));
}

void EtcdLink::Register(Instant asked_at, const EtcdLease& lease) {
  lease_ = lease.id;
  ttl_ = lease.ttl;
  lease_until_ = asked_at + ttl_;
  if (!join_) request_ = wire::EtcdMember::Request::kNone;  // there is no place to leave, either
  if (join_ && join_->until == Instant::Never()) join_->until = loop_.Now() + join_->timeout;
  etcd_->Commit({.conditions = {IfCreatedAt(my_key_, 0)},
                 .then = {PutRecord(), EtcdGet(keys_.Leader())},
                 .otherwise = {EtcdGet(my_key_)}},
                kEtcdPatience, lifetime_.Guard(std::bind_front(&EtcdLink::OnRegistered, this)));
}

void EtcdLink::OnRegistered(Result<EtcdAnswer> answer) {
  // If it was written nevertheless, it is deleted with its lease.
  if (!answer && answer.error().code == Code::kInvalid) return Fail(answer.error());
  if (!answer) return LoseLease(answer.error().message);
  if (!answer->held) {
    MUSTER_ETCD_PROBE("a node found its name taken in etcd");
    const EtcdPair* const found = answer->Pair();
    const int64_t its_lease = found == nullptr ? 0 : found->lease;
    if (std::ranges::find(own_leases_, its_lease) != own_leases_.end()) {
      MUSTER_ETCD_PROBE("a node found its own old record in etcd");
      AbandonLease();
      lease_ = its_lease;
      return LoseLease("its old record is still there");
    }
    received_ = {
        .stage = {.kind = Push::Kind::kRefused,
                  .refusal = Push::Refusal::kIdentity,
                  .why = Concat("node '", options_.hello.node.ToString(), "' of run '",
                                Printable(options_.hello.run_id), "' is already registered (",
                                my_key_, "): give each node a name of its own")}};
    return Refused();
  }
  // The answer came too late.
  if (lease_until_ <= loop_.Now()) return LoseLease("its lease was over before it was registered");
  step_ = Step::kOpen;
  session_ = answer->revision;
  seen_ = {.revision = session_, .written_at = session_};
  leadership_ = prng_.Next();
  received_ = {.session = session_};
  backoff_.reset();
  troubled_ = false;
  leader_gone_at_ = 0;
  Watch(session_ + 1);
  AwaitExpiry();
  const Duration period = std::min(ttl_ / 4, options_.hello.settings.keep_alive_interval);
  keeper_ = loop_.Every(period, [this] { KeepAlive(); });
  // etcd granted the lease or registered us late: it may end before the first tick.
  if (lease_until_ - loop_.Now() < ttl_ - period) KeepAlive();
  const EtcdPair* const leader = answer->Pair(1);
  if (leader != nullptr && !IsLeaderKey(*leader)) return;
  if (leader == nullptr) CampaignSoon();
  // After a refusal the node is not in the run yet. If its join times out, the refusal is the
  // reason.
  if (!refused_since_) Opened();
  if (dirty_) WriteRecord();
}

void EtcdLink::Opened() {
  owner_.OnPush({.kind = Push::Kind::kOpened, .addr = options_.hello.node.addr});
}

// Armed again only when it fires: most leases are renewed long before.
void EtcdLink::AwaitExpiry() {
  expiry_ = loop_.At(lease_until_, [this] {
    if (loop_.Now() < lease_until_) return AwaitExpiry();
    MUSTER_ETCD_PROBE("a node's lease ended by its own clock");
    LoseLease(Concat("its lease was not renewed for ", Milliseconds(ttl_), " ms"));
  });
}

bool EtcdLink::IsOver() {
  if (loop_.Now() < lease_until_) return false;
  LoseLease("its lease was not renewed in time");
  return true;
}

void EtcdLink::KeepAlive() {
  if (IsOver()) return;
  const Instant asked_at = loop_.Now();
  etcd_->KeepAlive(lease_, lease_until_ - asked_at,
                   lifetime_.Guard([this, asked_at](Result<Duration> left) {
                     if (left) {
                       Recovered();
                       lease_until_ = std::max(lease_until_, asked_at + *left);
                       IsOver();  // the answer may have come too late
                     } else if (left.error().code == Code::kNotFound) {
                       MUSTER_ETCD_PROBE("etcd reported that a node's lease had ended");
                       LoseLease("its lease is over");
                     } else {
                       ReportTrouble(left.error().message);
                     }
                   }));
}

void EtcdLink::StopTimers() {
  lifetime_.Renew();
  leader_.reset();
  Unwatch();
  keeper_.reset();
  expiry_.reset();
  campaign_.reset();
  rewrite_.reset();
  retry_.reset();
  campaigning_ = false;
  writing_ = false;
  session_ = 0;
}

void EtcdLink::LoseLease(const std::string& why) {
  const bool was_open = step_ == Step::kOpen;
  StopTimers();
  step_ = Step::kConnecting;
  if (was_open) owner_.OnPlaceLost(why);
  // The lease may have ended only by this node's clock. Revoking it frees the node's name
  // immediately. If etcd is out of reach and elects a new leader, it may extend the lease.
  etcd_->Revoke(AbandonLease(), kRevokePatience,
                lifetime_.Guard([this, why](const Status&) { RetryLater(why); }));
}

void EtcdLink::RetryLater(const std::string& why) {
  step_ = Step::kConnecting;
  if (!backoff_) backoff_.emplace(kEtcdFirstPause, kEtcdLongestPause, prng_.Next());
  Later(retry_, backoff_->Next(), &EtcdLink::Grant);
  owner_.OnTrouble(why);
}

void EtcdLink::Later(std::unique_ptr<Timer>& timer, Duration pause, void (EtcdLink::*what)()) {
  timer = loop_.After(pause, [this, &timer, what] {
    timer.reset();
    (this->*what)();
  });
}

// Even a lease that etcd has confirmed as ended can exist again after a backup was restored.
int64_t EtcdLink::AbandonLease() {
  if (own_leases_.size() == kOwnLeasesMax) own_leases_.pop_front();
  own_leases_.push_back(lease_);
  return std::exchange(lease_, 0);
}

void EtcdLink::Fail(const Error& why) {
  Shutdown([] {});
  owner_.OnFailed(why);
}

bool EtcdLink::Shutdown(std::function<void()> done) {
  StopTimers();
  step_ = Step::kStopped;
  if (lease_ == 0) return false;
  etcd_->Revoke(AbandonLease(), kEtcdPatience,
                lifetime_.Guard([done = std::move(done)](const Status&) { done(); }));
  return true;
}

// ----------------------------------------------------------------------------------------------
// the node's requests

EtcdOperation EtcdLink::PutRecord() {
  wire::EtcdMember record{.hello = options_.hello,
                          .serial = serial_,
                          .request = request_,
                          .closes = close_.has_value(),
                          .close_reason = close_.value_or("")};
  record.hello.round = round_;
  if (join_) {
    const Instant now = loop_.Now();
    record.join_timeout = join_->until == Instant::Never()
                              ? join_->timeout
                              : std::max<Duration>(join_->until - now, 1ms);
  }
  std::string value = wire::Write(record);
  bytes_ += value.size();
  ++messages_;
  dirty_ = false;
  return EtcdPut(my_key_, std::move(value), lease_);
}

void EtcdLink::Request(wire::EtcdMember::Request request) {
  request_ = request;
  ++serial_;
  WriteRecord();
}

// One write at a time, always of the present request.
void EtcdLink::WriteRecord() {
  dirty_ = true;
  if (step_ != Step::kOpen || writing_ || rewrite_) return;
  writing_ = true;
  // If the answer is lost, the record is written again. The condition voids the first write if it
  // arrives late.
  Commit({.conditions = {IfChangedAt(my_key_, seen_.written_at)},
          .then = {PutRecord()},
          .otherwise = {EtcdGet(my_key_)}},
         std::bind_front(&EtcdLink::OnRecordWritten, this));
}

void EtcdLink::OnRecordWritten(Result<EtcdAnswer> answer, const Seen& seen) {
  writing_ = false;
  if (!answer && answer.error().code == Code::kNotFound) return LoseLease("its lease is over");
  if (!answer && answer.error().code == Code::kInvalid) return Fail(answer.error());
  if (!answer) {
    dirty_ = true;
    Later(rewrite_, ShortPause(), &EtcdLink::WriteRecord);
    return ReportTrouble(answer.error().message);
  }
  seen_.written_at = answer->revision;
  if (!answer->held) {
    const EtcdPair* const found = answer->Pair();
    if (IsRecordLost(found, seen)) return;
    MUSTER_ETCD_PROBE("a node's record had been written, and the answer was lost");
    seen_.written_at = found->changed;
    dirty_ = true;
  }
  if (dirty_) WriteRecord();
}

void EtcdLink::Join(Duration timeout) {
  join_ = PendingJoin{timeout, loop_.Now() + timeout};
  Request(wire::EtcdMember::Request::kJoin);
  if (step_ == Step::kStopped) {
    refused_since_.reset();
    Grant();
  }
}

void EtcdLink::Leave() {
  join_.reset();
  Request(wire::EtcdMember::Request::kLeave);
}

void EtcdLink::Abandon() {
  MUSTER_ETCD_PROBE("a join in etcd was abandoned without an answer");
  Leave();
}

void EtcdLink::Close(std::string reason) {
  close_ = std::move(reason);
  WriteRecord();
}

void EtcdLink::RequestReport(uint32_t) {
  if (step_ != Step::kOpen) return;
  Commit({.then = {EtcdGet(keys_.Status())}}, [this](Result<EtcdAnswer> answer, const Seen&) {
    if (!answer) return;
    const EtcdPair* const found = answer->Pair();
    if (found == nullptr) return owner_.OnReport(std::nullopt);
    auto report = wire::Read<RunReport>(keys_.Status(), found->value);
    if (!report) return;
    report->id = options_.hello.run_id;
    owner_.OnReport(std::move(*report));
  });
}

// ----------------------------------------------------------------------------------------------
// the leader

void EtcdLink::OnLeaderKey(const EtcdChange& change) {
  if (!change.deleted) {
    // This node's key: from a campaign whose answer was lost, or from a backup of a time when it
    // led.
    if (IsLeaderKey(change.pair) && change.pair.lease == lease_ && !leader_ && !campaigning_)
      Lead(change.pair.created);
    return;
  }
  leader_gone_at_ = std::max(leader_gone_at_, change.pair.changed);
  if (!leader_) CampaignSoon();
}

// A leader key without a lease would stay permanently, and no node could lead.
bool EtcdLink::IsLeaderKey(const EtcdPair& pair) {
  if (pair.lease != 0) return true;
  Fail({Code::kProtocol, Concat(pair.key, ": it has no lease, so no leader wrote it; delete it")});
  return false;
}

void EtcdLink::CampaignSoon(Duration within) {
  if (campaigning_ || campaign_) return;
  const auto spread = static_cast<uint64_t>(within.count());
  Later(campaign_, Duration(1 + prng_.Below(spread)), &EtcdLink::Campaign);
}

void EtcdLink::Campaign() {
  MUSTER_ASSERT(lease_ != 0);  // without one the key would stay permanently
  campaigning_ = true;
  const std::string key = keys_.Leader();
  Commit({.conditions = {IfCreatedAt(key, 0)},
          .then = {EtcdPut(key, wire::WriteLeader(options_.hello.node, leadership_), lease_)},
          .otherwise = {EtcdGet(key)}},
         [this](Result<EtcdAnswer> answer, const Seen&) {
           campaigning_ = false;
           // A node that is in a round and requests nothing needs no leader.
           const bool hopeless = !answer && answer.error().code == Code::kInvalid;
           if (hopeless && join_) return Fail(answer.error());
           if (!answer) {
             ReportTrouble(answer.error().message);
             return CampaignSoon(hopeless ? kEtcdLongestPause : kCampaignSpread * 10);
           }
           if (answer->held) return Lead(answer->revision);
           const EtcdPair* const found = answer->Pair();
           // Deleted again, and the watch has reported it already.
           if (found == nullptr || found->created < leader_gone_at_) return CampaignSoon();
           OnLeaderKey({.pair = *found});
         });
}

void EtcdLink::Lead(int64_t epoch) {
  MUSTER_ETCD_PROBE("a node was elected");
  campaign_.reset();
  EtcdLeader::Owner& owner = *this;
  EtcdPair fence{.key = keys_.Leader(),
                 .value = wire::WriteLeader(options_.hello.node, leadership_),
                 .created = epoch};
  leader_ =
      std::make_unique<EtcdLeader>(*etcd_, loop_, options_, std::move(fence), prng_.Next(), owner);
  leader_->Start();
}

void EtcdLink::OnDeposed() {
  leader_.reset();
  KeepAlive();                               // finds out whether our lease has ended
  if (step_ == Step::kOpen) CampaignSoon();  // if not, the key was deleted by hand
}

}  // namespace muster
