// The coordinator: runs the rendezvous machine for all nodes of all runs at one server, and decides
// which messages they receive.
//
// A node has one session at a time. An event costs O(log N); completing a round, ending it and
// closing it cost O(N), because all N nodes are notified. Time is the server's. No I/O, no clock,
// no thread: the driver delivers the messages, in order.
//
// Invariants, for each run:
//   * Every node in a list of `state` is in `members`. A member with a session is in `by_silence`,
//     one without is in `broken` until its grace is over.
//   * A member that is joining is in `deadlines`, unless it waits without limit (a spare).
//   * The number of the round never decreases, also over restarts of the server (`round_floor`).
//   * A closed run stays closed, for every node that has had a session in it. Another run of its
//     name begins with the first new node that comes when none of them is connected.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/limits.h"
#include "base/prng.h"
#include "base/time.h"
#include "rendezvous/core/closed_runs.h"
#include "rendezvous/core/node.h"
#include "rendezvous/core/observation.h"
#include "rendezvous/core/operations.h"
#include "rendezvous/core/run_report.h"
#include "rendezvous/core/run_settings.h"
#include "rendezvous/core/session.h"
#include "rendezvous/core/state.h"

namespace muster {

struct CoordinatorOptions {
  size_t runs_max = 10'000;
  size_t nodes_per_run_max = 128 * 1024;
  size_t ended_max = 1'000;  ///< Runs without nodes that are remembered; of closed ones, the keys
                             ///< of many more.
  size_t closed_runs_max = kClosedRunsMax;  ///< So many keys. When they are used up, closed runs
                                            ///< are not evicted, and new runs may be refused.
  /// The approximate limit for all runs and nodes together. Limits on connections do not bound it:
  /// a node is kept for as long as its own settings say, also without a connection.
  uint64_t bytes_max = UINT64_MAX;
  Duration ended_kept = 600s;  ///< How long a run without nodes is remembered, while there is room.
  /// The least time between two messages of one kind to all members of a round.
  Duration notice_pause = 100ms;
  /// Returns unpredictable numbers for tokens and generations: the kernel's on a server. Default:
  /// the same sequence each time, for tests.
  std::function<uint64_t()> entropy = [prng = Prng(0)]() mutable { return prng.Next(); };
  /// The driver has a store, and must know which scopes of it are in use.
  bool has_store = false;
  /// False: the driver knows which nodes are alive, and calls Disconnect() for the others. No node
  /// is declared lost because of silence, and none has a grace.
  bool judges_silence = true;
};

/// A scope of the store (see RoundPrefix) is now in use, or its keys can be deleted.
struct ScopeChange {
  Generation generation;
  int64_t round = 0;
  bool in_use = false;
};

/// The run has its first node, or has lost its last one.
struct UseChange {
  std::string run_id;
  bool in_use = false;
};

/// The state of a run in an earlier coordinator, with the nodes of its last round.
struct ResumedRun {
  struct Member {
    Hello hello;
    int64_t rank = 0;
    std::optional<SessionId> session{};  ///< None: the node is gone.
  };
  std::string id;
  RunSettings settings{};
  std::string settings_of{};
  int64_t round = -1;  ///< The last one that was completed; -1: none.
  int64_t world_size = 0;
  std::string first_addr{};
  uint16_t first_port = 0;
  bool closed = false;
  std::string closed_by{};
  std::vector<Member> members{};
};

class Coordinator {
 public:
  explicit Coordinator(const CoordinatorOptions& options = {});

  /// A node introduces itself on a new connection.
  void Open(SessionId session, const Hello& hello, Instant now, Pushes& out);
  /// Joins the next round, within `timeout`. Leaves the present round first.
  void Join(SessionKey key, Duration timeout, Instant now, Pushes& out);
  /// The node leaves its place, or ends its wait.
  void Leave(SessionKey key, Instant now, Pushes& out);
  /// Closes the run for all its nodes, permanently. A later run of its name is another one.
  void Close(SessionKey key, std::string_view reason, Instant now, Pushes& out);
  void KeepAlive(SessionKey key, Instant now, Pushes& out);
  /// The connection is gone.
  void Disconnect(SessionId session, Instant now);
  /// Executes what is due. Cheap if nothing is.
  void Tick(Instant now, Pushes& out);
  /// The earliest time at which Tick() may have something to do.
  Instant NextDue() const;
  /// Whether some run has nodes.
  bool HasNodes() const { return runs_.size() > ended_.size(); }
  /// Continues a run of another coordinator; the run must be unknown here. Its nodes receive again
  /// what they may have missed, including the loss of nodes.
  void ResumeRun(const ResumedRun& adopted, Instant now, Pushes& out);
  /// The server paused for `gap`, until now: it could not receive keep-alives in that time.
  void ForgiveSilence(Duration gap, Instant now);

