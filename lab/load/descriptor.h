// A file descriptor with an owner, and how many of them a process may have.
#pragma once

#include <cstddef>
#include <utility>

#include "base/result.h"

namespace muster::load {

class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept;
  ~Descriptor() { Close(); }

  int get() const { return fd_; }
  bool is_open() const { return fd_ >= 0; }
  void Close();

 private:
  int fd_ = -1;
};

/// Raises the soft limit to the hard one, for this process and those it starts. kInvalid, naming
/// both numbers, if the hard one does not allow `connections` and the few descriptors that every
/// process needs.
Status AllowConnections(size_t connections);

/// "what: why", after a system call that failed.
Error SystemError(const char* what);

}  // namespace muster::load
