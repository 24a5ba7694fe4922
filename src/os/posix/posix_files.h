// Files with flock(2) behind the SharedFiles port. One thread at a time.
//
// A file's number says nothing once the file is gone: the kernel gives it to the next one. So a
// descriptor of the file last seen under each path is kept, which keeps its number taken; whatever
// has another number is then another file, on every file system. The descriptor can neither read
// nor lock (O_PATH): a child that inherits it through fork() shares nothing that matters.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "os/ports/clock.h"
#include "os/ports/shared_file.h"

namespace muster {

class PosixFiles final : public SharedFiles {
 public:
  explicit PosixFiles(Clock& clock) : clock_(clock) {}
  ~PosixFiles() override;
  PosixFiles(const PosixFiles&) = delete;
  PosixFiles& operator=(const PosixFiles&) = delete;

  Result<std::unique_ptr<LockedFile>> Open(const std::string& path, Lock lock, Missing missing,
                                           Instant deadline) override;
  bool Exists(const std::string& path) override;
  void Remove(const std::string& path) override;

 private:
  struct Seen {
    int fd = -1;  // -1: none could be had, so nothing is known to be this file
    uint64_t identity = 0;
  };

  /// The number that the open file `fd`, found under `path`, has among all seen there.
  uint64_t Identify(const std::string& path, int fd);

  Clock& clock_;
  std::map<std::string, Seen> seen_;  // by path
  uint64_t identities_ = 0;
};

}  // namespace muster
