// What a run is made of, all of it drawn from its seed: how many nodes, what they were told, which
// faults there are. Each run has some faults and not others: what all of them together would hide,
// a few show.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/time.h"
#include "core/rendezvous/run_settings.h"
#include "sim/network.h"

namespace muster::sim {

/// Beyond this many, a run is about scale.
inline constexpr int64_t kFewNodes = 64;

enum class Driver {
  kCoordinator,
  kDocument,
  kMixed,  ///< The document, shared with nodes that behave as PyTorch's do.
};
const char* NameOf(Driver driver);
std::optional<Driver> DriverOf(std::string_view name);

/// Switches, one for each kind of fault.
struct Faults {
  bool loss = false;
  bool delay = false;
  bool fragment = false;
  bool cut = false;  ///< A link, both ways or one way.
  bool clog = false;
  bool reset = false;
  bool crash = false;  ///< Of a node's process, and a new one after a while.
  bool power = false;  ///< The same, of its machine: nobody is told.
  bool pause = false;
  bool server_crash = false;  ///< It comes back, and has forgotten everything.
  bool server_pause = false;
  bool skew = false;        ///< Wall clocks differ.
  bool jump = false;        ///< ... and jump.
  bool drift = false;       ///< Monotonic clocks run at different speeds.
  bool slow_write = false;  ///< Of the document.
  bool lost_write = false;  ///< ... or it fails, and may have been made.
  bool same_pid = false;    ///< A process that starts anew has the id of the old one: containers.
  bool leave = false;       ///< Nodes leave, and come again.
  bool restart = false;     ///< Workers fail: nodes come together without a reason of the others.
  bool close = false;       ///< A node closes the rendezvous.
};

struct Plan {
  uint64_t seed = 0;
  Driver driver = Driver::kCoordinator;
  int64_t nodes = 4;
  int64_t strangers = 0;  ///< How many of them behave as PyTorch's.
  RunSettings settings{};
  Duration join_timeout = 20s;
  size_t server_loops = 1;
  NetworkOptions network{};
  Faults faults{};
  Duration arrival = 0s;   ///< Nodes start at any time within this.
  Duration trouble = 10s;  ///< Then all is mended.
  int64_t faults_at_once = 1;
  Duration fault_every = 500ms;  ///< On average.

  /// "seed=8123 driver=coordinator nodes=7 min=4 …": everything.
  std::string ToString() const;
  /// Within this, after all was mended, every run has come together.
  Duration HealBound() const;
  /// And stays together for so long: whoever was lost without a word has been noticed by then.
  Duration RestFor() const;
};

/// What the caller wants of a plan; the seed decides the rest.
struct Wishes {
  std::optional<Driver> driver{};
  std::optional<int64_t> nodes{};
  bool faults = true;
};
Plan Draw(uint64_t seed, const Wishes& wishes);

}  // namespace muster::sim
