#include "etcd/status.h"

#include <optional>
#include <string>
#include <utility>

#include "base/text.h"
#include "wire/etcd_records.h"

namespace muster {

namespace {

EtcdOperation Get(EtcdRange range) {
  return {.kind = EtcdOperation::Kind::kGet, .range = std::move(range)};
}

Result<std::vector<std::string>> RunsBelow(EtcdCalls& calls, std::string_view prefix,
                                           Instant deadline) {
  EtcdRange all = EtcdPrefix(Concat(prefix, "/"));
  all.keys_only = true;
  MUSTER_TRY(const EtcdAnswer answer, calls.Commit({.then = {Get(all)}}, deadline));
  std::vector<std::string> runs;
  for (const EtcdPair& pair : answer.results.front().pairs) {
    if (auto run = wire::EtcdKeys::RunOfStatus(prefix, pair.key)) runs.push_back(std::move(*run));
  }
  return runs;
}

}  // namespace

Result<std::vector<RunReport>> StatusInEtcd(EtcdCalls& calls, std::string_view prefix,
                                            std::string_view run_id, Instant deadline) {
  std::vector<std::string> runs{std::string(run_id)};
  if (run_id.empty()) {
    MUSTER_TRY(runs, RunsBelow(calls, prefix, deadline));
  }
  std::vector<RunReport> reports;
  for (const std::string& run : runs) {
    const std::string key = wire::EtcdKeys(prefix, run).Status();
    MUSTER_TRY(const EtcdAnswer answer, calls.Commit({.then = {Get({.begin = key})}}, deadline));
    const auto& found = answer.results.front().pairs;
    if (found.empty()) continue;
    MUSTER_TRY(RunReport report, wire::ReadStatus(key, run, found.front().value));
    reports.push_back(std::move(report));
  }
  return reports;
}

}  // namespace muster
