#include "etcd/status.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "base/text.h"
#include "etcd/records.h"

namespace muster {

namespace {

// The leader's status is valid while the run has members. nullopt: no leader has written yet.
Result<std::optional<RunReport>> StatusOf(EtcdCalls& calls, const wire::EtcdKeys& keys,
                                          const std::string& run_id, Instant deadline) {
  const EtcdRange members = EtcdFirstKey(EtcdPrefix(keys.Members()));
  MUSTER_TRY(const EtcdAnswer answer,
             calls.Commit({.then = {EtcdGet(keys.Status()), EtcdGet(keys.Run()), EtcdGet(members)}},
                          deadline));
  const EtcdPair* const status = answer.Pair(0);
  const EtcdPair* const record = answer.Pair(1);
  const bool is_empty = answer.Pair(2) == nullptr;
  if (status == nullptr && record == nullptr) return std::optional<RunReport>();
  RunReport report;
  if (status != nullptr) {
    MUSTER_TRY(report, wire::Read<RunReport>(keys.Status(), status->value));
  }
  report.id = run_id;
  if (record != nullptr) {
    MUSTER_TRY(const wire::EtcdRun run, wire::Read<wire::EtcdRun>(keys.Run(), record->value));
    report.settings = run.settings;
    report.round = std::max(report.round, run.round);
    if (run.closed) {
      report.phase = RunReport::Phase::kClosed;
      report.closed_by = run.closed_by;
    }
  }
  if (is_empty) {
    if (report.phase != RunReport::Phase::kClosed) report.phase = RunReport::Phase::kEmpty;
    report.members.clear();
    report.participants = report.waiting = report.spares = report.idle = report.world_size = 0;
    report.last_call_left.reset();
  }
  return std::optional(std::move(report));
}

}  // namespace

Result<EtcdStatus> StatusInEtcd(EtcdCalls& calls, std::string_view prefix, std::string_view run_id,
                                Instant deadline) {
  std::set<std::string> runs{std::string(run_id)};
  if (run_id.empty()) {
    EtcdRange all = EtcdPrefix(Concat(prefix, "/"));
    all.keys_only = true;
    MUSTER_TRY(const EtcdAnswer answer, calls.Commit({.then = {EtcdGet(all)}}, deadline));
    runs.clear();
    for (const EtcdPair& pair : answer.results.front().pairs) {
      if (auto run = wire::EtcdKeys::RunOf(prefix, pair.key)) runs.insert(std::move(*run));
    }
  }
  EtcdStatus found;
  for (const std::string& run : runs) {
    auto report = StatusOf(calls, wire::EtcdKeys(prefix, run), run, deadline);
    const bool is_foreign = !report && report.error().code == Code::kProtocol;
    if (is_foreign && run_id.empty()) {
      found.ignored.push_back(report.error().message);
    } else if (!report) {
      return report.error();
    } else if (*report) {
      found.runs.push_back(std::move(**report));
    }
  }
  return found;
}

}  // namespace muster
