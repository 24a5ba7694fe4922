// A node's end of a rendezvous in etcd: its lease, its record and its leader's notices; if it is
// elected, also the leader.
//
// The node counts as alive as long as its lease. It measures the lease's time itself, starting
// before the request: so it reports the loss of its place before etcd can give the place to another
// node. Lives on its loop's thread.
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

class EtcdLink final : public RendezvousLink, private EtcdWatcher, private EtcdLeader::Owner {
 public:
  EtcdLink(Loop& loop, EtcdLinkOptions options, RendezvousLinkListener& owner);
  ~EtcdLink() override;
  EtcdLink(EtcdLink&&) = delete;

  void Start() override;
  void Join(Duration timeout) override;
  void Leave() override;
  void Abandon() override;
  void Close(std::string reason) override;
  void RequestReport(uint32_t names_max) override;
  bool Shutdown(std::function<void()> done) override;

  bool leads() const { return leader_ != nullptr; }
  /// Of records written and notices read.
  uint64_t bytes() const override { return bytes_; }
  uint64_t messages() const override { return messages_; }

 private:
  /// Nodes that could lead spread their attempts over this time.
  static constexpr Duration kCampaignSpread = 20ms;

  enum class Step { kIdle, kConnecting, kOpen, kStopped };

  /// What this node has seen in etcd. It cannot be undone, unless etcd is restored from older data.
  struct Seen {
    int64_t revision = 0;    ///< The highest one.
    int64_t written_at = 0;  ///< When our record was last changed,
    int64_t notice_at = 0;   ///< and the last notice; 0: none yet.
  };

  // --- The lease
  void Grant();
  void Register(Instant asked_at, const EtcdLease& lease);
  void OnRegistered(Result<EtcdAnswer> answer);
  void Opened();
  void KeepAlive();
  void AwaitExpiry();
  /// Whether the lease has ended; then the place is lost, too. Checked before acting on any message
  /// of etcd, because the machine may just have been resumed.
  bool IsOver();
  /// Reports the place as lost and registers again.
  void LoseLease(const std::string& why);
  /// Returns the lease, which this node no longer uses.
  int64_t AbandonLease();
  void RetryLater(const std::string& why);
  /// Calls `what` once after `pause`, unless the timer is destroyed before; it is null then.
  void Later(std::unique_ptr<Timer>& timer, Duration pause, void (EtcdLink::*what)());
  /// Short, and different in each node.
  Duration ShortPause() { return kEtcdFirstPause + Duration(prng_.Below(100'000'000)); }
  void StopTimers();
  void Fail(const Error& why);

  // --- The node's requests
  /// Of our record, as it is now.
  EtcdOperation PutRecord();
  void Request(wire::EtcdMember::Request request);
  void WriteRecord();
  void OnRecordWritten(Result<EtcdAnswer> answer, const Seen& seen);

  // --- An etcd that is restored from older data
  /// Works while the link is open. `then` gets the answer, unless it shows that etcd has older
  /// data.
  void Commit(EtcdTransaction transaction,
              std::function<void(Result<EtcdAnswer>, const Seen&)> then);
  void NoteRevision(int64_t revision) { seen_.revision = std::max(seen_.revision, revision); }
  /// Reads our record, our notice and the leader key, and watches from there.
  void Refresh();
  void OnRefreshed(const EtcdAnswer& answer, const Seen& seen);
  /// Whether our record is gone, or older than what this node has seen: the place is then lost,
  /// too.
  bool IsRecordLost(const EtcdPair* record, const Seen& seen);
  /// Whether what Refresh() read is older than what this node has seen.
  bool HasRolledBack(const EtcdAnswer& answer, const Seen& seen);
  void OnRollback(const std::string& what);

  // --- The watches of the node's notice and of the leader key
  void Watch(int64_t revision);
  void Unwatch();
  void OnChanges(const std::vector<EtcdChange>& changes) override;
  void OnTrouble(const std::string& why) override;
  void OnEnd(const Error& why) override;

  // --- The leader's notices
  void OnNotice(const EtcdChange& change);
  void OnNews(const wire::EtcdNotice& notice);
  void OnPlace(const wire::EtcdNotice& before);
  void OnStage();
  void Refused();
  void ReportTrouble(const std::string& why);
  void Recovered();

  // --- The leader
  void OnLeaderKey(const EtcdChange& change);
  bool IsLeaderKey(const EtcdPair& pair);
  void CampaignSoon(Duration within = kCampaignSpread);
  void Campaign();
  void Lead(int64_t epoch);
  void OnDeposed() override;
  void OnBroken(const Error& why) override { Fail(why); }
  void OnLeaderTrouble(const std::string& why) override { ReportTrouble(why); }

  Loop& loop_;
  const EtcdLinkOptions options_;
  const wire::EtcdKeys keys_;
  const std::string my_key_;
  RendezvousLinkListener& owner_;
  Prng prng_;
  Lifetime lifetime_;  // renewed with every lease
  Step step_ = Step::kIdle;
  std::shared_ptr<Etcd> etcd_;
  std::optional<Backoff> backoff_;
  std::unique_ptr<Timer> retry_;

  int64_t lease_ = 0;
  std::deque<int64_t> own_leases_;  // abandoned; etcd may still have them
  Duration ttl_{};
  Instant lease_until_{};
  std::unique_ptr<Timer> keeper_;
  std::unique_ptr<Timer> expiry_;
  int64_t session_ = 0;  // the revision at which our record was created
  Seen seen_;
  uint64_t leadership_ = 0;  // the token of our leader key, a new one for each lease
  bool troubled_ = false;
  std::optional<Instant> refused_since_;

  struct PendingJoin {
    Duration timeout;
    Instant until;
  };
  std::optional<PendingJoin> join_;   // until it is answered
  std::optional<std::string> close_;  // its reason
  wire::EtcdMember::Request request_ = wire::EtcdMember::Request::kNone;
  int64_t serial_ = 0;
  bool writing_ = false;
  bool dirty_ = false;
  std::unique_ptr<Timer> rewrite_;

  int64_t round_ = -1;  // the last round with this node
  wire::EtcdNotice received_;
  std::string notice_;                       // the JSON of it
  std::unique_ptr<EtcdWatch> notice_watch_;  // there is either both or none
  std::unique_ptr<EtcdWatch> leader_watch_;
  int64_t leader_gone_at_ = 0;  // the last revision that deleted the leader key
  bool campaigning_ = false;
  std::unique_ptr<Timer> campaign_;
  std::unique_ptr<EtcdLeader> leader_;
  uint64_t bytes_ = 0;
  uint64_t messages_ = 0;
};

}  // namespace muster
