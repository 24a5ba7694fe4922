// The coordinator: runs the rendezvous machine for all nodes of all runs that meet at one server,
// and says whom to tell what.
//
// Nodes speak through sessions, one at a time for each node. An event costs O(log N); completing a
// round, ending it and closing it cost O(N), for all N are told. Time is the server's. No I/O, no
// clock, no thread: whoever drives it delivers what comes out, in order.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/prng.h"
#include "base/time.h"
#include "core/rendezvous/node.h"
#include "core/rendezvous/observation.h"
#include "core/rendezvous/operations.h"
#include "core/rendezvous/rank_policy.h"
#include "core/rendezvous/rules.h"
#include "core/rendezvous/state.h"

namespace muster {

/// One connection of one node, as the driver numbers them. Never used twice.
enum class SessionId : uint64_t {};

/// What all nodes of a run must have been told alike.
struct RunSettings {
  int64_t min_nodes = 1;
  int64_t max_nodes = 1;
  Duration last_call = 30s;
  Duration keep_alive_interval = 1s;
  int64_t keep_alive_max_attempt = 3;
  Duration grace = 300ms;  ///< For a node whose connection broke to come back.
  RankPolicy policy = RankPolicy::kNatural;

  /// What of these differs in `other`, for people: "max_nodes 4 against 8". Empty: nothing.
  std::string Against(const RunSettings& other) const;
  bool operator==(const RunSettings&) const = default;
};

/// How a node introduces itself.
struct Hello {
  std::string run_id;
  Node node;
  RunSettings settings{};
  std::string label{};          ///< For RankPolicy::kLabel.
  uint16_t bootstrap_port = 0;  ///< Where this node would serve the workers' store, as rank 0.
  uint64_t resume = 0;          ///< The token of the session to be taken up again; 0: a new one.
};

/// Travels in every message of a session: what was meant for another one is refused.
struct SessionKey {
  SessionId session{};
  uint64_t token = 0;
};

struct Push {
  enum class Kind : uint8_t {
    kOpened,        ///< `token` is the session's; `resumed` tells whether the node kept its place.
    kRefused,       ///< `why`; nothing has changed.
    kAdmitted,      ///< In the round that is forming.
    kWaiting,       ///< The round is complete; in the list for the next one.
    kSpare,         ///< ... and full.
    kComplete,      ///< `rank` of `world_size` in `round`; workers meet at `addr`:`port`.
    kLost,          ///< `who` is no longer in the round, and `why`.
    kNodesWaiting,  ///< `count` nodes wait for the next round.
    kClosed,        ///< By `who`, `why`. Of a spare that is no longer needed: `graceful`.
    kTimedOut,      ///< The join came to nothing; `why` says who was missing.
    kLeft,          ///< The node has left as it wished.
  };

  SessionId to{};
  Kind kind{};
  int64_t round = 0;
  int64_t rank = 0;
  int64_t world_size = 0;
  int64_t count = 0;
  uint64_t token = 0;
  bool resumed = false;
  bool graceful = false;
  std::string addr{};
  uint16_t port = 0;
  std::string who{};
  std::string why{};
};
using Pushes = std::vector<Push>;

struct CoordinatorOptions {
  size_t runs_max = 10'000;
  size_t nodes_per_run_max = 128 * 1024;
  Duration ended_kept = 600s;  ///< How long a run that is closed or empty is remembered.
  uint64_t seed = 0;           ///< Of the tokens.
};

class Coordinator {
 public:
  explicit Coordinator(const CoordinatorOptions& options = {});

  /// A node introduces itself on a new connection.
  void Open(SessionId session, const Hello& hello, Instant now, Pushes& out);
  /// The node wants the next round, until `timeout` has passed. Leaves the present one first.
  void Join(SessionKey key, Duration timeout, Instant now, Pushes& out);
  /// The node gives up its place, or its wait. `round`: where it believes to be.
  void Leave(SessionKey key, int64_t round, Instant now, Pushes& out);
  /// For all nodes of the run, and for good.
  void Close(SessionKey key, std::string_view reason, Instant now, Pushes& out);
  void KeepAlive(SessionKey key, Instant now, Pushes& out);
  /// The connection is gone.
  void Disconnect(SessionId session, Instant now);
  /// What the passing of time brings. Cheap if nothing is due.
  void Tick(Instant now, Pushes& out);
  /// When Tick() will have something to do.
  Instant NextDue() const;