  /// The changes since the last call, in order.
  std::vector<ScopeChange> TakeScopeChanges() { return std::exchange(scope_changes_, {}); }
  std::vector<UseChange> TakeUseChanges() { return std::exchange(use_changes_, {}); }

  /// The run's status, with at most `names_max` nodes in each role. nullopt: no such run.
  std::optional<RunReport> Report(std::string_view run_id, size_t names_max, Instant now) const;
  /// The status of at most `runs_max` runs whose ids follow `after`, without their nodes.
  std::vector<RunReport> Reports(std::string_view after, size_t runs_max, Instant now) const;

  struct Member;
  struct Run;
  static uint64_t CostOf(const std::string& run_id);
  static uint64_t CostOf(const Node& node, const std::string& label);
  /// Whether the limit allows `all`, of which one address has `its`. Addresses that have little may
  /// exceed the limit by a quarter: an address that uses up the limit does not keep out the nodes
  /// of others.
  static bool Allows(uint64_t limit, uint64_t all, uint64_t its) {
    return all <= limit || (its <= limit / 4 && all <= limit + limit / 4);
  }
  /// A deadline of a member. Ties are broken by age, so that a run can be replayed.
  struct Due {
    Instant at;
    uint64_t serial;
    Member* member;
    bool operator<(const Due& other) const {
      return at != other.at ? at < other.at : serial < other.serial;
    }
  };

  struct Member {
    Node node;
    uint64_t serial = 0;
    std::string label;
    uint16_t bootstrap_port = 0;
    uint64_t token = 0;
    uint32_t incarnation = 1;
    uint8_t version = kSessionVersion;  ///< The protocol version used with this node.
    std::optional<SessionId> session;   ///< None: its connection broke, and its grace is running.
    bool joining = false;
    Duration join_timeout{};
    Instant join_by = Instant::Never();  ///< Never: a spare waits without limit.
    Instant seen_at{};
    Instant grace_ends{};
    std::string from;                    ///< The address whose share of the memory it uses.
    std::optional<Place> place;          ///< Its place in the last round that it was in.
    std::list<Member*>::iterator quiet;  ///< Its position in by_silence, while it has a session.
  };

  struct Run {
    std::string id;
    std::string from;  ///< The address whose share of the runs it uses: that of its first node.
    uint64_t serial = 0;
    Generation generation;
    bool is_replaced = false;     ///< It is closed, and another run of its name has begun.
    std::vector<int64_t> scopes;  ///< Rounds whose keys the store still has, oldest first.
    RunSettings settings;
    std::string settings_of;  ///< The node that joined first, with these settings.
    RendezvousState state;
    Observation observed;
    std::map<Node, Member> members;
    std::list<Member*> by_silence;  ///< The longest silent first.
    std::set<Due> broken;           ///< Members without a session, by the end of their grace.
    std::set<Due> deadlines;        ///< Deadlines of members that are joining.
    std::string server_addr{};      ///< The address at which other machines reach this server.
    std::string first_addr{};       ///< Address of rank 0 of the last complete round.
    uint16_t first_port = 0;        ///< The port at which it serves the workers' store.
    int64_t waiting_sent = 0;  ///< The number of waiting nodes that was last sent to the members.
    Instant waiting_sent_at{};
    Losses losses{};         ///< Losses of the present round.
    Losses losses_unsent{};  ///< Losses that its members have not received yet.
    Instant losses_sent_at = Instant{};
    /// The forming round has members of the last one. It began when each of those had joined again,
    /// left, or been lost: no further member is expected back.
    bool reforms = false;
    int64_t missing = 0;           ///< Lost members that no node has replaced yet.
    Instant held_until{};          ///< Waiting nodes are not announced before this time.
    int64_t round_floor = 0;       ///< No round below this: a node has been in one.
    int64_t completed_round = -1;  ///< The last one.
    Instant forget_at = Instant::Never();
    Instant due = Instant::Never();  ///< The time noted in due_.
  };

  /// nullptr: no such run.
  const Run* Find(std::string_view run_id) const;
  // In run_report.cc.
  static RunReport ReportOn(const Run& run, size_t names_max, Instant now);
  /// Which nodes are present, and how many are missing.
  static std::string Missing(const Run& run);

 private:
  struct Seat {
    Run* run;
    Member* member;
  };
  /// The state before a change, for Follow().
  struct Before {
    bool complete;
    size_t participants;
  };

