// The shared-document driver: runs a node's operations on a document that it shares with others.
//
// Sync, decide, apply, sync again, until the decision is final. After a lost write, and after a
// read without news, it pauses: for a random time, so that nodes do not act in step, which grows
// with the number of nodes that are likely to write, too.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tuple>

#include "base/prng.h"
#include "base/result.h"
#include "base/time.h"
#include "rendezvous/core/node.h"
#include "rendezvous/core/operations.h"
#include "rendezvous/core/run_settings.h"
#include "rendezvous/document/shared_document.h"

namespace muster {

/// What the driver reports. Called on the thread that runs the operation.
struct DriverHooks {
  std::function<void(Action action, const RendezvousState& after)> on_action{};
  std::function<void(bool stored)> on_write{};
};

/// What a waiting node knows: a snapshot for people.
struct WaitSnapshot {
  RendezvousState state;
  std::set<Node> quiet;  ///< Nodes that have missed a heartbeat, and are not yet declared lost.
  std::optional<Instant> last_call_ends;  ///< As observed by this node.
  Instant deadline = Instant::Never();
};

/// One operation at a time; Snapshot() from any thread.
///
/// Where the backend supports it, waiting nodes are woken: by the news "<round>/MUSTER_COMPLETE"
/// when a round is complete, "<round>/MUSTER_OVER" when its last member has left, and by both when
/// the rendezvous is closed. PyTorch's agents announce nothing, so all nodes also read the state
/// from time to time.
class RendezvousDriver {
 public:
  RendezvousDriver(SharedDocument& document, Node self, const RunSettings& settings, Clock& clock,
                   uint64_t seed, DriverHooks hooks);

  /// The final decision: kFinish, or one of the errors. Backend errors are returned as such;
  /// kInterrupted (base/interruption.h): after a join or an exit, the node is in no list.
  Result<Decision> Join(Instant deadline);
  Result<Decision> Exit(Instant deadline);
  /// All nodes see `reason`, with this node's name.
  Result<Decision> Close(std::string_view reason);
  /// `place`: this node's place when it joined.
  Result<Decision> KeepAlive(std::optional<Place> place);

  const Node& self() const { return self_; }
  /// A pause before the first contact, so that nodes that start at the same instant do not all
  /// arrive at the same instant.
  Duration FirstDelay();

  /// Round, whether it is complete, participants, waiters.
  using Shape = std::tuple<int64_t, bool, size_t, size_t>;

  /// The snapshot of the operation that waits now, or waited last; null before the first read and
  /// after Forget().
  std::shared_ptr<const WaitSnapshot> Snapshot() const;
  void Forget();

 private:
  using Decide = Decision (*)(const Outlook&);
  struct Operation {
    Decide decide;
    Instant deadline;
    std::optional<Place> place{};
    std::string closed_by{};
    int lost_in_a_row = 0;
    int looks_without_news = 0;
    Shape shape{};
    std::string last_news{};
  };

  Result<Decision> Run(Operation operation);
  /// Removes the node from every list, if the backend allows it. Otherwise the others detect its
  /// silence.
  void GiveUp();
  void Perform(Action action, Operation& operation);
  /// Wakes the nodes that wait for what has just been stored.
  void AnnounceChange(int64_t round_before, bool complete_before, bool closed_before);
  /// Uniform in [0, longest].
  Duration Draw(Duration longest);
  void PauseAfterLoss(Operation& operation);
  void PauseUntilNextLook(const Decision& decision, Operation& operation);
  int64_t Missing() const;
  void Publish(const Outlook& outlook, const Decision& decision);

  SharedDocument& document_;
  const Node self_;
  const RunSettings& settings_;
  Clock& clock_;
  Prng prng_;
  int64_t last_round_ = -1;  // the last round that this node was in
  const DriverHooks hooks_;
  Duration write_time_ = 1ms;  ///< Duration of the last write.
  Duration read_time_ = 100us;

  mutable std::mutex mutex_;
  std::shared_ptr<const WaitSnapshot> snapshot_;
};

}  // namespace muster
