// What the nodes of a run, and the one that leads them, write into etcd: keys, and JSON under them.
// docs/internals/etcd.md has them in words.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "rendezvous/core/run_report.h"
#include "rendezvous/core/session.h"

namespace muster::wire {

/// Where everything of one run is.
class EtcdKeys {
 public:
  EtcdKeys(std::string_view prefix, std::string_view run_id);

  const std::string& root() const { return root_; }  ///< All other keys begin so.
  std::string Leader() const { return root_ + "leader"; }
  std::string Run() const { return root_ + "run"; }
  std::string Status() const { return root_ + "status"; }
  /// The run that has this key; nullopt: none has.
  static std::optional<std::string> RunOf(std::string_view prefix, std::string_view key);
  std::string Turn() const { return root_ + "turn"; }
  std::string Members() const { return root_ + "members/"; }
  std::string Member(const Node& node) const;
  std::string Notices() const { return root_ + "notices/"; }
  std::string Notice(const Node& node) const;
  std::string Plans() const { return root_ + "plans/"; }
  std::string Plan(std::string_view plan, size_t part) const;
  std::string Store() const { return root_ + "store/"; }

 private:
  std::string root_;
};

/// What a node wants. Under its lease: where it is, the node lives. A node's session is the
/// revision at which its record was created.
struct EtcdMember {
  enum class Wish : uint8_t { kNone, kJoin, kLeave };
  Hello hello;       ///< `run_id` is in the key; `round` is the last one that the node was in.
  int64_t said = 0;  ///< Counts what it has wished for.
  Wish wish = Wish::kNone;
  Duration join_timeout{};
  bool closes = false;
  std::string close_reason{};
};
std::string Write(const EtcdMember& member);
/// kProtocol names `key` and what is wrong.
Result<EtcdMember> ReadEtcdMember(std::string_view key, std::string_view json);

/// What the leader has told one node so far, as a whole: whoever has missed some of it misses
/// nothing.
struct EtcdNotice {
  enum class Stage : uint8_t {
    kOpened,
    kAdmitted,
    kWaiting,
    kSpare,
    kComplete,
    kTimedOut,
    kLeft,
    kRefused,
  };
  int64_t session = 0;  ///< Whom it was meant for,
  int64_t lease = 0;    ///< and the lease of its record: no two sessions have the same.
  int64_t said = 0;     ///< The last wish that was heeded.
  Stage stage = Stage::kOpened;
  int64_t stage_round = 0;
  int64_t count = 0;  ///< Nodes in the round that forms.
  std::string why{};
  Push::Refusal refusal = Push::Refusal::kNone;
  /// Of a refusal: who refuses is itself one of those in the way, and lives.
  bool for_good = false;
  // The node's place, if it was ever given one.
  int64_t round = -1;
  int64_t rank = 0;
  int64_t world_size = 0;
  std::string addr{};
  uint16_t port = 0;
  std::string plan{};  ///< The name of the round's plan: no other round has it.
  // What has happened to that round since.
  int64_t lost = 0;
  std::string lost_who{};
  std::string lost_why{};
  int64_t waiting = 0;
  // What has happened to the run.
  bool closed = false;
  bool graceful = false;
  std::string closed_by{};
  int64_t run_lease = 0;  ///< What belongs to the run, and not to one node, goes with this lease.

  bool operator==(const EtcdNotice&) const = default;
};
std::string Write(const EtcdNotice& notice);
Result<EtcdNotice> ReadEtcdNotice(std::string_view key, std::string_view json);

/// How the run stood when its last round was completed, or when it was closed: what the next leader
/// goes on from. What formed since then, members will say again.
struct EtcdRun {
  RunSettings settings{};
  std::string settings_of{};
  int64_t round = -1;  ///< The last one that was completed; -1: none.
  int64_t world_size = 0;
  std::string addr{};  ///< Of its rank 0.
  uint16_t port = 0;
  std::string plan{};       ///< Who was in it: the name of its plan,
  int64_t parts = 0;        ///< and how many keys that has.
  std::string last_plan{};  ///< Of the round before.
  bool closed = false;
  std::string closed_by{};
};
std::string Write(const EtcdRun& run);
Result<EtcdRun> ReadEtcdRun(std::string_view key, std::string_view json);

/// Who was given which rank.
struct EtcdSeat {
  Node node;
  int64_t session = 0;
  int64_t rank = 0;
};
/// In as many values as it takes for none of them to be too long.
std::vector<std::string> WritePlan(const std::vector<EtcdSeat>& seats);
Result<std::vector<EtcdSeat>> ReadPlan(std::string_view key, std::string_view json);

/// Who leads. `token` tells its leadership apart from all others, also where a revision comes
/// twice.
std::string WriteLeader(const Node& node, uint64_t token);

/// For nodes that wait, and people: the same as the coordinator's answer, with a few of the names.
std::string WriteStatus(const RunReport& report);
Result<RunReport> ReadStatus(std::string_view key, std::string_view run_id, std::string_view json);

}  // namespace muster::wire
