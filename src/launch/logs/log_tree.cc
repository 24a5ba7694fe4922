#include "launch/logs/log_tree.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>

#include "base/prng.h"
#include "launch/core/failure_report.h"
#include "os/posix/file_io.h"
#include "os/posix/owned_fd.h"
#include "os/posix/system_error.h"

namespace muster {

namespace {

constexpr std::string_view kNoLogs = "/dev/null";
constexpr std::string_view kAdvice =
    "; name another place with --log-dir, or /dev/null for no logs";

Error Refused(std::string_view what, const std::string& path, int number) {
  Error error = SystemError(Concat("cannot ", what, " '", Printable(path, 512), "'"), number);
  error.message += kAdvice;
  return error;
}

/// Makes `stem` and eight characters into a directory for this user only. Returns its path.
Result<std::string> MakeUnique(const std::string& stem, Prng& prng) {
  constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyz0123456789_";
  constexpr int kTries = 100;  // Each meets a taken name once in 10^12.
  std::string path;
  for (int i = 0; i < kTries; ++i) {
    path = stem;
    for (int k = 0; k < 8; ++k) path += kLetters[prng.Below(kLetters.size())];
    if (mkdir(path.c_str(), 0700) == 0) return path;
    if (errno != EEXIST) break;
  }
  return Refused("create the log directory", path, errno);
}

Result<std::string> MakeRoot(const LogTreeOptions& options, Prng& prng) {
  if (options.root.empty()) return MakeUnique(options.temporary + "/torchelastic_", prng);
  std::error_code failure;
  // A worker may change its directory before it writes its error file.
  const std::filesystem::path root = std::filesystem::absolute(options.root, failure);
  if (failure) return Refused("find the log directory", options.root, failure.value());
  std::filesystem::create_directories(root, failure);
  if (failure) {
    // Clearer than the library's message for an existing file.
    if (struct stat found{}; stat(root.c_str(), &found) == 0 && !S_ISDIR(found.st_mode)) {
      return MakeError(Code::kInvalid, "--log-dir '", Printable(options.root, 512),
                       "' is a file, and logs need a directory", kAdvice);
    }
    return Refused("create the log directory", root.string(), failure.value());
  }
  return root.string();
}

Status MakeDirectory(const std::string& path) {
  if (mkdir(path.c_str(), 0777) != 0) return Refused("create the log directory", path, errno);
  return Ok();
}

Status MakeFile(const std::string& path) {
  const OwnedFd file(open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666));
  return file.is_open() ? Ok() : Status(Refused("create the log", path, errno));
}

/// Makes room for a new `path`: an existing one is renamed to path.1, or path.2 if that exists.
Status PutAside(const std::string& path) {
  struct stat found {};
  std::string aside = path;
  for (int64_t number = 1; lstat(aside.c_str(), &found) == 0; ++number)
    aside = Concat(path, '.', number);
  if (aside == path || rename(path.c_str(), aside.c_str()) == 0) return Ok();
  return Refused("put aside the earlier logs in", path, errno);
}

}  // namespace

std::string AttemptLogs::In(std::string_view name) const {
  return directory_.empty() ? "" : Concat(directory_, '/', name);
}

Result<LogTree> LogTree::Create(const LogTreeOptions& options) {
  if (options.root == kNoLogs) {
    if (options.filtered != Streams{}) {
      return Error{Code::kInvalid,
                   "filtered lines need a log directory, and --log-dir is /dev/null: leave out "
                   "either that or the --duplicate-...-filters"};
    }
    return LogTree("", {});
  }
  if (options.run_id.find('/') != std::string::npos) {
    return MakeError(Code::kInvalid, "the run id '", Printable(options.run_id),
                     "' cannot name the directory of its logs: use an --rdzv-id without '/', or "
                     "--log-dir /dev/null");
  }
  Prng prng(options.seed);
  MUSTER_TRY(const std::string root, MakeRoot(options, prng));
  MUSTER_TRY(std::string directory, MakeUnique(Concat(root, '/', options.run_id, '_'), prng));
  return LogTree(std::move(directory), options.filtered);
}

Result<AttemptLogs> LogTree::Begin(int64_t attempt, size_t workers) {
  if (directory_.empty()) return AttemptLogs();
  AttemptLogs logs(Concat(directory_, "/attempt_", attempt));
  MUSTER_CHECK_OK(PutAside(logs.directory()));
  MUSTER_CHECK_OK(MakeDirectory(logs.directory()));
  for (size_t worker = 0; worker < workers; ++worker) {
    MUSTER_CHECK_OK(MakeDirectory(logs.WorkerDir(worker)));
  }
  if (filtered_.out) MUSTER_CHECK_OK(MakeFile(logs.FilteredOut()));
  if (filtered_.err) MUSTER_CHECK_OK(MakeFile(logs.FilteredErr()));
  return logs;
}

Status LogTree::CheckRoom() const {
  struct statvfs left {};
  if (directory_.empty() || statvfs(directory_.c_str(), &left) != 0) return Ok();
  return RoomOf(directory_, left);
}

Status RoomOf(const std::string& directory, const struct statvfs& left) {
  // File systems without a size of their own report zero of zero.
  const bool no_blocks = left.f_blocks > 0 && left.f_bavail == 0;
  const bool no_files = left.f_files > 0 && left.f_favail == 0;
  if (!no_blocks && !no_files) return Ok();
  return MakeError(Code::kUnavailable, "no ",
                   std::string_view(no_blocks ? "space" : "room for files"),
                   " left on the disk of the log directory '", Printable(directory, 512),
                   "': what workers write is lost; make room there", kAdvice);
}

std::vector<std::string> LastLines(const std::string& path, const LastLinesLimits& limits) {
  // O_NONBLOCK: a worker may have replaced the file by a FIFO, on which the report must not hang.
  const OwnedFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  struct stat found {};
  if (!file.is_open() || fstat(file.get(), &found) != 0 || !S_ISREG(found.st_mode)) return {};
  const auto size = static_cast<size_t>(found.st_size);
  std::string bytes(std::min(size, limits.bytes_max), '\0');
  const ssize_t count = ReadAt(file.get(), bytes.data(), bytes.size(), size - bytes.size());

  std::string_view rest(bytes.data(), static_cast<size_t>(std::max<ssize_t>(count, 0)));
  while (rest.ends_with('\n') || rest.ends_with('\r')) rest.remove_suffix(1);
  std::vector<std::string> lines;
  while (!rest.empty() && lines.size() < limits.lines_max) {
    const size_t end = rest.rfind('\n');
    const bool first = end == rest.npos;
    const bool incomplete = first && bytes.size() < size;
    // Half a line is worth showing only if it is all there is.
    if (incomplete && !lines.empty()) break;
    lines.push_back(Concat(incomplete ? "..." : "",
                           OneLine(PlainLine(first ? rest : rest.substr(end + 1), " "))));
    rest = rest.substr(0, first ? 0 : end);
  }
  std::reverse(lines.begin(), lines.end());
  return lines;
}

}  // namespace muster
