#include "load/descriptor.h"

#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string_view>

#include "base/text.h"

namespace muster::load {

namespace {
// Standard streams, epoll, pipes, a server's listener: always fewer than this.
constexpr size_t kOthers = 64;
}  // namespace

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  if (this != &other) {
    Close();
    fd_ = std::exchange(other.fd_, -1);
  }
  return *this;
}

void Descriptor::Close() {
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
}

Status AllowConnections(size_t connections) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return SystemError("getrlimit");
  const size_t wanted = connections + kOthers;
  if (limit.rlim_max < wanted) {
    return Error{Code::kInvalid, Concat(connections, " connections need ", wanted,
                                        " file descriptors, but 'ulimit -Hn' is ", limit.rlim_max)};
  }
  limit.rlim_cur = limit.rlim_max;
  if (setrlimit(RLIMIT_NOFILE, &limit) != 0) return SystemError("setrlimit");
  return Ok();
}

Error SystemError(const char* what) {
  const int number = errno;
  return Error{Code::kUnavailable,
               Concat(std::string_view(what), ": ", std::string_view(std::strerror(number)))};
}

}  // namespace muster::load
