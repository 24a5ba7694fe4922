// Separate from raw_socket.cc: the kernel's header, which has the field, and glibc's cannot be
// included together.
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <stdexcept>

#include "support/raw_socket.h"

namespace muster::test {

uint32_t RawSocket::SegmentsReceived() const {
  tcp_info info{};
  socklen_t size = sizeof info;
  if (getsockopt(fd_, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) {
    throw std::runtime_error("raw socket: no TCP_INFO");
  }
  return info.tcpi_data_segs_in;
}

}  // namespace muster::test
