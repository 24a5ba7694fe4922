// Failures as JSON: the report for programs (--failure-report FILE), and one record as the compact
// text that nodes exchange to find the first failure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "launch/core/failure_report.h"

namespace muster {

/// The limit of one record. Every node of a job reads it.
inline constexpr uint64_t kFailureJsonBytesMax = 1024 * 1024;
/// The limit of one text of a record. Of a longer one the beginning and the end are sent.
inline constexpr size_t kFailureTextBytesMax = 32 * 1024;

/// The record as it is sent: all texts are valid UTF-8 and within the limit.
FailureRecord FitToSend(FailureRecord record);

/// One line. FailureFromJson() makes FitToSend(record) of it.
std::string ToJson(const FailureRecord& record);

/// kProtocol, with the reason. Unknown keys are ignored: newer peers may send them.
Result<FailureRecord> FailureFromJson(std::string_view json);

/// Compares two such texts: whether this node's worker wrote its error file before another node's
/// worker failed. True only if the times differ by more than the clocks of two nodes may
/// (kClockSkewMax).
inline constexpr int64_t kClockSkewMax = 500'000;  // microseconds
bool FailedBefore(std::string_view ours, std::string_view theirs);

/// About the job, for the report.
struct FailedJob {
  std::string entry_point{};
  std::string interpreter{};  ///< Of this node's workers; empty: none.
  std::string node{};         ///< The node that reports.
  std::string run_id{};
  int64_t round = 0;
  int64_t restarts = 0;
};

/// The whole report, indented, with a newline at the end. Each failure has the fields of its record
/// and, for readers, "message" as the report shows it, "signal" (its name, or null) and "time" in
/// UTC. `root` is an index of `records`. To be written with WriteWhole().
std::string FailureReportJson(const FailedJob& job, std::span<const FailureRecord> records,
                              size_t root);

/// As the report shows it: "2026-01-31_10:20:30" in the local time zone. A TimeText.
std::string LocalTimeText(int64_t seconds);

}  // namespace muster
