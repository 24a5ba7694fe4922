// What a node and the coordinator say to each other in a session.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/core/node.h"
#include "rendezvous/core/run_settings.h"

namespace muster {

/// The versions of this protocol that this build speaks. A node names its own range when it opens a
/// session, and both go on with the highest that they have in common.
inline constexpr uint8_t kSessionVersion = 2;
inline constexpr uint8_t kSessionVersionOldest = 2;

/// One connection of one node, as the driver numbers them. Never used twice.
enum class SessionId : uint64_t {};

/// Which run a round belongs to. A server draws its own part when it starts and the run's part when
/// the run is created, so two runs of one name never have the same keys.
struct Generation {
  uint64_t server = 0;
  uint64_t run = 0;
  bool operator==(const Generation&) const = default;
  std::string ToString() const;  ///< 32 hexadecimal digits.
};

/// Every key that agents use in a round begins with this: the scope that the server deletes when
/// the round is old.
std::string RoundPrefix(const Generation& generation, int64_t round);
/// The same, as the store's clients and the store itself write it.
std::string ScopeOf(const Generation& generation, int64_t round);

/// How a node introduces itself.
struct Hello {
  std::string run_id;
  Node node;
  RunSettings settings{};
  std::string label{};          ///< For RankPolicy::kLabel.
  uint16_t bootstrap_port = 0;  ///< Where this node would serve the workers' store, as rank 0.
  /// The session to be taken up again; 0: a new one.
  uint64_t resume = 0;
  /// The last round that the node was in, -1 if none: rounds go on from there if the server has
  /// forgotten them.
  int64_t round = -1;
  /// Where this node found the server, as the server sees it: that machine's address for others.
  std::string server_addr{};
};

/// Whose message it is, and of when. Travels in every message: what was meant for another session,
/// or sent before it was taken up again, is refused.
struct SessionKey {
  SessionId session{};
  uint64_t token = 0;
  uint32_t incarnation = 0;  ///< How often the session has been opened.
  int64_t round = -1;        ///< The last one that the node was in, as it knows.
};

struct Push {
  enum class Kind : uint8_t {
    kOpened,        ///< The node is known as `addr`, with `token`; `resumed`: it kept its place.
    kRefused,       ///< `why`; nothing has changed.
    kAdmitted,      ///< In the round that is forming.
    kWaiting,       ///< The round is complete; in the list for the next one.
    kSpare,         ///< ... and full.
    kComplete,      ///< `rank` of `world_size` in `round` of `generation`; workers meet at
                    ///< `addr`:`port`. In etcd, `token` is the lease of what belongs to the run.
    kLost,          ///< `who` is no longer in the round, and `why`: one or several nodes.
    kNodesWaiting,  ///< `count` nodes wait for the next round.
    kClosed,        ///< By `who`, `why`. Of a spare that is no longer needed: `graceful`.
    kTimedOut,      ///< The join came to nothing; `why` says who was missing.
    kLeft,          ///< The node has left as it wished.
    kEnded,         ///< The session is over, and `why`. The connection ends with it.
  };
  /// Of kRefused: what the node can do about it.
  enum class Refusal : uint8_t {
    kNone,
    kSettings,  ///< Nothing: it was told something else than the others.
    kIdentity,  ///< Nothing: another node has its name. Unless that is itself, before it started
                ///< anew.
    kLimit,     ///< Try again later.
    kPast,      ///< Nothing: what it asked is out of date, and it is about to hear why.
    kVersion,   ///< Nothing: it and the server have no version of this protocol in common.
  };

  SessionId to{};
  Kind kind{};
  Refusal refusal = Refusal::kNone;
  uint32_t incarnation = 0;
  int64_t round = 0;
  int64_t rank = 0;
  int64_t world_size = 0;
  int64_t count = 0;
  uint64_t token = 0;
  Generation generation{};
  uint8_t version = kSessionVersion;  ///< kOpened: of the protocol that both speak from now on.
  bool resumed = false;
  bool graceful = false;
  std::string addr{};
  uint16_t port = 0;
  std::string who{};
  std::string why{};
};
using Pushes = std::vector<Push>;

/// The answer to a message that cannot be granted.
Push Refuse(const SessionKey& key, Push::Refusal refusal, std::string why);
/// Nodes that a round has lost: how many, the first of them by name, and why the first.
struct Losses {
  int64_t count = 0;
  std::vector<std::string> names{};
  std::string why{};

  void Add(const Node& node, const std::string& its_why);
  Push ToPush() const;
};
/// How many nodes are named in a message.
inline constexpr size_t kNamesTold = 8;

/// An address that leads nowhere from other machines.
bool IsLoopback(std::string_view addr);

}  // namespace muster
