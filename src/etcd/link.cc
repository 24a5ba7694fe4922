#include "etcd/link.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/assert.h"
#include "base/planted.h"
#include "base/probe.h"
#include "base/text.h"

namespace muster {

namespace {

using Stage = wire::EtcdNotice::Stage;

constexpr Duration kPatience = 5s;
constexpr Duration kRevokePatience = 1s;  // the lease ends by itself, too
constexpr Duration kFirstPause = 20ms;
constexpr Duration kLongestPause = 1s;
constexpr Duration kTtlMin = 2s;  // etcd's own floor
constexpr size_t kOwnLeasesMax =
    1'000;  // older ones may be taken for another node's, for their time

EtcdOperation Put(std::string key, std::string value, int64_t lease) {
  return {.kind = EtcdOperation::Kind::kPut,
          .range = {.begin = std::move(key)},
          .value = std::move(value),
          .lease = lease};
}

EtcdOperation Get(std::string key) {
  return {.kind = EtcdOperation::Kind::kGet, .range = {.begin = std::move(key)}};
}

EtcdCondition CreatedAt(std::string key, int64_t revision) {
  return {.kind = EtcdCondition::Kind::kCreatedAt, .key = std::move(key), .revision = revision};
}

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
  Enter();
}

// ----------------------------------------------------------------------------------------------
// the lease

void EtcdLink::Enter() {
  if (!etcd_) {
    auto made = options_.connect(loop_);
    if (!made) return Fail(made.error());
    etcd_ = std::move(*made);
  }
  step_ = Step::kEntering;
  lifetime_.Renew();
  const Instant asked_at = loop_.Now();
  etcd_->Grant(TtlOf(options_.hello.settings), kPatience,
               lifetime_.Guard([this, asked_at](Result<EtcdLease> lease) {
                 if (lease) return Register(asked_at, *lease);
                 if (lease.error().code == Code::kInvalid) return Fail(lease.error());
                 Rest(lease.error().message);
               }));
}

void EtcdLink::Register(Instant asked_at, const EtcdLease& lease) {
  lease_ = lease.id;
  ttl_ = lease.ttl;
  lease_until_ = asked_at + ttl_;
  if (!join_) wish_ = wire::EtcdMember::Wish::kNone;  // nothing to be left, either
  if (join_ && join_->until == Instant::Never()) join_->until = loop_.Now() + join_->timeout;
  const std::string record = wire::Write(Record());
  bytes_ += record.size();
  ++messages_;
  dirty_ = false;
  etcd_->Commit({.conditions = {CreatedAt(my_key_, 0)},
                 .then = {Put(my_key_, record, lease_), Get(keys_.Leader())},
                 .otherwise = {Get(my_key_)}},
                kPatience, lifetime_.Guard([this](Result<EtcdAnswer> answer) {
                  OnRegistered(std::move(answer));
                }));
}

void EtcdLink::OnRegistered(Result<EtcdAnswer> answer) {
  // If it was written after all, it goes with its lease.
  if (!answer && answer.error().code == Code::kInvalid) return Fail(answer.error());
  if (!answer) return LoseLease(answer.error().message);
  if (!answer->held) {
    MUSTER_ETCD_PROBE("a node found its name taken in etcd");
    const auto& found = answer->results.front().pairs;
    const int64_t its_lease = found.empty() ? 0 : found.front().lease;
    if (std::ranges::find(own_leases_, its_lease) != own_leases_.end()) {
      MUSTER_ETCD_PROBE("a node found its own old record in etcd");
      GiveUpLease();
      lease_ = its_lease;
      return LoseLease("its old record is still there");
    }
    heard_ = {.why = Concat("node '", options_.hello.node.ToString(), "' of run '",
                            Printable(options_.hello.run_id), "' is there already (", my_key_,
                            "): two nodes cannot be one"),
              .refusal = Push::Refusal::kIdentity};
    return Refused();
  }
  // The answer took too long: what it says is over before it begins.
  if (lease_until_ <= loop_.Now()) return LoseLease("its lease was over before it was registered");
  step_ = Step::kOpen;
  session_ = answer->revision;
  known_ = {.revision = session_, .written_at = session_};
  leadership_ = prng_.Next();
  heard_ = {.session = session_};
  backoff_.reset();
  troubled_ = false;
  leader_gone_at_ = 0;
  notice_watch_.Begin(keys_.Notice(options_.hello.node), session_ + 1);
  leader_watch_.Begin(keys_.Leader(), session_ + 1);
  Renew(lease_until_);
  const Duration period = std::min(ttl_ / 4, options_.hello.settings.keep_alive_interval);
  keeper_ = loop_.Every(period, [this] { KeepAlive(); });
  // etcd took long to grant it, or to register us: at the first tick it might be over.
  if (lease_until_ - loop_.Now() < ttl_ - period) KeepAlive();
  const auto& leader = answer->results[1].pairs;
  if (!leader.empty() && !IsLeaders(leader.front())) return;
  if (leader.empty()) CampaignSoon();
  // Who was refused is not through yet: should its time run out, that is the reason.
  if (!refused_since_) Opened();
  if (dirty_) WriteRecord();
}

void EtcdLink::Opened() {
  owner_.OnPush({.kind = Push::Kind::kOpened, .addr = options_.hello.node.addr});
}

void EtcdLink::Renew(Instant until) {
  lease_until_ = until;
  if (IsOver()) return;
  if (!expiry_) AwaitExpiry();
}

// Set anew only when it rings: most leases are renewed long before.
void EtcdLink::AwaitExpiry() {
  expiry_ = loop_.At(lease_until_, [this] {
    if (loop_.Now() < lease_until_) return AwaitExpiry();
    MUSTER_ETCD_PROBE("a node gave itself up, for its lease was over");
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
                       Renew(std::max(lease_until_, asked_at + *left));
                     } else if (left.error().code == Code::kNotFound) {
                       MUSTER_ETCD_PROBE("etcd told a node that its lease was over");
                       LoseLease("its lease is over");
                     } else {
                       Troubled(left.error().message);
                     }
                   }));
}

