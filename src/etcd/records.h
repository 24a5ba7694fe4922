// The keys that the nodes of a run and their leader write into etcd, and the JSON under them.
// docs/internals/etcd.md describes them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/text.h"
#include "rendezvous/core/run_report.h"
#include "rendezvous/core/session.h"

namespace muster::wire {

/// The keys of one run.
class EtcdKeys {
 public:
  EtcdKeys(std::string_view prefix, std::string_view run_id);

  const std::string& root() const { return root_; }  ///< All other keys begin so.
  std::string Leader() const { return root_ + "leader"; }
  std::string Run() const { return root_ + "run"; }
  std::string Status() const { return root_ + "status"; }
  /// The run that this key belongs to; nullopt: none.
  static std::optional<std::string> RunOf(std::string_view prefix, std::string_view key);
  std::string Turn() const { return root_ + "turn"; }
  std::string Members() const { return root_ + "members/"; }
  std::string Member(const Node& node) const;
  std::string Notices() const { return root_ + "notices/"; }
  std::string Notice(const Node& node) const;
  std::string Plans() const { return root_ + "plans/"; }
  std::string Plan(std::string_view plan) const { return Concat(Plans(), plan, "/"); }
  std::string Plan(std::string_view plan, size_t part) const { return Concat(Plan(plan), part); }
  std::string Store() const { return root_ + "store/"; }

 private:
  std::string root_;
};

/// A node's request. The record is under the node's lease: while it exists, the node lives. Its
/// creation revision is the node's session.
struct EtcdMember {
  enum class Request : uint8_t { kNone, kJoin, kLeave };
  Hello hello;         ///< `run_id` is in the key; `round` is the last one that the node was in.
  int64_t serial = 0;  ///< Counts the node's requests.
  Request request = Request::kNone;
  Duration join_timeout{};
  bool closes = false;
  std::string close_reason{};
};

/// All that the leader has to report to one node: the last push of each kind. It is complete: a
/// node that missed earlier versions has missed nothing.
struct EtcdNotice {
  int64_t session = 0;  ///< Of the node,
  int64_t lease = 0;    ///< and the lease of its record, which no other session has.
  int64_t serial = 0;   ///< The last request that the leader has processed.
  /// The last push that changed where the node stands: kAdmitted to kComplete, kTimedOut, kLeft or
  /// kRefused; or kOpened.
  Push stage{.kind = Push::Kind::kOpened};
  /// Of a refusal for other settings: the leader itself is in the run, so waiting will not help.
  bool is_final = false;
  /// The node's last place; `round` is -1: it never had one. `who` is the name of the round's plan,
  /// which no other round has; `token` is the lease of all keys that belong to the run and not to
  /// one node.
  Push place{.kind = Push::Kind::kComplete, .round = -1};
  // What has happened in that round since.
  Push lost{.kind = Push::Kind::kLost};  ///< `count` nodes so far; the names of the last ones.
  int64_t waiting = 0;
  // What has happened to the run.
  bool closed = false;
  Push closing{.kind = Push::Kind::kClosed};
};

/// The run when its last round was completed, or when it was closed: the next leader continues from
/// here. It reads the forming round from the members' records.
struct EtcdRun {
  RunSettings settings{};
  std::string settings_of{};
  int64_t round = -1;  ///< The last one that was completed; -1: none.
  int64_t world_size = 0;
  std::string addr{};  ///< Of its rank 0.
  uint16_t port = 0;
  std::string plan{};       ///< The name of its plan,
  int64_t parts = 0;        ///< and the number of keys that the plan has.
  std::string last_plan{};  ///< Of the round before.
  bool closed = false;
  std::string closed_by{};
};

/// The JSON of a record: an EtcdMember, EtcdNotice or EtcdRun. A RunReport (with a few of the
/// names) is the status, for people and for nodes that wait.
template <typename Record>
std::string Write(Record record);
/// kProtocol names `key` and what is wrong. A RunReport does not get its id.
template <typename Record>
Result<Record> Read(std::string_view key, std::string_view json);

/// One node's place in a round.
struct EtcdPlace {
  Node node;
  int64_t session = 0;
  int64_t rank = 0;
};
/// In several values, so that each fits into one transaction.
std::vector<std::string> WritePlan(const std::vector<EtcdPlace>& places);
Result<std::vector<EtcdPlace>> ReadPlan(std::string_view key, std::string_view json);

/// The leader. `token` distinguishes its leadership from all others, also if etcd is restored from
/// older data and a revision occurs twice.
std::string WriteLeader(const Node& node, uint64_t token);

}  // namespace muster::wire
