// The coordinator: runs the rendezvous machine for all nodes of all runs that meet at one server,
// and says whom to tell what.
//
// Nodes speak through sessions, one at a time for each node. An event costs O(log N); completing a
// round, ending it and closing it cost O(N), for all N are told. Time is the server's. No I/O, no
// clock, no thread: whoever drives it delivers what comes out, in order.
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

#include "base/time.h"
#include "rendezvous/core/closed_runs.h"
#include "rendezvous/core/node.h"
#include "rendezvous/core/observation.h"
#include "rendezvous/core/operations.h"
#include "rendezvous/core/rank_policy.h"
#include "rendezvous/core/rules.h"
#include "rendezvous/core/run_report.h"
#include "rendezvous/core/run_settings.h"
#include "rendezvous/core/session.h"
#include "rendezvous/core/state.h"

namespace muster {

struct CoordinatorOptions {
  size_t runs_max = 10'000;
  size_t nodes_per_run_max = 128 * 1024;
  size_t ended_max = 1'000;  ///< Runs without nodes that are remembered; of closed ones, the names
                             ///< of many more.
  /// For all runs and nodes together, about: a node may stay for as long as its own settings say,
  /// with no connection that would count for it.
  uint64_t bytes_max = UINT64_MAX;
  Duration ended_kept = 600s;  ///< How long a run without nodes is remembered, while there is room.
  /// Numbers that nobody can predict, for tokens and generations: the kernel's on a server. Unset:
  /// a sequence that is the same each time, for tests.
  std::function<uint64_t()> entropy{};
  /// The driver has a store beside it, and wants to know which scopes of it are in use.
  bool has_store = false;
  /// False: whoever drives it knows who lives, and says Disconnect() of those who do not; nobody is
  /// given up for being silent, and nobody is waited for.
  bool judges_silence = true;
};

/// A scope of the store (see RoundPrefix) has come into use, or its keys can be deleted.
struct ScopeChange {
  Generation generation;
  int64_t round = 0;
  bool in_use = false;
};

/// A run as another coordinator has left it, with the nodes of its last round.
struct AdoptedRun {
  struct Member {
    Node node;
    int64_t rank = 0;
    std::optional<SessionId> session{};  ///< None: it is gone.
    std::string label{};
    uint16_t bootstrap_port = 0;
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

/// What a driver must keep of a run, so that another coordinator can go on from there.
struct RunSnapshot {
  RunSettings settings{};
  std::string settings_of{};
  int64_t round = 0;
  bool closed = false;
  std::string closed_by{};
  int64_t waiting = 0;  ///< Nodes that wait for the next round.
  int64_t lost = 0;     ///< Nodes that the last complete round has lost.
};

class Coordinator {
 public:
  explicit Coordinator(const CoordinatorOptions& options = {});

  /// A node introduces itself on a new connection.
  void Open(SessionId session, const Hello& hello, Instant now, Pushes& out);
  /// The node wants the next round, until `timeout` has passed. Leaves the present one first.
  void Join(SessionKey key, Duration timeout, Instant now, Pushes& out);
  /// The node gives up its place, or its wait.
  void Leave(SessionKey key, Instant now, Pushes& out);
  /// For all nodes of the run, and for good.
  void Close(SessionKey key, std::string_view reason, Instant now, Pushes& out);
  void KeepAlive(SessionKey key, Instant now, Pushes& out);
  /// The connection is gone.
  void Disconnect(SessionId session, Instant now);
  /// What the passing of time brings. Cheap if nothing is due.
  void Tick(Instant now, Pushes& out);
  /// When Tick() may have something to do, at the earliest.
  Instant NextDue() const;
  /// Goes on where another one ended. The run is not known yet. The nodes that are there are told
  /// what they may have missed, also of those that are gone.
  void Adopt(const AdoptedRun& adopted, Instant now, Pushes& out);
  /// For so long, until now, the server could not listen: nobody was silent in that time.
  void ForgiveSilence(Duration gap, Instant now);

  /// What has changed since the last call; in order.
  std::vector<ScopeChange> TakeScopeChanges() { return std::exchange(scope_changes_, {}); }

  /// How the run stands, with at most so many of the nodes in each role. nullopt: no such run.
  std::optional<RunReport> Report(std::string_view run_id, size_t names_max, Instant now) const;
  /// nullopt: no such run.
  std::optional<RunSnapshot> Snapshot(std::string_view run_id) const;
  /// Of at most so many runs whose ids follow `after`, without their nodes.
  std::vector<RunReport> Reports(std::string_view after, size_t runs_max, Instant now) const;
  /// Whether nodes of the run are here.
  bool IsInUse(std::string_view run_id) const;

  struct Member;
  struct Run;
  static uint64_t CostOf(const std::string& run_id);
  static uint64_t CostOf(const Node& node, const std::string& label);
  /// What is to happen to a member, and when. Ties are broken by age: a run can be replayed.
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
    std::optional<SessionId> session;  ///< None: its connection broke, and its grace runs.
    bool joining = false;
    Duration join_timeout{};
    Instant join_by = Instant::Never();  ///< A spare waits without limit.
    Instant seen_at{};
    Instant grace_ends{};
    std::optional<Place> place;          ///< In the round that it is in, or was in last.
    std::list<Member*>::iterator quiet;  ///< Its place in by_silence, while it has a session.
  };

