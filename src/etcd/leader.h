// The leader of a run: runs the coordinator on the members' records in etcd, and writes each member
// a notice.
//
// It leads as long as its key exists: every transaction has this condition, and the first one that
// fails ends its leadership. Facts that the next leader must know (the ranks of a round, and that
// the run is closed) are written before any notice of them. Everything else is in the members'
// records. Lives on its loop's thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/lifetime.h"
#include "base/prng.h"
#include "etcd/etcd_port.h"
#include "etcd/outbox.h"
#include "etcd/records.h"
#include "os/ports/loop.h"
#include "rendezvous/core/coordinator.h"
#include "store/client/backoff.h"

namespace muster {

/// Of a node: for its link, and for the leader that it may become.
struct EtcdLinkOptions {
  EtcdConnector connect;
  std::string prefix = "/muster";
  Hello hello;               ///< The link itself sets `resume` and `round`.
  Duration run_kept = 600s;  ///< How long the keys of the run are kept after its last node.
  uint64_t seed = 0;
  /// Unpredictable numbers, for tokens; unset: drawn from the seed, for simulations.
  std::function<uint64_t()> entropy{};
};

class EtcdLeader final : private EtcdWatcher {
 public:
  /// On the loop's thread. OnDeposed() and OnBroken() may destroy the leader.
  class Owner {
   public:
    virtual ~Owner() = default;
    virtual void OnDeposed() = 0;
    /// The leader cannot continue: kProtocol names a key that cannot be read; kInvalid: not
    /// permitted.
    virtual void OnBroken(const Error& why) = 0;
    virtual void OnLeaderTrouble(const std::string& why) = 0;
  };

  /// Leads as long as the leader's key is `fence`. All references outlive this.
  EtcdLeader(Etcd& etcd, Loop& loop, const EtcdLinkOptions& options, EtcdPair fence, uint64_t seed,
             Owner& owner);

  void Start() { Read(); }

 private:
  struct Member {
    wire::EtcdMember record;
    int64_t changed = 0;      ///< The revision at which its record last changed.
    SessionKey key;           ///< Without a token its session is not open.
    int64_t processed = 0;    ///< The serial of its last request that was processed.
    bool closes = false;      ///< It has closed the run.
    wire::EtcdNotice notice;  ///< The present one,
    std::string written;      ///< and the JSON that was passed to the outbox.
  };

  // --- Taking over
  void Read();
  void OnRead(Result<EtcdAnswer> answer);
  void LoseRun();
  void Begin(Duration run_ttl);
  Result<std::vector<wire::EtcdPlace>> LastRound() const;
  bool IsStale() const;
  Status ResumeRun(Instant now, Pushes& out);
  void ResumeMember(Member& member, Instant now, Pushes& out);
  void Retry(const Error& why, std::function<void()> what);

  // --- Members
  void OnChanges(const std::vector<EtcdChange>& changes) override;
  void OnChange(const EtcdChange& change);
  void OnTrouble(const std::string& why) override;
  void OnEnd(const Error& why) override;
  void Resync();
  void OnResync(Result<EtcdAnswer> answer);
  /// nullptr: the value is not a record of that node.
  Member* ReadMember(const EtcdPair& pair);
  void OpenSession(Member& member, Instant now, Pushes& out);
  bool IsMember() const;
  void OnRequest(Member& member, Instant now, Pushes& out);
  void OnGone(const std::string& key, Instant now, Pushes& out);

  // --- Notices
  void Tick();
  void Deliver(const Pushes& pushes);
  void UpdateNotice(wire::EtcdNotice& notice, const Push& push, int64_t lost) const;
  void CommitRound(const std::vector<wire::EtcdPlace>& places, const Push& any);
  void CommitRun();
  void WriteNotice(Member& member);
  void ArmTimers();
  void WriteStatus();

  void OnWrite(const Status& status);

  Etcd& etcd_;
  Loop& loop_;
  const EtcdLinkOptions& options_;
  const wire::EtcdKeys keys_{options_.prefix, options_.hello.run_id};
  const EtcdPair fence_;
  const uint64_t seed_;
  Owner& owner_;
  std::optional<EtcdAnswer> read_;  // while taking over
  std::optional<Coordinator> coordinator_;
  std::optional<EtcdOutbox> outbox_;
  int64_t outboxes_ = 0;  // so far
  std::unique_ptr<EtcdWatch> watch_;
  wire::EtcdRun record_;
  bool is_recorded_ = false;  // whether the run has a record, in etcd or from an earlier reading
  int64_t closed_at_ = 0;     // the run is closed for members with sessions below this
  bool has_written_ = false;
  int64_t run_lease_ = 0;
  std::map<int64_t, Member> members_;      // by session
  std::map<std::string, int64_t> by_key_;  // sessions, by the key of the record
  std::set<std::string> leftovers_;        // keys of removed nodes, kept until the next round
  Prng prng_;                              // for the names of plans
  std::string status_;
  Backoff backoff_;
  Lifetime lifetime_;  // renewed by Read()
  std::unique_ptr<Timer> retry_;
  std::unique_ptr<Timer> due_;
  std::unique_ptr<Timer> keeper_;
  std::unique_ptr<Timer> status_timer_;
};

}  // namespace muster
