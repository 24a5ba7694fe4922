// What happens in one history, drawn from its seed: how many clients, their requests, their faults.
// Two runs of one seed differ in their timing only. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/prng.h"
#include "histories/operation.h"

namespace muster::test {

/// The faults of the network and the callers. Each history has some of them.
struct Faults {
  bool splits = false;    ///< Bytes arrive in small pieces.
  bool delays = false;    ///< ... and late.
  bool cuts = false;      ///< Connections end in the middle of a request or a reply.
  bool abandons = false;  ///< Callers give up before the answer can arrive.

  bool any() const { return splits || delays || cuts || abandons; }
};

/// What a key is used for: the operations on it.
enum class Flavour { kCounter, kText, kQueue, kBoth };

struct PlannedKey {
  std::string name;
  Flavour flavour;
};

struct Plan {
  uint64_t seed = 0;
  int clients = 0;
  int operations = 0;  ///< Of each client.
  std::vector<PlannedKey> keys{};
  uint64_t joined_percent = 0;     ///< Operations that name several keys.
  uint64_t settled_percent = 0;    ///< Unanswered operations for which the client waits
                                   ///< nevertheless.
  uint64_t pipelined_percent = 0;  ///< Clients that send several requests before they read.
  Faults faults{};
};

struct PlanOptions {
  bool queues = true;     ///< PyTorch's server without libuv has none,
  bool pipelined = true;  ///< and disconnects on a GET of an absent key.
  uint64_t fault_percent = 50;
  std::string key_prefix{};  ///< Separates the histories of one server.
};

Plan DrawPlan(uint64_t seed, const PlanOptions& options);

/// "seed=7 clients=3 operations=12 keys=counter,queue ... faults=split,cut"
std::string Describe(const Plan& plan);

/// Draws one client's operations, with the knowledge of what it has seen so far.
class Drawer {
 public:
  Drawer(const Plan& plan, int client);

  /// The next operation; one that waits only if the caller can wait.
  Operation Next(bool waiting);
  /// Records what an operation has shown, so that a compareSet can succeed.
  void Note(const Operation& operation);
  Prng& prng() { return prng_; }
  bool Chance(uint64_t percent) { return prng_.Below(100) < percent; }

 private:
  Operation Joined(bool waiting);
  Operation OnCounter(const std::string& key);
  Operation OnText(const std::string& key);
  Operation OnQueue(const std::string& key);
  std::string Text();
  std::string Number();
  std::string Expectation(const std::string& key);

  const Plan& plan_;
  const int client_;
  Prng prng_;
  int made_ = 0;
  std::map<std::string, std::string> last_seen_;
};

}  // namespace muster::test
