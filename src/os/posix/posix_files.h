// Files that several processes read and append to, one writer at a time (flock(2)): the base of
// FileStore. One thread at a time.
//
// The kernel reuses a file's number once the file is gone. So a
// descriptor of the file last seen under each path is kept, which keeps its number taken; whatever
// has another number is then another file, on every file system. The descriptor can neither read
// nor lock (O_PATH): a child that inherits it through fork() shares nothing that matters.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "base/result.h"
#include "os/ports/clock.h"
#include "os/posix/owned_fd.h"

namespace muster {

/// An open file with its lock held, until destroyed.
class LockedFile {
 public:
  LockedFile(std::string path, OwnedFd fd, uint64_t identity)
      : path_(std::move(path)), fd_(std::move(fd)), identity_(identity) {}

  Result<uint64_t> Size() const;
  /// Differs between a file and another one that later has the same name.
  uint64_t identity() const { return identity_; }
  /// All bytes from `offset` to the end.
  Result<std::string> ReadFrom(uint64_t offset) const;
  /// Needs the exclusive lock, as the next one does. Appends all of `bytes`, or (on an error) none.
  Status Append(std::string_view bytes) const;
  Status Truncate(uint64_t size) const;

 private:
  std::string path_;
  OwnedFd fd_;  // the lock goes with it
  uint64_t identity_;
};

class PosixFiles {
 public:
  enum class Lock { kShared, kExclusive };
  enum class Missing { kCreate, kFail };

  explicit PosixFiles(Clock& clock) : clock_(clock) {}

  /// Opens and locks `path`, waiting for the lock until `deadline`. kNotFound: there is no such
  /// file (with kFail). kTimeout: another process held the lock. kInvalid: the path cannot be used.
  Result<LockedFile> Open(const std::string& path, Lock lock, Missing missing, Instant deadline);

 private:
  struct Seen {
    OwnedFd fd{};  // not open: none could be had, so nothing is known to be this file
    uint64_t identity = 0;
  };

  /// The number that the open file `fd`, found under `path`, has among all seen there.
  uint64_t Identify(const std::string& path, int fd);

  Clock& clock_;
  std::map<std::string, Seen> seen_;  // by path
  uint64_t identities_ = 0;
};

}  // namespace muster