void EtcdLink::Disarm() {
  lifetime_.Renew();
  leader_.reset();
  notice_watch_.End();
  leader_watch_.End();
  keeper_.reset();
  expiry_.reset();
  campaign_.reset();
  rewrite_.reset();
  rest_.reset();
  verify_.reset();
  campaigning_ = false;
  verifying_ = false;
  doubted_ = false;
  writing_ = false;
  session_ = 0;
}

void EtcdLink::LoseLease(const std::string& why) {
  const bool was_open = step_ == Step::kOpen;
  Disarm();
  step_ = Step::kResting;
  if (was_open) owner_.OnPlaceLost(why);
  // It may be over by our clock alone, or not have been there at all; our name must be free. Where
  // etcd does not hear it, and elects a leader of its own, it may give the lease more time.
  etcd_->Revoke(GiveUpLease(), kRevokePatience,
                lifetime_.Guard([this, why](const Status&) { Rest(why); }));
}

void EtcdLink::Rest(const std::string& why) {
  step_ = Step::kResting;
  if (!backoff_) backoff_.emplace(kFirstPause, kLongestPause, prng_.Next());
  rest_ = loop_.Every(backoff_->Next(), [this] {
    rest_.reset();
    Enter();
  });
  owner_.OnTrouble(why);
}

// Also one that etcd has confirmed to be over may be met again, in a backup.
int64_t EtcdLink::GiveUpLease() {
  if (own_leases_.size() == kOwnLeasesMax) own_leases_.pop_front();
  own_leases_.push_back(lease_);
  return std::exchange(lease_, 0);
}

