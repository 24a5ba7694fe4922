// The report of a failed job: which worker failed first, where, when and how, and which workers
// failed with it. Pure: a function that is passed in formats times.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "launch/core/agent_machine.h"
#include "launch/core/signals.h"

namespace muster {

/// One worker that failed.
struct FailureRecord {
  std::string host{};
  int64_t rank = 0;        ///< In the whole job.
  int64_t local_rank = 0;  ///< On its node.
  int64_t pid = 0;
  ExitCode code = 0;
  int64_t time_seconds = 0;    ///< Since 1970: when it failed, as shown in the report.
  int64_t order = 0;           ///< When its end was detected: microseconds since 1970.
  std::string error_file{};    ///< Empty: it wrote none.
  int64_t error_time = 0;      ///< When it wrote that: microseconds since 1970; 0: it wrote none.
  std::string message{};       ///< From the error file. Without one: DefaultMessage().
  bool is_trace = false;       ///< The message's further lines are indented, not shown as they are.
  std::string output{};        ///< The last lines of its output, any bytes; may be empty.
  bool was_signalled = false;  ///< The launcher had signalled it before it ended.

  bool operator==(const FailureRecord&) const = default;
};

/// The message for a worker that left no error file.
std::string DefaultMessage(ExitCode code, int64_t pid, bool has_output = false);

/// What the report shows as the reason: the message, or the default one.
std::string ShownMessage(const FailureRecord& record);

/// Whether `a` failed by itself and wrote its error file before `b` failed.
bool WroteBefore(const FailureRecord& a, const FailureRecord& b);

/// Which of the records is the cause; there must be one. The worker that ended first, unless
/// another had written its error file before: a process needs time to end, and its peers fail in
/// that time. A worker that the launcher signalled is the cause only if it signalled all of them.
size_t RootCause(std::span<const FailureRecord> records);

/// What a terminal would show of a line: a progress bar in its last state, without colours, also
/// unfinished ones, and with `tab` for each tab. Other bytes that do not print are kept.
std::string PlainLine(std::string_view line, std::string_view tab);

/// Seconds since 1970 as local time, "2026-01-31_10:20:30".
using TimeText = std::function<std::string(int64_t seconds)>;

/// "rank 5 (local rank 1, pid 4242) on node7 failed first: exit code 3".
std::string FailureSummary(const FailureRecord& root);

/// How many of the last lines of a worker are shown.
inline constexpr size_t kLastLinesMax = 30;

/// The whole report, from the line with the token `ChildFailedError`, which is also a summary, to
/// the last border; ends with a newline. The format is torchrun's, because tools search for its
/// labels; only muster adds the last lines of output. `root` is an index of `records`, which are
/// numbered in the given order.
std::string FailureReport(std::string_view entry_point, std::span<const FailureRecord> records,
                          size_t root, const TimeText& time_text);

}  // namespace muster
