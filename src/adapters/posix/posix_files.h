// Files with flock(2) behind the SharedFiles port.
#pragma once

#include <memory>
#include <string>

#include "ports/clock.h"
#include "ports/shared_file.h"

namespace muster {

class PosixFiles final : public SharedFiles {
 public:
  explicit PosixFiles(Clock& clock) : clock_(clock) {}

  Result<std::unique_ptr<LockedFile>> Open(const std::string& path, Lock lock, Missing missing,
                                           Instant deadline) override;
  bool Exists(const std::string& path) override;
  void Remove(const std::string& path) override;

 private:
  Clock& clock_;
};

}  // namespace muster
