#include "cli/job_report.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "base/text.h"
#include "cli/commands.h"
#include "cli/process.h"
#include "launch/logs/error_file.h"
#include "launch/logs/failure_json.h"

namespace muster::cli {

namespace {

void WarnUnless(const Status& written) {
  if (!written) ReportStderr(Concat("muster: ", OneLine(written.error().message), "\n"));
}

/// For the parent of this process: the worker's error file, or one about a failure of the launcher.
void WriteParentErrorFile(const JobEnd& end, const std::optional<ErrorFile>& root_file,
                          const FailureRecord* root, Clock& clock) {
  if (end.parent_error_file.empty()) return;
  if (root_file && root != nullptr) {
    WarnUnless(CopyErrorFile(*root_file, root->code, end.parent_error_file));
  } else if (end.signal != 0) {
    WarnUnless(
        WriteWhole(end.parent_error_file,
                   OwnErrorFile("SignalException", Concat("stopped by ", SignalName(end.signal)),
                                clock.Wall())));
  } else if (root == nullptr) {
    WarnUnless(
        WriteWhole(end.parent_error_file, OwnErrorFile("LauncherError", end.why, clock.Wall())));
  }
}

/// The failures that this node knows of, and which of them is the cause.
struct Failures {
  std::vector<FailureRecord> records;
  std::vector<std::optional<ErrorFile>> files;  ///< By record.
  size_t root = 0;
  /// A worker failed by itself; those that were signalled are no cause.
  bool has_cause = false;
};

Failures Gather(const JobHost& host, const std::string& failure_elsewhere) {
  Failures all{.records = host.failures(), .files = host.error_files()};
  if (!all.records.empty()) all.root = RootCause(all.records);
  if (!failure_elsewhere.empty()) {
    auto other = FailureFromJson(failure_elsewhere);
    WarnUnless(other ? Ok() : Status(other.error()));
    const bool is_ours = other && std::ranges::find(all.records, other->rank,
                                                    &FailureRecord::rank) != all.records.end();
    if (other && !is_ours) {
      const bool is_later = !all.records.empty() && WroteBefore(all.records[all.root], *other);
      all.records.insert(all.records.begin(), std::move(*other));
      all.files.insert(all.files.begin(), std::nullopt);
      all.root = is_later ? all.root + 1 : 0;
    }
  }
  all.has_cause = !all.records.empty() && !all.records[all.root].was_signalled;
  return all;
}

void WriteReport(const JobEnd& end, const JobHost& host, Failures failures, Clock& clock) {
  if (end.failure_report.empty()) return;
  if (!failures.has_cause) {
    failures.records.insert(failures.records.begin(),
                            {.host = host.host_name(),
                             .code = end.status,
                             .time_seconds = static_cast<int64_t>(clock.Wall()) / 1'000'000,
                             .message = end.why});
    failures.root = 0;
  }
  const FailedJob job{.entry_point = end.entry_point,
                      .node = host.host_name(),
                      .run_id = end.run_id,
                      .round = host.place() ? host.place()->round : 0,
                      .restarts = host.restarts()};
  WarnUnless(
      WriteWhole(end.failure_report, FailureReportJson(job, failures.records, failures.root)));
}

}  // namespace

void ReportEnd(const JobEnd& end, JobHost& host, const std::string& failure_elsewhere,
               Clock& clock) {
  Failures failures = Gather(host, failure_elsewhere);
  if (end.rendezvous_is_lost) failures.has_cause = false;
  const bool workers_failed = failures.has_cause && end.signal == 0;
  host.RecordEnd(end.status == kOk || workers_failed ? "" : end.why);
  if (end.status == kOk) return;
  if (end.caller_reports) {
    // It reads the report.
  } else if (workers_failed) {
    ReportStderr(Concat(
        "\n", FailureReport(end.entry_point, failures.records, failures.root, LocalTimeText)));
  } else {
    const std::string stopped =
        Concat(SignalName(end.signal), " came, and has ended the job on this node");
    ReportStderr(Concat("muster: ", OneLine(end.signal == 0 ? end.why : stopped), "\n"));
  }
  WriteParentErrorFile(end, workers_failed ? failures.files[failures.root] : std::nullopt,
                       workers_failed ? &failures.records[failures.root] : nullptr, clock);
  WriteReport(end, host, failures, clock);
}

}  // namespace muster::cli