void EtcdLink::Stop() {
  Disarm();
  step_ = Step::kStopped;
  if (lease_ != 0) etcd_->Revoke(GiveUpLease(), kPatience, [](const Status&) {});
}

void EtcdLink::Fail(const Error& why) {
  Stop();
  owner_.OnFailed(why);
}

bool EtcdLink::Shutdown(std::function<void()> done) {
  Disarm();
  step_ = Step::kStopped;
  if (lease_ == 0) return false;
  etcd_->Revoke(GiveUpLease(), kPatience,
                lifetime_.Guard([done = std::move(done)](const Status&) { done(); }));
  return true;
}

// ----------------------------------------------------------------------------------------------
// what we want

wire::EtcdMember EtcdLink::Record() const {
  wire::EtcdMember record{.hello = options_.hello,
                          .said = said_,
                          .wish = wish_,
                          .closes = close_.has_value(),
                          .close_reason = close_.value_or("")};
  record.hello.round = round_;
  if (join_) {
    const Instant now = loop_.Now();
    record.join_timeout = join_->until == Instant::Never()
                              ? join_->timeout
                              : std::max<Duration>(join_->until - now, 1ms);
  }
  return record;
}

void EtcdLink::Wish(wire::EtcdMember::Wish wish) {
  wish_ = wish;
  ++said_;
  WriteRecord();
}

// One at a time, and always what is wanted now.
void EtcdLink::WriteRecord() {
  dirty_ = true;
  if (step_ != Step::kOpen || writing_ || rewrite_) return;
  dirty_ = false;
  writing_ = true;
  const std::string record = wire::Write(Record());
  bytes_ += record.size();
  ++messages_;
  // If the answer is lost, it is written again; the first one may be late, and is then void.
  Commit({.conditions = {{.kind = EtcdCondition::Kind::kChangedAt,
                          .key = my_key_,
                          .revision = known_.written_at}},
          .then = {Put(my_key_, record, lease_)},
          .otherwise = {Get(my_key_)}},
         [this](Result<EtcdAnswer> answer, const Known& known) {
           OnRecordWritten(std::move(answer), known);
         });
}

void EtcdLink::OnRecordWritten(Result<EtcdAnswer> answer, const Known& known) {
  writing_ = false;
  if (!answer && answer.error().code == Code::kNotFound) return LoseLease("its lease is over");
  if (!answer && answer.error().code == Code::kInvalid) return Fail(answer.error());
  if (!answer) {
    dirty_ = true;
    rewrite_ = loop_.Every(kFirstPause + Duration(prng_.Below(100'000'000)), [this] {
      rewrite_.reset();
      WriteRecord();
    });
    return Troubled(answer.error().message);
  }
  known_.written_at = answer->revision;
  if (!answer->held) {
    const auto& found = answer->results.front().pairs;
    if (found.empty() || found.front().created != session_ || found.front().lease != lease_)
      return LoseLease("its record is gone");
    if (found.front().changed < known.written_at) return GoneBack("its record is an older one");
    MUSTER_ETCD_PROBE("a node's record had been written, and the answer was lost");
    known_.written_at = found.front().changed;
    dirty_ = true;
  }
  if (dirty_) WriteRecord();
}

void EtcdLink::Join(Duration timeout) {
  join_ = Wanted{timeout, loop_.Now() + timeout};
  Wish(wire::EtcdMember::Wish::kJoin);
  if (step_ == Step::kStopped) {
    refused_since_.reset();
    Enter();
  }
}

void EtcdLink::Leave() {
  join_.reset();
  Wish(wire::EtcdMember::Wish::kLeave);
}

void EtcdLink::Abandon() {
  MUSTER_ETCD_PROBE("a join in etcd was given up without an answer");
  Leave();
}

void EtcdLink::Close(std::string reason) {
  close_ = std::move(reason);
  WriteRecord();
}

