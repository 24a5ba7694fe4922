#include "launch/logs/error_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <vector>

#include "base/calendar.h"
#include "base/text.h"
#include "base/utf8.h"
#include "os/posix/file_io.h"
#include "os/posix/owned_fd.h"
#include "os/posix/system_error.h"

namespace muster {

namespace {

using Json = nlohmann::json;

constexpr size_t kReadableLinesMax = 40;
constexpr size_t kReadableLineBytesMax = 300;
/// How much of a broken file is read.
constexpr size_t kReadableBytesMax = 16 * 1024;
constexpr int64_t kSecond = 1'000'000;  // in microseconds
/// File systems take the time from a clock with ticks of at most this length.
constexpr Duration kTickMax = 10ms;

/// Properties of JSON that can be found without parsing it into values.
struct Shape {
  size_t deepest = 0;
  size_t values = 0;  // an upper bound
};

Shape ShapeOf(std::string_view text) {
  Shape shape;
  size_t depth = 0;
  bool in_string = false;
  for (size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (in_string) {
      if (c == '\\') ++at;
      in_string = c != '"';
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      shape.deepest = std::max(shape.deepest, ++depth);
      ++shape.values;
    } else if ((c == '}' || c == ']') && depth > 0) {
      --depth;
    } else if (c == ',') {
      ++shape.values;
    }
  }
  return shape;
}

/// The UTF-16 unit of an escape \uXXXX at `at`; 0 if there is none.
unsigned EscapedUnit(std::string_view text, size_t at) {
  if (text.substr(std::min(at, text.size()), 2) != "\\u" || text.size() - at < 6) return 0;
  return ParseAll<unsigned>(text.substr(at + 2, 4), 16).value_or(0);
}

/// Python writes \udcXX for undecodable bytes of file names; strict parsers refuse the whole file.
void ReplaceLoneSurrogates(std::string& text) {
  const auto is_high = [](unsigned unit) { return unit >= 0xd800 && unit < 0xdc00; };
  const auto is_low = [](unsigned unit) { return unit >= 0xdc00 && unit < 0xe000; };
  for (size_t at = text.find('\\'); at < text.size(); at = text.find('\\', at)) {
    const unsigned unit = EscapedUnit(text, at);
    if (is_high(unit) && is_low(EscapedUnit(text, at + 6))) {
      at += 12;
    } else if (is_high(unit) || is_low(unit)) {
      text.replace(at + 2, 4, "fffd");
      at += 6;
    } else {
      at += 2;  // also past the second of two backslashes
    }
  }
}

template <typename... Pieces>
Error Wrong(const Pieces&... why) {
  return MakeError(Code::kProtocol, why...);
}

/// The value at a path such as "/message/extraInfo"; null if there is none, or a null.
const Json* Find(const Json& content, const char* path) {
  const Json::json_pointer at(path);
  return content.contains(at) && !content.at(at).is_null() ? &content.at(at) : nullptr;
}

/// A text as it is, anything else as JSON, so that a message of another type is not lost.
std::string TextOf(const Json& value) {
  return value.is_string() ? value.get<std::string>()
                           : value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::optional<int64_t> SecondsOf(const Json& value) {
  if (value.is_string()) return ParseWholeNumber(value.get_ref<const std::string&>());
  if (!value.is_number_float()) return WholeNumberOf(value);
  const double seconds = value.get<double>();
  constexpr double kExactMax = 9'007'199'254'740'992.0;  // 2^53
  if (!std::isfinite(seconds) || std::abs(seconds) > kExactMax) return std::nullopt;
  return static_cast<int64_t>(seconds);
}

/// Replaces \n, \t, \" and \\ by the characters, so that broken JSON is readable.
std::string Unescaped(std::string_view text) {
  constexpr std::string_view kLetters = "nt\"\\";
  constexpr std::string_view kMeanings = "\n\t\"\\";
  std::string out;
  for (size_t at = 0; at < text.size(); ++at) {
    const size_t known = text[at] == '\\' && at + 1 < text.size() ? kLetters.find(text[at + 1])
                                                                  : std::string_view::npos;
    out += known == kLetters.npos ? text[at] : kMeanings[known];
    if (known != kLetters.npos) ++at;
  }
  return out;
}

/// When the worker failed, in microseconds. The second is the timestamp in the file, which may have
/// been written or copied later; the fraction is from the modification time of the file.
int64_t ErrorTime(WallTime written, std::optional<int64_t> timestamp) {
  const auto time = static_cast<int64_t>(written);
  constexpr int64_t kLast = static_cast<int64_t>(kWallTimeMax) / kSecond;
  if (!timestamp || *timestamp <= 0 || *timestamp >= kLast) return time;
  const int64_t second = *timestamp * kSecond;
  return std::clamp(time, second, second + kSecond - 1);
}

/// After a system call that failed, such as "cannot be written".
Error FileError(const std::string& path, std::string_view problem) {
  const Code code = IsOneOf(errno, {ENOENT, ENOTDIR}) ? Code::kNotFound : Code::kUnavailable;
  return SystemError(Concat(Printable(path, 1024), " ", problem), errno, code);
}

Error CannotWrite(const std::string& path) {
  return SystemError(Concat(Printable(path, 1024), " cannot be written"));
}

Status WriteInPlace(const std::string& to, std::string_view bytes) {
  // O_NONBLOCK: does not wait for the reader of a pipe. If there is one, it waits until the bytes
  // are read.
  constexpr int kFlags = O_WRONLY | O_CREAT | O_TRUNC | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
  const OwnedFd file(open(to.c_str(), kFlags, 0666));
  if (!file.is_open()) return CannotWrite(to);
  fcntl(file.get(), F_SETFL, 0);
  return WriteAll(file.get(), bytes) ? Ok() : Status(CannotWrite(to));
}

}  // namespace

std::optional<int64_t> WholeNumberOf(const Json& value) {
  if (!value.is_number_integer()) return std::nullopt;
  if (value.is_number_unsigned() && value.get<uint64_t>() > INT64_MAX) return std::nullopt;
  return value.get<int64_t>();
}

Result<Json> ParseForeignJson(std::string_view bytes, uint64_t bytes_max) {
  if (bytes.size() > bytes_max) {
    return Wrong("it is too large: at most ", HumanBytes(bytes_max), " are read");
  }
  if (Trim(bytes).empty()) return Wrong("it is empty");
  if (const size_t nul = bytes.find('\0'); nul != bytes.npos) {
    return Wrong("it is no text: byte ", nul, " is zero");
  }
  const Shape shape = ShapeOf(bytes);
  if (shape.deepest > kJsonDepthMax) {
    return Wrong("its values are nested ", shape.deepest, " deep, ", kJsonDepthMax, " are allowed");
  }
  if (shape.values > kJsonValuesMax) {
    return Wrong("it has ", shape.values, " values, ", kJsonValuesMax, " are allowed");
  }
  std::string text = ReplaceInvalidUtf8(bytes);
  ReplaceLoneSurrogates(text);
  try {
    return Json::parse(text);
  } catch (const Json::parse_error& error) {
    if (error.byte > text.size()) {
      return Wrong("it ends in the middle, after ", HumanBytes(bytes.size()),
                   ": its writer was stopped, or the disk is full");
    }
    return Wrong("it is no JSON from byte ", error.byte, " on");
  } catch (const Json::exception&) {
    return Wrong("it has a number that is too large");
  }
}

Result<ErrorFile> ParseErrorFile(std::string_view bytes) {
  MUSTER_TRY(Json content, ParseForeignJson(bytes, kErrorFileBytesMax));
  const Json* const message = Find(content, "/message");
  if (!content.is_object() || message == nullptr) {
    return Wrong("it is JSON, but ",
                 content.is_object() ? "has no \"message\"" : "no object with a \"message\"");
  }
  if (!message->is_object() && !message->is_string()) {
    return Wrong("its \"message\" is of type ", std::string_view(message->type_name()),
                 "; an object or a text is expected");
  }
  ErrorFile file{.bytes = std::string(bytes), .is_text = message->is_string()};
  const Json* const stack = Find(content, "/message/extraInfo/py_callstack");
  const Json* const inner = file.is_text ? message : Find(content, "/message/message");
  file.message = stack != nullptr ? TextOf(*stack) : inner != nullptr ? TextOf(*inner) : "<N/A>";
  const Json* const stamp =
      Find(content, file.is_text ? "/timestamp" : "/message/extraInfo/timestamp");
  if (stamp != nullptr) file.timestamp = SecondsOf(*stamp);
  file.content = std::move(content);
  return file;
}

std::string ReadablePart(std::string_view bytes) {
  const std::string_view beginning = bytes.substr(0, kReadableBytesMax);
  if (beginning.find_first_not_of(std::string_view(" \t\r\n\0", 5)) == beginning.npos) return "";
  const bool json = Trim(beginning).starts_with('{');
  const std::string text = json ? Unescaped(beginning) : std::string(beginning);
  const std::vector<std::string_view> lines = Split(Trim(text), '\n');
  std::string shown;
  for (size_t i = 0; i < std::min(lines.size(), kReadableLinesMax); ++i) {
    std::string_view line = lines[i];
    if (line.ends_with('\r')) line.remove_suffix(1);
    shown += Concat(i == 0 ? "" : "\n", Printable(line, kReadableLineBytesMax));
  }
  if (lines.size() > kReadableLinesMax || bytes.size() > beginning.size()) shown += "\n...";
  return shown;
}

Result<ReadFile> ReadErrorFile(const std::string& path) {
  const OwnedFd file(open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  struct stat facts = {};
  if (!file.is_open() || fstat(file.get(), &facts) != 0) return FileError(path, "cannot be read");
  if (!S_ISREG(facts.st_mode)) {
    return MakeError(Code::kInvalid, Printable(path, 1024), " is not a regular file");
  }
  std::optional<std::string> bytes = ReadUpTo(file.get(), kErrorFileBytesMax + 1);
  if (!bytes) return FileError(path, "cannot be read");
  return ReadFile{*std::move(bytes), WallTime{facts.st_mtim.tv_sec * kSecond} +
                                         std::chrono::nanoseconds(facts.st_mtim.tv_nsec)};
}

void AddErrorFile(const std::string& path, WallTime signalled_at, FailureRecord& record) {
  const Result<ReadFile> read = ReadErrorFile(path);
  if (!read && read.error().code == Code::kNotFound) return;
  record.error_file = path;
  if (!read) {
    record.message = read.error().message;
    return;
  }
  const Result<ErrorFile> file = ParseErrorFile(read->bytes);
  record.error_time = ErrorTime(read->written, file ? file->timestamp : std::nullopt);
  // By the clock of the file system: the timestamp in the file may be wrong.
  if (read->written + kTickMax < signalled_at) record.was_signalled = false;
  if (!file) {
    const std::string part = ReadablePart(read->bytes);
    record.message = Concat("the error file cannot be understood: ", file.error().message,
                            part.empty() ? "" : "; it begins:\n", part);
    record.is_trace = true;
    return;
  }
  record.message = file->message;
  record.is_trace = !file->is_text;
  if (file->timestamp) record.time_seconds = *file->timestamp;
}

std::string WithErrorCode(const ErrorFile& file, ExitCode code) {
  if (file.is_text || code == 0) return file.bytes;
  Json content = file.content;
  content["message"]["errorCode"] = code;
  return content.dump(-1, ' ', true, Json::error_handler_t::replace);
}

Status CopyErrorFile(const std::string& from, ExitCode code, const std::string& to) {
  const Result<ReadFile> read = ReadErrorFile(from);
  if (!read) return Ok();
  const Result<ErrorFile> file = ParseErrorFile(read->bytes);
  return file ? WriteWhole(to, WithErrorCode(*file, code)) : Ok();
}

std::string OwnErrorFile(std::string_view type, std::string_view text, WallTime now) {
  const std::string message = Concat(type, ": ", text);
  const int64_t seconds = static_cast<int64_t>(now) / 1'000'000;
  const Json file = {
      {"message",
       {{"message", message},
        // A native program has no trace; readers show this field first.
        {"extraInfo", {{"py_callstack", message}, {"timestamp", Concat(seconds)}}}}}};
  return file.dump(-1, ' ', true, Json::error_handler_t::replace);
}

Status WriteWhole(const std::string& to, std::string_view bytes) {
  struct stat facts = {};
  const bool exists = lstat(to.c_str(), &facts) == 0;
  // A link, such as /dev/stdout, must not be replaced by a file.
  if (exists && !S_ISREG(facts.st_mode)) return WriteInPlace(to, bytes);
  // With the usual rights: other users may have to read it.
  if (ReplaceFile(to, bytes, 0666).is_open()) return Ok();
  // The file may be writable while its folder is not. A full disk is not such a reason: writing in
  // place would only lose the old content.
  const bool in_place = IsOneOf(errno, {EBUSY, EXDEV, EACCES, EPERM, EROFS});
  Error why = CannotWrite(to);
  return exists && in_place ? WriteInPlace(to, bytes) : Status(std::move(why));
}

}  // namespace muster