  // --- Sessions
  /// Refuses a node, for this reason.
  using RefuseNode = std::function<void(Push::Refusal refusal, std::string why)>;
  /// The run that the node may enter; null: it was refused.
  Run* RunFor(const Hello& hello, Instant now, const RefuseNode& refuse);
  /// The key of the node's run in runs_: the id, or, if the run was closed and then replaced or
  /// evicted, that of KeyOfClosed(). Replaces a closed run, if the node begins another one.
  std::string KeyFor(const Hello& hello, Instant now);
  /// `of_run`: its generation, or the token of one of its nodes, which begins with the same bits.
  std::string KeyOfClosed(const std::string& id, uint64_t of_run) const;
  Run& NewRun(const std::string& key, const std::string& id, const std::string& from);
  struct Share {
    uint64_t runs = 0;
    uint64_t bytes = 0;
  };
  /// The share of the address; an unknown one has all.
  Share ShareOf(const std::string& from) const;
  bool HasMemoryFor(const std::string& from, uint64_t more) const;
  /// Counts runs and bytes for the limits.
  void Charge(const std::string& from, int64_t runs, int64_t bytes);
  Member& NewMember(Run& run, const Hello& hello);
  void OpenAnew(Run& run, SessionId session, const Hello& hello, Instant now, Pushes& out);
  void Resume(Run& run, Member& member, SessionId session, Instant now, Pushes& out);
  /// The member that sent a message; refuses messages of other sessions and incarnations.
  std::optional<Seat> SenderOf(const SessionKey& key, Instant now, Pushes& out);
  /// After a reconnect: sends again what was lost with the old connection.
  static void SendAgain(const Run& run, const Member& member, Pushes& out);
  void Attach(Run& run, Member& member, SessionId session, Instant now);
  void Detach(Run& run, Member& member);

  // --- The machine
  /// Executes the actions of a joining node until it has to wait.
  void Advance(Run& run, Member& member, Instant now, Pushes& out);
  void Do(Run& run, Member& member, Action action, Instant now, Pushes& out);
  /// After a change: notifies and advances the nodes that it concerns.
  void Follow(Run& run, const Before& before, Instant now, Pushes& out);
  void Complete(Run& run, Instant now, Pushes& out);
  void PromoteSpares(Run& run, Instant now, Pushes& out);
  void MakeSpares(Run& run, Pushes& out);
  void SetDeadline(Run& run, Member& member, Instant deadline);
  void StopJoining(Run& run, Member& member);
  /// Removes the member from the round, or from the list that it is in.
  void Withdraw(Run& run, Member& member, Instant now, Pushes& out);
  struct Loss {
    Member* member;
    std::string why;
  };
  void Lose(Run& run, const std::vector<Loss>& losses, Instant now, Pushes& out);
  Instant LossesDueAt(const Run& run) const;
  void NotifyLosses(Run& run, Instant now, Pushes& out);
  Instant WaitingDueAt(const Run& run) const;
  static void NotifyWaiting(Run& run, Instant now, Pushes& out);
  static void SendState(const Run& run, const Member& member, Pushes& out);
  static void SendClosed(const Run& run, const Member& member, Pushes& out, bool graceful = false);
  /// Adds the fields that every message has, and sends it. Without a connection, the message is
  /// dropped.
  static void Send(const Run& run, const Member& member, Push push, Pushes& out);

  // --- Time
  void TickRun(Run& run, Instant now, Pushes& out);
  void CompleteIfAllAreHere(Run& run, Instant now, Pushes& out);
  static Instant LastCallEnds(const Run& run);
  Instant NextDueOf(const Run& run) const;
  void Reschedule(Run& run, Instant now);
  void Forget(Run& run);
  /// Makes room for a new run; closed runs stay closed.
  void EvictEnded(Instant now);
  void NoteUse(const Run& run, bool in_use);
  void UseScope(Run& run);
  void LeaveScopes(Run& run, size_t kept);
  uint64_t NewToken() { return std::max<uint64_t>(options_.entropy(), 1); }

  const CoordinatorOptions options_;
  const uint64_t server_generation_;
  const uint64_t closed_secret_;  ///< Part of the keys of closed runs.
  ClosedRuns closed_runs_;        ///< Keys of closed runs that were evicted early.
  std::vector<ScopeChange> scope_changes_;
  std::vector<UseChange> use_changes_;
  std::map<std::string, Run, std::less<>> runs_;
  std::unordered_map<SessionId, Seat> seats_;
  using Agenda = std::set<std::tuple<Instant, uint64_t, Run*>>;
  Agenda due_;
  Agenda ended_;  ///< Runs without nodes, by the time at which they expire.
  uint64_t made_ = 0;
  uint64_t bytes_ = 0;                   // of runs and nodes
  std::map<std::string, Share> shares_;  // shares of known addresses
};

}  // namespace muster
