// Error files: what a worker wrote about its own end, for whoever started it. Read with suspicion,
// for the writer may have died at any byte, or may be no library of ours or PyTorch's at all; and
// written whole or not at all.
//
//   {"message": {"message": "ValueError: no data", "extraInfo": {"py_callstack": "Traceback ...",
//                "timestamp": "1769851230"}, "errorCode": 1}}
//   {"message": "no data", "timestamp": 1769851230}
//
// Any thread. Nothing here waits for anybody: a FIFO in the place of a file is refused.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "base/time.h"
#include "launch/core/failure_report.h"

namespace muster {

inline constexpr uint64_t kErrorFileBytesMax = 8ull * 1024 * 1024;
/// How deep its values may be nested, and how many there may be: each costs some ten times the two
/// bytes that stand for it.
inline constexpr size_t kJsonDepthMax = 64;
inline constexpr size_t kJsonValuesMax = 256 * 1024;

/// JSON of somebody else. More lenient than the standard where Python is: half characters (Python
/// writes them for file names that are no text) and bytes that are no UTF-8 become U+FFFD, and the
/// last of equal keys counts. kProtocol: what is wrong with it, without its name. No recursion.
Result<nlohmann::json> ParseForeignJson(std::string_view bytes, uint64_t bytes_max);

struct ErrorFile {
  std::string message{};  ///< For the report: the call stack, else the inner message, else "<N/A>";
                          ///< of the text form the text as it is.
  std::string summary{};  ///< The same in one printable line.
  std::optional<int64_t> timestamp{};  ///< Seconds since 1970; none: not told.
  nlohmann::json content{};            ///< All of it, also what we do not know.
  std::string bytes{};                 ///< As it was read.
  bool is_text = false;                ///< The text form, not the object form.
};

/// kProtocol: says what is wrong, without the file's name. ReadablePart() can still be shown.
Result<ErrorFile> ParseErrorFile(std::string_view bytes);

/// The beginning of a file that could not be read as what it should be: a few printable lines,
/// without a newline at the end. Line breaks and quotes inside of broken JSON are shown as such.
/// Empty: there is nothing to be seen.
std::string ReadablePart(std::string_view bytes);

struct ReadFile {
  std::string bytes{};
  WallTime written{};  ///< The last time.
};

/// A regular file; of one that is too large only the beginning, one byte more than ParseErrorFile()
/// accepts. kNotFound: there is none. kInvalid: it is something else than a file. kUnavailable: it
/// cannot be read.
Result<ReadFile> ReadErrorFile(const std::string& path);

/// Puts what the worker left at `path` into its record: file, message and times. A file that cannot
/// be understood is told as such, with its readable part. No file: nothing is changed. A worker
/// that wrote it before `signalled_at` was no victim: it had failed by itself. Returns the file, if it
/// was understood, for CopyErrorFile().
std::optional<ErrorFile> AddErrorFile(const std::string& path, WallTime signalled_at,
                                      FailureRecord& record);

/// The file's content with the worker's code as `message.errorCode`; of the text form, and for code
/// 0, as it is.
std::string WithErrorCode(const ErrorFile& file, ExitCode code);

/// WithErrorCode() for the one who started us. As WriteWhole().
Status CopyErrorFile(const ErrorFile& file, ExitCode code, const std::string& to);

/// The object form for a failure of the launcher itself: type "SignalException" and a text.
std::string OwnErrorFile(std::string_view type, std::string_view text, WallTime now);

/// Replaces the file `to`: others see the old or the new one, never half of it. Where that cannot
/// be, because `to` is a device, a pipe, a link or mounted by itself (/dev/termination-log in a
/// container), it is written in place. kUnavailable: says which file, and why.
Status WriteWhole(const std::string& to, std::string_view bytes);

}  // namespace muster
