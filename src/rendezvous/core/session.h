// The messages of a session between a node and the coordinator.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/text.h"
#include "rendezvous/core/node.h"
#include "rendezvous/core/run_settings.h"

namespace muster {

/// The versions of this protocol that this build supports. A node sends its range when it opens a
/// session; the highest common version is used.
inline constexpr uint8_t kSessionVersion = 3;
inline constexpr uint8_t kSessionVersionOldest = 2;

/// One connection of one node; the driver assigns the number and never reuses it.
enum class SessionId : uint64_t {};

/// Which run a round belongs to. A server draws its own part when it starts and the run's part when
/// the run is created, so two runs of one name never have the same keys.
struct Generation {
  uint64_t server = 0;
  uint64_t run = 0;
  bool operator==(const Generation&) const = default;
  std::string ToString() const { return Concat(Hex(server, 16), Hex(run, 16)); }
};

/// The prefix of all keys that agents use in a round: the scope that the server deletes when the
/// round is old.
std::string RoundPrefix(const Generation& generation, int64_t round);
/// The same, in the form that it has on the wire.
std::string ScopeOf(const Generation& generation, int64_t round);

/// What a node sends to open a session.
struct Hello {
  std::string run_id;
  Node node;
  RunSettings settings{};
  std::string label{};  ///< The label for RankPolicy::kLabel.
  /// The port at which this node would serve the workers' store as rank 0.
  uint16_t bootstrap_port = 0;
  /// The session to resume; 0: a new one.
  uint64_t resume = 0;
  /// The last round that the node was in, -1 if none: rounds continue from there if the server has
  /// been restarted.
  int64_t round = -1;
  /// The server's address on this connection: the address at which other machines reach the
  /// server's machine.
  std::string server_addr{};
  uint8_t version = kSessionVersion;  ///< The highest protocol version that the node supports.
  /// The address of the connection, for fair shares; not sent. Empty: unknown.
  std::string from{};
};

/// The session and the incarnation of a message. Part of every message: a message from another
/// session, or from before the session was resumed, is refused.
struct SessionKey {
  SessionId session{};
  uint64_t token = 0;
  uint32_t incarnation = 0;  ///< How often the session has been opened.
  int64_t round = -1;        ///< The last round that the node was in, as far as it knows.
};

struct Push {
  enum class Kind : uint8_t {
    kOpened,        ///< The node is known as `addr`, with `token`; `resumed`: it kept its place.
    kRefused,       ///< `why`; nothing has changed.
    kAdmitted,      ///< The node is in the forming round.
    kWaiting,       ///< The round is complete; the node is in the list for the next one.
    kSpare,         ///< ... and full.
    kComplete,      ///< `rank` of `world_size` in `round` of `generation`; workers meet at
                    ///< `addr`:`port`. In etcd, `token` is the lease of what belongs to the run.
    kLost,          ///< `who` is no longer in the round, and `why`: one or several nodes.
    kNodesWaiting,  ///< `count` nodes wait for the next round.
    kClosed,    ///< The run was closed, by `who` because of `why`. `graceful`: the node was a spare
                ///< and is no longer needed.
    kTimedOut,  ///< The join failed in time; `why` says how many nodes were missing.
    kLeft,      ///< The node has left, as requested.
    kEnded,     ///< The session is over, and `why`. The connection ends with it.
  };
  /// For kRefused: what the node can do.
  enum class Refusal : uint8_t {
    kNone,
    kSettings,  ///< Nothing: its configuration differs from that of the others.
    kIdentity,  ///< Nothing, if another node has its name. If that is itself before a restart: try
                ///< again later.
    kLimit,     ///< Try again later.
    kPast,     ///< Nothing: the request is out of date; the message that explains it has been sent.
    kVersion,  ///< Nothing: it has no version of this protocol in common with the server.
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
  uint8_t version = kSessionVersion;  ///< kOpened: the protocol version from now on.
  bool resumed = false;
  bool graceful = false;
  std::string addr{};
  uint16_t port = 0;
  std::string who{};
  std::string why{};
};
using Pushes = std::vector<Push>;

/// The answer to a refused request.
Push Refuse(const SessionKey& key, Push::Refusal refusal, std::string why);
/// The answer to a request that is out of date.
template <typename... Pieces>
Push RefuseAsPast(const SessionKey& key, const Pieces&... why) {
  return Refuse(key, Push::Refusal::kPast, Concat(why...));
}

/// Nodes that a round has lost: how many, the first names, and why the first was lost.
struct Losses {
  int64_t count = 0;
  std::vector<std::string> names{};
  std::string why{};

  void Add(const Node& node, const std::string& its_why);
  Push ToPush() const;
};
/// How many nodes are named in a message.
inline constexpr size_t kNamesInMessage = 8;

/// Whether the address is useless to other machines.
bool IsLoopback(std::string_view addr);

}  // namespace muster