  struct Member {
    Node node;
    std::string label;
    uint16_t bootstrap_port = 0;
    uint64_t token = 0;
    std::optional<SessionId> session;  ///< None: its connection broke, and its grace runs.
    bool joining = false;
    Duration join_timeout{};
    Instant join_by = Instant::Never();  ///< A spare waits without limit.
    Instant seen_at{};
    Instant grace_ends{};
    std::optional<Place> place;              ///< In the round that it is in, or was in last.
    std::list<const Node*>::iterator quiet;  ///< Its place in by_silence, while it has a session.
  };

  struct Run {
    std::string id;
    RunSettings settings;
    std::string settings_of;  ///< The node that came first, and whose settings they are.
    RendezvousRules rules;
    RendezvousState state;
    Observation observed;
    std::map<Node, Member> members;
    std::list<const Node*> by_silence;                    ///< The one not heard for longest first.
    std::set<std::pair<Instant, const Node*>> broken;     ///< By the end of their grace.
    std::set<std::pair<Instant, const Node*>> deadlines;  ///< Of those who are joining.
    Node first{};              ///< Rank 0 of the round that was completed last,
    uint16_t first_port = 0;   ///< and where it serves the workers' store.
    int64_t told_waiting = 0;  ///< What the members of the round were last told.
    Instant forget_at = Instant::Never();
    Instant due = Instant::Never();  ///< As noted in due_.
  };

  /// nullptr: no such run.
  const Run* Find(std::string_view run_id) const;
  size_t runs() const { return runs_.size(); }

 private:
  struct Seat {
    Run* run;
    Member* member;
  };
  /// What a change is judged by.
  struct Before {
    bool complete;
    size_t participants;
    size_t waiting;
  };

  // --- Sessions
  Run* RunFor(const Hello& hello, SessionId session, Pushes& out);
  void OpenAnew(Run& run, SessionId session, const Hello& hello, Instant now, Pushes& out);
  void Resume(Run& run, Member& member, SessionId session, Instant now, Pushes& out);
  /// Whose message it is; refuses those that are nobody's.
  std::optional<Seat> Speaker(SessionKey key, Instant now, Pushes& out);
  void Attach(Run& run, Member& member, SessionId session, Instant now);
  void Detach(Run& run, Member& member);

  // --- The machine
  Outlook Look(const Run& run, const Member& member, Instant now) const;
  /// Lets a joining node act until there is nothing left for it but to wait.
  void Advance(Run& run, Member& member, Instant now, Pushes& out);
  void Do(Run& run, Member& member, Action action, Instant now, Pushes& out);
  /// After a change: tells and advances whom it concerns.
  void Follow(Run& run, const Before& before, Instant now, Pushes& out);
  void Complete(Run& run, Pushes& out);
  void AdvanceAll(Run& run, const std::set<Node>& nodes, Instant now, Pushes& out);
  void SetDeadline(Run& run, Member& member, Instant deadline);
  void StopJoining(Run& run, Member& member);
  /// Out of the round, or of the list that it is in.
  void Withdraw(Run& run, Member& member, Instant now, Pushes& out);
  void Lose(Run& run, Member& member, const std::string& why, Instant now, Pushes& out);
  void TellWaiting(Run& run, Pushes& out);
  void TellState(const Run& run, const Member& member, Pushes& out) const;

  // --- Time
  void TickRun(Run& run, Instant now, Pushes& out);
  static Instant NextDueOf(const Run& run);
  void Reschedule(Run& run, Instant now);

  const CoordinatorOptions options_;
  Prng prng_;
  std::map<std::string, Run, std::less<>> runs_;
  std::unordered_map<SessionId, Seat> seats_;
  std::set<std::pair<Instant, Run*>> due_;
};

}  // namespace muster