  struct Run {
    std::string id;
    uint64_t serial = 0;
    Generation generation;
    std::vector<int64_t> scopes;  ///< Rounds whose keys the store still has, oldest first.
    RunSettings settings;
    std::string settings_of;  ///< The node that came first, and whose settings they are.
    RendezvousRules rules;
    RendezvousState state;
    Observation observed;
    std::map<Node, Member> members;
    std::list<Member*> by_silence;  ///< The one not heard for longest first.
    std::set<Due> broken;           ///< By the end of their grace.
    std::set<Due> deadlines;        ///< Of those who are joining.
    std::string server_addr{};      ///< Where nodes of other machines found this server.
    std::string first_addr{};       ///< Of rank 0 of the round that was completed last,
    uint16_t first_port = 0;        ///< and where it serves the workers' store.
    int64_t told_waiting = 0;       ///< What the members of the round were last told,
    Instant told_waiting_at{};      ///< and when.
    Losses fallen{};                ///< Whom the round has lost,
    Losses untold{};                ///< and whom of them its members have not heard of.
    Instant told_lost = Instant{};
    int64_t round_floor = 0;       ///< No round below this: some node has been in one before.
    int64_t completed_round = -1;  ///< The last one.
    Instant forget_at = Instant::Never();
    Instant due = Instant::Never();  ///< As noted in due_.
  };

  /// nullptr: no such run.
  const Run* Find(std::string_view run_id) const;
  size_t runs() const { return runs_.size(); }
  // In run_report.cc.
  static RunReport ReportOn(const Run& run, size_t names_max, Instant now);
  /// Who is there, and how many are not.
  static std::string Missing(const Run& run);

 private:
  struct Seat {
    Run* run;
    Member* member;
  };
  /// What a change is judged by.
  struct Before {
    explicit Before(const RendezvousState& state)
        : complete(state.complete), participants(state.participants.size()) {}
    bool complete;
    size_t participants;
  };

  // --- Sessions
  Run* RunFor(const Hello& hello, SessionId session, Instant now, Pushes& out);
  Run& NewRun(const std::string& id, Instant now);
  void OpenAnew(Run& run, SessionId session, const Hello& hello, Instant now, Pushes& out);
  void Resume(Run& run, Member& member, SessionId session, Instant now, Pushes& out);
  /// Whose message it is; refuses those that are nobody's.
  std::optional<Seat> Speaker(const SessionKey& key, Instant now, Pushes& out);
  /// After it was opened again: what was said meanwhile is lost.
  static void TellAnew(const Run& run, const Member& member, Pushes& out);
  void Attach(Run& run, Member& member, SessionId session, Instant now);
  void Detach(Run& run, Member& member);

  // --- The machine
  Outlook Look(const Run& run, const Member& member, Instant now) const;
  /// Lets a joining node act until there is nothing left for it but to wait.
  void Advance(Run& run, Member& member, Instant now, Pushes& out);
  void Do(Run& run, Member& member, Action action, Instant now, Pushes& out);
  /// After a change: tells and advances whom it concerns.
  static void EndRound(Run& run);
  void Follow(Run& run, const Before& before, Instant now, Pushes& out);
  void Complete(Run& run, Pushes& out);
  static std::string AddressOfFirst(const Run& run, const Node& first);
  void AdvanceAll(Run& run, const std::set<Node>& nodes, Instant now, Pushes& out);
  void PromoteSpares(Run& run, Instant now, Pushes& out);
  void MakeSpares(Run& run, Pushes& out);
  void SetDeadline(Run& run, Member& member, Instant deadline);
  void StopJoining(Run& run, Member& member);
  /// Out of the round, or of the list that it is in.
  void Withdraw(Run& run, Member& member, Instant now, Pushes& out);
  struct Loss {
    Member* member;
    std::string why;
  };
  void Lose(Run& run, const std::vector<Loss>& losses, Instant now, Pushes& out);
  static Instant TellLostAt(const Run& run);
  void TellLost(Run& run, Instant now, Pushes& out);
  static Instant TellWaitingAt(const Run& run);
  static void TellWaiting(Run& run, Instant now, Pushes& out);
  static void TellState(const Run& run, const Member& member, Pushes& out);
  static void TellClosed(const Run& run, const Member& member, Pushes& out, bool graceful = false);
  /// Fills in what every message carries. Nobody hears it where there is no connection.
  static void Tell(const Run& run, const Member& member, Push push, Pushes& out);

  // --- Time
  void TickRun(Run& run, Instant now, Pushes& out);
  static Instant LastCallEnds(const Run& run);
  Instant NextDueOf(const Run& run) const;
  void Reschedule(Run& run, Instant now);
  void Forget(Run& run);
  /// Makes room for a new run where there is none; what was closed stays closed.
  void EvictEnded(Instant now);
  void UseScope(Run& run);
  void LeaveScopes(Run& run, size_t kept);
  uint64_t NewToken() { return std::max<uint64_t>(options_.entropy(), 1); }

  const CoordinatorOptions options_;
  const uint64_t server_generation_;
  ClosedRuns closed_runs_;  ///< Those that were evicted before their time.
  std::vector<ScopeChange> scope_changes_;
  std::map<std::string, Run, std::less<>> runs_;
  std::unordered_map<SessionId, Seat> seats_;
  using Agenda = std::set<std::tuple<Instant, uint64_t, Run*>>;
  Agenda due_;
  Agenda ended_;  ///< Runs without nodes, by when they are to be forgotten.
  uint64_t made_ = 0;
  uint64_t bytes_ = 0;  // of runs and nodes
};

}  // namespace muster