void EtcdLink::RequestReport(uint32_t) {
  if (step_ != Step::kOpen) return;
  Commit({.then = {Get(keys_.Status())}}, [this](Result<EtcdAnswer> answer, const Known&) {
    if (!answer) return;
    const auto& found = answer->results.front().pairs;
    if (found.empty()) return owner_.OnReport(std::nullopt);
    auto report = wire::ReadStatus(keys_.Status(), options_.hello.run_id, found.front().value);
    if (report) owner_.OnReport(std::move(*report));
  });
}

// ----------------------------------------------------------------------------------------------
// the leader

void EtcdLink::OnLeaderKey(const EtcdChange& change) {
  if (!change.deleted) {
    // Ours: by a try that seemed to fail, or restored from a time when we led.
    if (IsLeaders(change.pair) && change.pair.lease == lease_ && !leader_ && !campaigning_)
      Lead(change.pair.created);
    return;
  }
  leader_gone_at_ = std::max(leader_gone_at_, change.pair.changed);
  if (!leader_) CampaignSoon();
}

// A leader's key goes with its lease. One without stays, and nobody could ever lead.
bool EtcdLink::IsLeaders(const EtcdPair& pair) {
  if (pair.lease != 0) return true;
  Fail(
      {Code::kProtocol, Concat(pair.key,
                               ": it has no lease, so it is no leader's; whoever put it there must "
                               "delete it")});
  return false;
}

void EtcdLink::CampaignSoon(Duration within) {
  if (campaigning_ || campaign_) return;
  const auto spread = static_cast<uint64_t>(within.count());
  campaign_ = loop_.Every(Duration(1 + prng_.Below(spread)), [this] {
    campaign_.reset();
    Campaign();
  });
}

void EtcdLink::Campaign() {
  MUSTER_ASSERT(lease_ != 0);  // or the key would stay for ever
  campaigning_ = true;
  const std::string key = keys_.Leader();
  Commit({.conditions = {CreatedAt(key, 0)},
          .then = {Put(key, wire::WriteLeader(options_.hello.node, leadership_), lease_)},
          .otherwise = {Get(key)}},
         [this](Result<EtcdAnswer> answer, const Known&) {
           campaigning_ = false;
           // Who is in a round and wants nothing can do without a leader.
           const bool hopeless = !answer && answer.error().code == Code::kInvalid;
           if (hopeless && join_) return Fail(answer.error());
           if (!answer) {
             Troubled(answer.error().message);
             return CampaignSoon(hopeless ? kLongestPause : kCampaignSpread * 10);
           }
           if (answer->held) return Lead(answer->revision);
           const auto& found = answer->results.front().pairs;
           if (!found.empty() && !IsLeaders(found.front())) return;
           // Ours, by a try that seemed to fail.
           if (!found.empty() && found.front().lease == lease_) return Lead(found.front().created);
           // Gone again, and we have been told already.
           if (found.empty() || found.front().created < leader_gone_at_) CampaignSoon();
         });
}

void EtcdLink::Lead(int64_t epoch) {
  MUSTER_ETCD_PROBE("a node was elected");
  campaign_.reset();
  EtcdLeader::Owner& owner = *this;
  leader_ = std::make_unique<EtcdLeader>(
      *etcd_, loop_,
      EtcdLeaderOptions{.keys = keys_,
                        .run_id = options_.hello.run_id,
                        .node = options_.hello.node,
                        .epoch = epoch,
                        .value = wire::WriteLeader(options_.hello.node, leadership_),
                        .run_kept = options_.run_kept,
                        .seed = prng_.Next(),
                        .entropy = options_.entropy},
      owner);
  leader_->Start();
}

void EtcdLink::OnDeposed() {
  leader_.reset();
  KeepAlive();                               // was it our lease?
  if (step_ == Step::kOpen) CampaignSoon();  // or has somebody deleted the key?
}

void EtcdLink::OnBroken(const Error& why) { Fail(why); }

void EtcdLink::OnLeaderTrouble(const std::string& why) { Troubled(why); }

}  // namespace muster
