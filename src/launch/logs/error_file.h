// Error files: a worker's report of its own failure, for its launcher. Their content is not
// trusted: the writer may have died at any byte, and may be any program. They are written
// completely or not at all.
//
//   {"message": {"message": "ValueError: no data", "extraInfo": {"py_callstack": "Traceback ...",
//                "timestamp": "1769851230"}, "errorCode": 1}}
//   {"message": "no data", "timestamp": 1769851230}
//
// Any thread. Nothing here blocks on another process: a FIFO in the place of a file is refused.
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
/// How deep its values may be nested, and how many there may be: each takes about ten times the
/// memory of its two bytes.
inline constexpr size_t kJsonDepthMax = 64;
inline constexpr size_t kJsonValuesMax = 256 * 1024;

/// JSON of another program. Accepts what Python accepts: lone surrogates (Python writes them for
/// undecodable file names) and invalid UTF-8 become U+FFFD, and the last of equal keys counts.
/// kProtocol, with the reason but without its name. No recursion.
Result<nlohmann::json> ParseForeignJson(std::string_view bytes, uint64_t bytes_max);

/// Nothing: it is not a whole number, or does not fit.
std::optional<int64_t> WholeNumberOf(const nlohmann::json& value);

struct ErrorFile {
  std::string message{};  ///< For the report: the call stack, else the inner message, else "<N/A>";
                          ///< of the text form the text as it is.
  std::optional<int64_t> timestamp{};  ///< Seconds since 1970; none: unknown.
  nlohmann::json content{};            ///< All of it, including unknown keys.
  std::string bytes{};                 ///< The bytes as they were read.
  bool is_text = false;                ///< The text form, not the object form.
};

/// kProtocol, with the reason but without the file's name. ReadablePart() can still be shown.
Result<ErrorFile> ParseErrorFile(std::string_view bytes);

/// The beginning of a file that could not be parsed: a few printable lines, without a newline at
/// the end. Line breaks and quotes inside of broken JSON are unescaped. May be empty.
std::string ReadablePart(std::string_view bytes);

struct ReadFile {
  std::string bytes{};
  WallTime written{};  ///< The last time.
};

/// A regular file; of one that is too large only the beginning, one byte more than ParseErrorFile()
/// accepts. kNotFound: there is none. kInvalid: it is not a regular file. kUnavailable: it cannot
/// be read.
Result<ReadFile> ReadErrorFile(const std::string& path);

/// Adds the error file at `path` to the record of its worker: file, message and times. For a file
/// that cannot be parsed, the message has its readable part. No file: nothing is changed. A worker
/// that wrote it before `signalled_at` had failed by itself.
void AddErrorFile(const std::string& path, WallTime signalled_at, FailureRecord& record);

/// The file's content with the worker's code as `message.errorCode`; of the text form, and for code
/// 0, as it is.
std::string WithErrorCode(const ErrorFile& file, ExitCode code);

/// Writes WithErrorCode() of the file `from` for the parent of this launcher. As WriteWhole(). A
/// file that cannot be parsed is not copied.
Status CopyErrorFile(const std::string& from, ExitCode code, const std::string& to);

/// The object form for a failure of the launcher itself: type "SignalException" and a text.
std::string OwnErrorFile(std::string_view type, std::string_view text, WallTime now);

/// Replaces the file `to` atomically. Where that is impossible, because `to` is a device, a pipe, a
/// link or a mount point (/dev/termination-log in a container), it is written in place.
/// kUnavailable, with the file and the reason.
Status WriteWhole(const std::string& to, std::string_view bytes);

}  // namespace muster
