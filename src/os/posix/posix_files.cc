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

bool AreSame(const struct stat& one, const struct stat& other) {
  return one.st_dev == other.st_dev && one.st_ino == other.st_ino;
}

/// Whether the open file is still the one that `path` names.
bool IsStillAt(const std::string& path, int fd) {
  struct stat open_file {};
  struct stat named {};
  return fstat(fd, &open_file) == 0 && stat(path.c_str(), &named) == 0 && AreSame(open_file, named);
}

class PosixLockedFile final : public LockedFile {
 public:
  PosixLockedFile(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}
  ~PosixLockedFile() override { close(fd_); }  // the lock goes with the descriptor

  int fd() const { return fd_; }

  Result<uint64_t> Size() override {
    struct stat facts {};
    if (fstat(fd_, &facts) != 0) return FileError(Code::kUnavailable, path_, errno);
    return static_cast<uint64_t>(facts.st_size);
  }

  uint64_t identity() const override { return identity_; }
  void set_identity(uint64_t identity) { identity_ = identity; }

  Result<std::string> ReadFrom(uint64_t offset) override {
    MUSTER_TRY(const uint64_t size, Size());
    std::string bytes(size > offset ? size - offset : 0, '\0');
    size_t have = 0;
    while (have < bytes.size()) {
      const ssize_t got =
          pread(fd_, bytes.data() + have, bytes.size() - have, static_cast<off_t>(offset + have));
      if (got > 0) have += static_cast<size_t>(got);
      if (got == 0) bytes.resize(have);
      if (got < 0 && errno != EINTR) return FileError(Code::kUnavailable, path_, errno);
    }
    return bytes;
  }

  Status Append(std::string_view bytes) override {
    MUSTER_TRY(const uint64_t start, Size());
    size_t done = 0;
    while (done < bytes.size()) {
      const ssize_t put =
          pwrite(fd_, bytes.data() + done, bytes.size() - done, static_cast<off_t>(start + done));
      if (put >= 0) {
        done += static_cast<size_t>(put);
      } else if (errno != EINTR) {
        const Error error = FileError(Code::kUnavailable, path_, errno);
        (void)Truncate(start);  // a full disk must not leave half a record behind
        return error;
      }
    }
    return Ok();
  }

  Status Truncate(uint64_t size) override {
    if (ftruncate(fd_, static_cast<off_t>(size)) != 0)
      return FileError(Code::kUnavailable, path_, errno);
    return Ok();
  }

 private:
  const std::string path_;
  const int fd_;
  uint64_t identity_ = 0;
};

}  // namespace

PosixFiles::~PosixFiles() {
  for (const auto& [path, seen] : seen_) {
    if (seen.fd >= 0) close(seen.fd);
  }
}

uint64_t PosixFiles::Identify(const std::string& path, int fd) {
  Seen& seen = seen_[path];
  struct stat now {};
  struct stat then {};
  const bool known = fstat(fd, &now) == 0;
  if (known && seen.fd >= 0 && fstat(seen.fd, &then) == 0 && AreSame(now, then)) {
    return seen.identity;
  }
  if (seen.fd >= 0) close(seen.fd);
  seen = {.fd = open(path.c_str(), O_PATH | O_CLOEXEC), .identity = ++identities_};
  if (seen.fd >= 0 && !(known && fstat(seen.fd, &then) == 0 && AreSame(now, then))) {
    close(std::exchange(seen.fd, -1));  // the path has just been given to another
  }
  return seen.identity;
}

Result<std::unique_ptr<LockedFile>> PosixFiles::Open(const std::string& path, Lock lock,
                                                     Missing missing, Instant deadline) {
  const int flags = O_RDWR | O_CLOEXEC | (missing == Missing::kCreate ? O_CREAT : 0);
  const int how = (lock == Lock::kExclusive ? LOCK_EX : LOCK_SH) | LOCK_NB;
  const Instant began = clock_.Now();
  Duration pause = kLockRetryFirst;
  std::unique_ptr<PosixLockedFile> file;
  while (true) {
    if (!file) {
      const int fd = open(path.c_str(), flags, 0644);
      if (fd >= 0) {
        file = std::make_unique<PosixLockedFile>(path, fd);
      } else if (errno != EINTR) {
        const bool absent = errno == ENOENT && missing == Missing::kFail;
        return FileError(absent ? Code::kNotFound : CodeOf(errno), path, errno);
      }
    }
    if (file && flock(file->fd(), how) == 0) {
      if (IsStillAt(path, file->fd())) break;
      file.reset();  // its last user removed it while we waited: it is nobody's any more
    } else if (file && errno != EWOULDBLOCK && errno != EINTR) {
      return FileError(CodeOf(errno), path, errno);
    }
    const Instant next = clock_.Now() + pause;
    if (next >= deadline) {
      return Error{Code::kTimeout, Concat(path, ": somebody else has held its lock all the time")};
    }
    clock_.SleepUntil(next);
    if (IsInterrupted())
      return Interrupted(began, clock_.Now(), Concat("waiting for the lock of ", path));
    pause = std::min<Duration>(pause * 3 / 2, kLockRetryLongest);
  }
  file->set_identity(Identify(path, file->fd()));
  return std::unique_ptr<LockedFile>(std::move(file));
}

bool PosixFiles::Exists(const std::string& path) { return access(path.c_str(), F_OK) == 0; }

void PosixFiles::Remove(const std::string& path) { unlink(path.c_str()); }

}  // namespace muster
