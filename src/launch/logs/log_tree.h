// The directories of the workers' logs. One tree for each launcher, one branch for each attempt:
//
// <root>/ --log-dir, or a new directory for temporary files <run id>_<8 characters>/ of this
// launcher only attempt_<n>/ <local rank>/ stdout.log, stderr.log, error.json filtered_stdout.log,
// filtered_stderr.log attempt_<n>.1/ attempt n before it was repeated
//
// Nothing is ever removed. Any thread, one at a time; the calls block on the disk.
#pragma once

#include <sys/statvfs.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/text.h"
#include "launch/core/stream_plan.h"

namespace muster {

struct LogTreeOptions {
  std::string root{};  ///< Made, with its parents, if it is not there. "/dev/null": no logs at all.
                       ///< Empty: a new directory in `temporary`.
  std::string temporary = "/tmp";  ///< $TMPDIR.
  std::string run_id = "none";
  Streams filtered{};  ///< Which streams have a file for filtered lines. It is there even when no
                       ///< line ever passes.
  uint64_t seed = 0;   ///< For unique names.
};

/// The paths of one attempt; all of them are empty where there are no logs.
class AttemptLogs {
 public:
  AttemptLogs() = default;
  explicit AttemptLogs(std::string directory) : directory_(std::move(directory)) {}

  const std::string& directory() const { return directory_; }
  std::string WorkerDir(size_t worker) const { return In(Concat(worker)); }
  std::string OutPath(size_t worker) const { return In(Concat(worker, "/stdout.log")); }
  std::string ErrPath(size_t worker) const { return In(Concat(worker, "/stderr.log")); }
  /// Where the worker writes its error, if it fails.
  std::string ErrorFile(size_t worker) const { return In(Concat(worker, "/error.json")); }
  std::string FilteredOut() const { return In("filtered_stdout.log"); }
  std::string FilteredErr() const { return In("filtered_stderr.log"); }

 private:
  std::string In(std::string_view name) const;

  std::string directory_;
};

class LogTree {
 public:
  /// Makes root and run directory. kInvalid: the root is a file, the run id cannot be part of a
  /// name, or filters are wanted without logs. kUnavailable: the system refuses.
  static Result<LogTree> Create(const LogTreeOptions& options);

  /// Makes the directories of `attempt`. The logs of an earlier attempt with the same number
  /// are renamed: after a change of membership the number stays the same. kUnavailable.
  Result<AttemptLogs> Begin(int64_t attempt, size_t workers);

  /// kUnavailable if the disk has no room left: workers then fail and cannot report why.
  Status CheckRoom() const;

  /// This launcher's own directory, absolute; empty where there are no logs.
  const std::string& directory() const { return directory_; }

 private:
  LogTree(std::string directory, Streams filtered)
      : directory_(std::move(directory)), filtered_(filtered) {}

  std::string directory_;
  Streams filtered_;
};

/// The result of CheckRoom() for the system's answer.
Status RoomOf(const std::string& directory, const struct statvfs& left);

struct LastLinesLimits {
  size_t lines_max = 20;
  size_t bytes_max = 8 * 1024;  ///< Of the file; a line that began before is cut or left out.
};

/// The last lines of a log, oldest first, without their ends, fit for a report: of text that was
/// overwritten with '\r' only the last state is shown, colours are removed, tabs become blanks, and
/// bytes that do not print are \xNN. Empty lines at the end do not count. Empty if there is no such
/// file, or it cannot be read: a report does not mention that.
std::vector<std::string> LastLines(const std::string& path, const LastLinesLimits& limits = {});

}  // namespace muster
