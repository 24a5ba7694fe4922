// The leader of a run: runs the coordinator on what it sees of the members in etcd, and writes what
// each of them is to know under a key of its own.
//
// It leads as long as its key is there: every transaction of its says so, and one that fails ends
// it. What must survive it is written before anybody is told: who has which rank in which round,
// and that the run is closed. The rest the members will say again, to the next one. Lives on its
// loop's thread.
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

struct EtcdLeaderOptions {
  wire::EtcdKeys keys;
  std::string run_id;
  Node node;                 ///< Who leads.
  int64_t epoch = 0;         ///< The revision at which the leader's key was created,
  std::string value;         ///< and what is under it.
  Duration run_kept = 600s;  ///< How long what belongs to the run stays after its last node.
  uint64_t seed = 0;
  /// Of tokens, which nobody can predict; unset: of the seed, for simulations.
  std::function<uint64_t()> entropy{};
};

class EtcdLeader final : private EtcdWatcher, private EtcdOutbox::Owner {
 public:
  /// On the loop's thread. OnDeposed() and OnBroken() may destroy the leader.
  class Owner {
   public:
    virtual ~Owner() = default;
    virtual void OnDeposed() = 0;
    /// What is in etcd cannot be led: kProtocol, naming the key.
    virtual void OnBroken(const Error& why) = 0;
    virtual void OnLeaderTrouble(const std::string& why) = 0;
  };

  EtcdLeader(Etcd& etcd, Loop& loop, EtcdLeaderOptions options, Owner& owner);
  ~EtcdLeader() override;

  void Start();

 private:
  struct Seat {
    wire::EtcdMember record;
    int64_t changed = 0;                      ///< The revision at which its record was.
    SessionKey key;                           ///< Without a token it is not open.
    int64_t heeded = 0;                       ///< Its last wish that was.
    bool closes = false;                      ///< It has asked for it.
    wire::EtcdNotice notice;                  ///< What it is to know.
    std::optional<wire::EtcdNotice> written;  ///< What stands in etcd.
  };

  // --- Taking over
  void Read();
  void OnRead(Result<EtcdAnswer> answer);
  void KeepRun();
  void LoseRun();
  void Begin();
  Result<std::vector<wire::EtcdSeat>> LastRound() const;
  bool IsStale() const;
  Status AdoptRun(Instant now, Pushes& out);
  void TakeUp(Seat& seat, Instant now, Pushes& out);
  void TryAgain(const Error& why, std::function<void()> what);

  // --- Members
  void OnChanges(const std::vector<EtcdChange>& changes) override;
  void OnChange(const EtcdChange& change);
  void OnTrouble(const std::string& why) override;
  void OnEnd(const Error& why) override;
  void Resync();
  void OnResync(Result<EtcdAnswer> answer);
  /// By its record; nullptr: what is there is none.
  Seat* Seated(const EtcdPair& pair);
  void OpenSession(Seat& seat, Instant now, Pushes& out);
  bool IsMember() const;
  void Heed(Seat& seat, Instant now, Pushes& out);
  void Gone(const std::string& key, Instant now, Pushes& out);

  // --- What they are told
  void Tick();
  void Deliver(const Pushes& pushes);
  void Note(Seat& seat, const Push& push) const;
  void CommitRound(const std::vector<wire::EtcdSeat>& seats, const Push& any);
  void CommitRun();
  void WriteNotice(Seat& seat);
  void Rearm();
  void TellStatus();

  void OnDeposed() override;
  void OnOvertaken() override;
  void OnWriteFailed(const Error& why) override;
  void OnWritten() override { has_written_ = true; }

  Etcd& etcd_;
  Loop& loop_;
  const EtcdLeaderOptions options_;
  const wire::EtcdKeys& keys_ = options_.keys;
  const EtcdFence fence_{keys_.Leader(), options_.epoch, options_.value};
  Owner& owner_;
  std::optional<EtcdAnswer> read_;  // while taking over
  std::optional<Coordinator> coordinator_;
  std::optional<EtcdOutbox> outbox_;
  int64_t outboxes_ = 0;  // so far
  std::unique_ptr<EtcdWatch> watch_;
  wire::EtcdRun record_;
  bool is_recorded_ = false;  // whether there is a record in etcd
  int64_t closed_at_ = 0;     // members from before then are those it was closed for
  bool has_written_ = false;
  int64_t run_lease_ = 0;
  std::map<int64_t, Seat> seats_;          // by session
  std::map<std::string, int64_t> by_key_;  // of the member's record
  std::set<std::string> leftovers_;        // notices of nodes that are gone, of the present round
  Prng prng_;                              // for the names of plans
  std::string status_;
  Backoff backoff_;
  Lifetime lifetime_;  // renewed when all is read anew
  std::unique_ptr<Timer> retry_;
  std::unique_ptr<Timer> due_;
  std::unique_ptr<Timer> keeper_;
  std::unique_ptr<Timer> status_timer_;
};

}  // namespace muster
