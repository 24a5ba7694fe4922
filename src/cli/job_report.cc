#include "cli/job_report.h"

#include <cstdio>
#include <optional>
#include <vector>

#include "base/text.h"
#include "cli/commands.h"
#include "launch/error_file.h"
#include "launch/failure_json.h"

namespace muster::cli {

namespace {

void Tell(const Status& written) {
  if (!written) std::fprintf(stderr, "muster: %s\n", written.error().message.c_str());
}

/// What whoever started us finds: the worker's own account, or that of a failure of ours.
void WriteParentErrorFile(const JobEnd& end, const std::optional<ErrorFile>& root_file,
                          const FailureRecord* root, Clock& clock) {
  if (end.parent_error_file.empty()) return;
  if (root_file && root != nullptr) {
    Tell(CopyErrorFile(*root_file, root->code, end.parent_error_file));
  } else if (end.signal != 0) {
    Tell(
        WriteWhole(end.parent_error_file,
                   OwnErrorFile("SignalException",
                                Concat(SignalName(end.signal), " came: ", end.why), clock.Wall())));
  } else if (root == nullptr) {
    Tell(WriteWhole(end.parent_error_file, OwnErrorFile("LauncherError", end.why, clock.Wall())));
  }
}

}  // namespace

void Account(const JobEnd& end, JobHost& host, const std::string& failure_elsewhere, Clock& clock) {
  std::vector<FailureRecord> records = host.failures();
  std::vector<std::optional<ErrorFile>> files = host.error_files();
  size_t root = records.empty() ? 0 : RootCause(records, RootCauseRule::kFirstSeen);
  if (!failure_elsewhere.empty()) {
    if (auto other = FailureFromJson(failure_elsewhere)) {
      records.insert(records.begin(), std::move(*other));
      files.insert(files.begin(), std::nullopt);
      root = 0;
    }
  }
  const bool workers_failed = !records.empty() && end.signal == 0;
  host.RecordEnd(end.status == kOk || workers_failed ? "" : end.why);
  if (end.status == kOk) return;
  if (workers_failed) {
    std::fprintf(stderr, "\n%s",
                 FailureReport(end.entry_point, records, root, LocalTimeText).c_str());
  } else {
    std::fprintf(stderr, "muster: %s\n", end.why.c_str());
  }
  WriteParentErrorFile(end, workers_failed ? files[root] : std::nullopt,
                       workers_failed ? &records[root] : nullptr, clock);
  if (!end.failure_report.empty()) {
    const FailedJob job{.entry_point = end.entry_point,
                        .node = records.empty()           ? ""
                                : host.failures().empty() ? ""
                                                          : host.failures().front().host,
                        .run_id = end.run_id,
                        .round = host.place() ? host.place()->round : 0,
                        .restarts = host.restarts()};
    if (records.empty()) {
      records.push_back({.code = 1,
                         .time_seconds = static_cast<int64_t>(clock.Wall()) / 1'000'000,
                         .message = end.why});
    }
    Tell(WriteWhole(end.failure_report, FailureReportJson(job, records, root)));
  }
}

}  // namespace muster::cli
