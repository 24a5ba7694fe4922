#include "os/posix/posix_files.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>

#include "base/interruption.h"
#include "base/text.h"
#include "os/posix/file_io.h"
#include "os/posix/system_error.h"

namespace muster {

namespace {

// PyTorch's FileStore blocks in flock. Here the call must be able to time out, so it polls, with
// growing pauses.
constexpr Duration kLockRetryFirst = 50us;
constexpr Duration kLockRetryLongest = 5ms;

// kInvalid if the path is wrong; all other failures are the machine's and may be temporary.
Code CodeOf(int number) {
  // EOPNOTSUPP: this file system has no flock.
  const bool is_wrong =
      IsOneOf(number, {ENOENT, ENOTDIR, EISDIR, ENAMETOOLONG, ELOOP, EACCES, EPERM, EROFS, ETXTBSY,
                       EINVAL, ENXIO, ENODEV, EOPNOTSUPP, ENOSYS});
  return is_wrong ? Code::kInvalid : Code::kUnavailable;
}

// Distinguishes a file from all others. Nothing: there is no such file.
using FileId = std::optional<std::pair<dev_t, ino_t>>;

// Of the file that `path` names, or without a path of the open file `fd`.
FileId IdOf(int fd, const std::string& path = "") {
  struct stat facts {};
  if (fstatat(fd, path.c_str(), &facts, AT_EMPTY_PATH) != 0) return std::nullopt;
  return std::pair(facts.st_dev, facts.st_ino);
}

bool AreSame(const FileId& one, const FileId& other) { return one && one == other; }

}  // namespace

Result<uint64_t> LockedFile::Size() const {
  struct stat facts {};
  if (fstat(fd_.get(), &facts) != 0) return SystemError(path_);
  return static_cast<uint64_t>(facts.st_size);
}

Result<std::string> LockedFile::ReadFrom(uint64_t offset) const {
  MUSTER_TRY(const uint64_t size, Size());
  std::string bytes(size > offset ? size - offset : 0, '\0');
  size_t have = 0;
  while (have < bytes.size()) {
    const ssize_t got = pread(fd_.get(), bytes.data() + have, bytes.size() - have,
                              static_cast<off_t>(offset + have));
    if (got > 0) have += static_cast<size_t>(got);
    if (got == 0) bytes.resize(have);
    if (got < 0 && errno != EINTR) return SystemError(path_);
  }
  return bytes;
}

Status LockedFile::Append(std::string_view bytes) const {
  MUSTER_TRY(const uint64_t start, Size());
  const bool written =
      lseek(fd_.get(), static_cast<off_t>(start), SEEK_SET) >= 0 && WriteAll(fd_.get(), bytes);
  if (written) return Ok();
  Error error = SystemError(path_);
  (void)Truncate(start);  // a full disk must not leave half a record behind
  return error;
}

Status LockedFile::Truncate(uint64_t size) const {
  if (ftruncate(fd_.get(), static_cast<off_t>(size)) == 0) return Ok();
  return SystemError(path_);
}

uint64_t PosixFiles::Identify(const std::string& path, int fd) {
  Seen& seen = seen_[path];
  if (AreSame(IdOf(seen.fd.get()), IdOf(fd))) return seen.identity;
  seen = {.fd = OwnedFd(open(path.c_str(), O_PATH | O_CLOEXEC)), .identity = ++identities_};
  // The path has just been moved to another file.
  if (!AreSame(IdOf(seen.fd.get()), IdOf(fd))) seen.fd.Close();
  return seen.identity;
}

Result<LockedFile> PosixFiles::Open(const std::string& path, Lock lock, Missing missing,
                                    Instant deadline) {
  const int flags = O_RDWR | O_CLOEXEC | (missing == Missing::kCreate ? O_CREAT : 0);
  const int how = (lock == Lock::kExclusive ? LOCK_EX : LOCK_SH) | LOCK_NB;
  const Instant began = clock_.Now();
  Duration pause = kLockRetryFirst;
  OwnedFd file;
  while (true) {
    if (!file.is_open()) {
      file = OwnedFd(open(path.c_str(), flags, 0644));
      if (!file.is_open() && errno != EINTR) {
        const bool absent = errno == ENOENT && missing == Missing::kFail;
        return SystemError(path, errno, absent ? Code::kNotFound : CodeOf(errno));
      }
    }
    if (file.is_open() && flock(file.get(), how) == 0) {
      if (AreSame(IdOf(file.get()), IdOf(AT_FDCWD, path))) break;
      file.Close();  // its last user removed it during the wait
    } else if (file.is_open() && errno != EWOULDBLOCK && errno != EINTR) {
      return SystemError(path, errno, CodeOf(errno));
    }
    const Instant next = clock_.Now() + pause;
    if (next >= deadline) {
      return MakeError(Code::kTimeout, path, ": another process has held its lock all the time");
    }
    clock_.SleepUntil(next);
    if (IsInterrupted())
      return Interrupted(began, clock_.Now(), Concat("waiting for the lock of ", path));
    pause = std::min<Duration>(pause * 3 / 2, kLockRetryLongest);
  }
  const uint64_t identity = Identify(path, file.get());
  return LockedFile(path, std::move(file), identity);
}

}  // namespace muster
