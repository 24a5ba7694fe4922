// A node's end of a rendezvous in etcd: its lease, its record, what the leader tells it; and, when
// it is elected, the leader.
//
// The node lives as long as its lease does. It counts the lease's time itself, from before it asked
// for it: whatever else is broken, it knows that it is out before anybody else can have its place.
// Lives on its loop's thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/lifetime.h"
#include "base/prng.h"
#include "etcd/etcd_port.h"
#include "etcd/leader.h"
#include "etcd/records.h"
#include "os/ports/loop.h"
#include "rendezvous/session/rendezvous_link.h"
#include "store/client/backoff.h"

namespace muster {

struct EtcdLinkOptions {
  EtcdConnector connect;
  std::string prefix = "/muster";
  Hello hello;               ///< `resume` and `round` are the link's own business.
  Duration run_kept = 600s;  ///< How long what belongs to the run stays after its last node.
  uint64_t seed = 0;
};

class EtcdLink final : public RendezvousLink, private EtcdLeader::Owner {
 public:
  EtcdLink(Loop& loop, EtcdLinkOptions options, RendezvousLinkOwner& owner);
  ~EtcdLink() override;
  EtcdLink(const EtcdLink&) = delete;
  EtcdLink& operator=(const EtcdLink&) = delete;

  void Start() override;
  void Join(Duration timeout) override;
  void Leave() override;
  void Abandon() override;
  void Close(std::string reason) override;
  void AskHowItStands(uint32_t names_max) override;
  bool Farewell(std::function<void()> done) override;

  bool leads() const { return leader_ != nullptr; }
  /// Of records written and notices read.
  uint64_t bytes() const override { return bytes_; }
  uint64_t messages() const override { return messages_; }

 private:
  /// Of many that could lead, one is to be first.
  static constexpr Duration kCampaignSpread = 20ms;

  enum class Step { kIdle, kEntering, kOpen, kResting, kStopped };

  /// What this node knows of etcd: none of it can be undone, unless etcd is restored from older
  /// data.
  struct Known {
    int64_t revision = 0;    ///< The highest that was seen.
    int64_t written_at = 0;  ///< When our record was last changed,
    int64_t notice_at = 0;   ///< and the last notice that was heard; 0: none yet.
  };

  /// One key that this node watches.
  class KeyWatch final : public EtcdWatcher {
   public:
    KeyWatch(EtcdLink& link, void (EtcdLink::*change)(const EtcdChange&))
        : link_(link), change_(change) {}
    void Begin(const std::string& key, int64_t revision);
    void End() { watch_.reset(); }

   private:
    void OnChanges(const std::vector<EtcdChange>& changes) override;
    void OnTrouble(const std::string& why) override { link_.Doubt(why); }
    void OnEnd(const Error& why) override;

    EtcdLink& link_;
    void (EtcdLink::*const change_)(const EtcdChange&);
    std::unique_ptr<EtcdWatch> watch_;
  };

  // --- The lease
  void Enter();
  void Register(Instant asked_at, const EtcdLease& lease);
  void OnRegistered(Result<EtcdAnswer> answer);
  void Opened();
  void KeepAlive();
  void Renew(Instant until);
  void AwaitExpiry();
  /// Whether the lease's time is over: then the place is lost, too. Before anything that etcd said
  /// is acted upon: the node may just have been woken up.
  bool IsOver();
  /// Out of everything, and begins anew.
  void LoseLease(const std::string& why);
  /// The lease, which is ours no more.
  int64_t GiveUpLease();
  void Rest(const std::string& why);
  void Disarm();
  void Stop();
  void Fail(const Error& why);

  // --- What we want
  wire::EtcdMember Record() const;
  void Wish(wire::EtcdMember::Wish wish);
  void WriteRecord();
  void OnRecordWritten(Result<EtcdAnswer> answer, const Known& known);

  // --- Whether etcd has gone back
  /// Of a transaction while the link is open: `then` hears of it, unless the answer shows that etcd
  /// has gone back.
  void Commit(EtcdTransaction transaction,
              std::function<void(Result<EtcdAnswer>, const Known&)> then);
  void See(int64_t revision) { known_.revision = std::max(known_.revision, revision); }
  /// The connection was lost: what is at its other end may have been restored meanwhile.
  void Doubt(const std::string& why);
  void Verify();
  /// Reads our record, our notice and who leads, in this order.
  void Look(std::function<void(Result<EtcdAnswer>, const Known&)> then);
  void TakeIn(const EtcdAnswer& looked);
  /// Of what Look() has found: that it is not what it was.
  bool HasGoneBack(const EtcdAnswer& answer, const Known& known);
  void GoneBack(const std::string& what);

  // --- What we hear
  void Refresh();
  void OnNotice(const EtcdChange& change);
  void Hear(const wire::EtcdNotice& notice);
  void HearPlace(const wire::EtcdNotice& before);
  void HearStage();
  void Refused();
  void Troubled(const std::string& why);
  void Recovered();

  // --- The leader
  void OnLeaderKey(const EtcdChange& change);
  bool IsLeaders(const EtcdPair& pair);
  void CampaignSoon(Duration within = kCampaignSpread);
  void Campaign();
  void Lead(int64_t epoch);
  void OnDeposed() override;
  void OnBroken(const Error& why) override;
  void OnLeaderTrouble(const std::string& why) override;

  Loop& loop_;
  const EtcdLinkOptions options_;
  const wire::EtcdKeys keys_;
  const std::string my_key_;
  RendezvousLinkOwner& owner_;
  Prng prng_;
  Lifetime lifetime_;  // renewed with every lease
  Step step_ = Step::kIdle;
  std::shared_ptr<Etcd> etcd_;
  std::optional<Backoff> backoff_;
  std::unique_ptr<Timer> rest_;

  int64_t lease_ = 0;
  std::deque<int64_t> own_leases_;  // that we have given up, and etcd may not know it
  Duration ttl_{};
  Instant lease_until_{};
  std::unique_ptr<Timer> keeper_;
  std::unique_ptr<Timer> expiry_;
  int64_t session_ = 0;  // the revision at which our record was created
  Known known_;
  bool doubted_ = false;  // nothing was verified since
  bool verifying_ = false;
  std::unique_ptr<Timer> verify_;
  uint64_t leadership_ = 0;  // what tells us, under this lease, from other leaders
  bool troubled_ = false;
  std::optional<Instant> refused_since_;

  struct Wanted {
    Duration timeout;
    Instant until;
  };
  std::optional<Wanted> join_;        // until it is answered
  std::optional<std::string> close_;  // its reason
  wire::EtcdMember::Wish wish_ = wire::EtcdMember::Wish::kNone;
  int64_t said_ = 0;
  bool writing_ = false;
  bool dirty_ = false;
  std::unique_ptr<Timer> rewrite_;

  int64_t round_ = -1;  // the last one that the node was in
  wire::EtcdNotice heard_;
  std::string notice_;  // as it was written
  KeyWatch notice_watch_{*this, &EtcdLink::OnNotice};
  KeyWatch leader_watch_{*this, &EtcdLink::OnLeaderKey};
  int64_t leader_gone_at_ = 0;  // the last revision at which there was no leader any more
  bool campaigning_ = false;
  std::unique_ptr<Timer> campaign_;
  std::unique_ptr<EtcdLeader> leader_;
  uint64_t bytes_ = 0;
  uint64_t messages_ = 0;
};

}  // namespace muster
