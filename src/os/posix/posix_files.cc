#include "os/posix/posix_files.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/interruption.h"
#include "base/text.h"
#include "os/posix/file_io.h"

namespace muster {

namespace {

// PyTorch's FileStore blocks in flock; we must be able to give up, so we ask again, soon and then
// less soon.
constexpr Duration kLockRetryFirst = 50us;
constexpr Duration kLockRetryLongest = 5ms;

Error FileError(Code code, const std::string& path, int number) {
  return Error{code, Concat(path, ": ", std::string_view(std::strerror(number)))};
}

// kInvalid for what is wrong with the path; everything else is wrong with the machine and may pass.
Code CodeOf(int number) {
  switch (number) {
    case ENOENT:
    case ENOTDIR:
    case EISDIR:
    case ENAMETOOLONG:
    case ELOOP:
    case EACCES:
    case EPERM:
    case EROFS:
    case ETXTBSY:
    case EINVAL:
    case ENXIO:
    case ENODEV:
    case EOPNOTSUPP:  // flock: not on this file system
    case ENOSYS:
      return Code::kInvalid;
    default:
      return Code::kUnavailable;
  }
}

/// Whether two files that are open, or have been looked up, are one.
bool AreSame(const struct stat& one, const struct stat& other) {
  return one.st_dev == other.st_dev && one.st_ino == other.st_ino;
}

bool AreSame(int one, int other) {
  struct stat first {};
  struct stat second {};
  return fstat(one, &first) == 0 && fstat(other, &second) == 0 && AreSame(first, second);
}

/// Whether the open file is still the one that `path` names.
bool IsStillAt(const std::string& path, int fd) {
  struct stat open_file {};
  struct stat named {};
  return fstat(fd, &open_file) == 0 && stat(path.c_str(), &named) == 0 && AreSame(open_file, named);
}

}  // namespace

Result<uint64_t> LockedFile::Size() const {
  struct stat facts {};
  if (fstat(fd_.get(), &facts) != 0) return FileError(Code::kUnavailable, path_, errno);
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
    if (got < 0 && errno != EINTR) return FileError(Code::kUnavailable, path_, errno);
  }
  return bytes;
}

Status LockedFile::Append(std::string_view bytes) const {
  MUSTER_TRY(const uint64_t start, Size());
  const bool written =
      lseek(fd_.get(), static_cast<off_t>(start), SEEK_SET) >= 0 && WriteAll(fd_.get(), bytes);
  if (written) return Ok();
  Error error = FileError(Code::kUnavailable, path_, errno);
  (void)Truncate(start);  // a full disk must not leave half a record behind
  return error;
}

Status LockedFile::Truncate(uint64_t size) const {
  if (ftruncate(fd_.get(), static_cast<off_t>(size)) == 0) return Ok();
  return FileError(Code::kUnavailable, path_, errno);
}

uint64_t PosixFiles::Identify(const std::string& path, int fd) {
  Seen& seen = seen_[path];
  if (AreSame(seen.fd.get(), fd)) return seen.identity;
  seen = {.fd = OwnedFd(open(path.c_str(), O_PATH | O_CLOEXEC)), .identity = ++identities_};
  if (!AreSame(seen.fd.get(), fd)) seen.fd.Close();  // the path has just been given to another
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
        return FileError(absent ? Code::kNotFound : CodeOf(errno), path, errno);
      }
    }
    if (file.is_open() && flock(file.get(), how) == 0) {
      if (IsStillAt(path, file.get())) break;
      file.Close();  // its last user removed it while we waited: the name is gone
    } else if (file.is_open() && errno != EWOULDBLOCK && errno != EINTR) {
      return FileError(CodeOf(errno), path, errno);
    }
    const Instant next = clock_.Now() + pause;
    if (next >= deadline) {
      return Error{Code::kTimeout,
                   Concat(path, ": another process has held its lock all the time")};
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
