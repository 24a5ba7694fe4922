#include "rendezvous/new_node.h"

#include <stdexcept>

#include "base/limits.h"
#include "base/text.h"

namespace muster {

Node NewNode(System& system, const std::string& addr) {
  // Others read it as the address of the master, in environments and logs.
  if (addr.size() > kNodeNameBytesMax || Printable(addr, addr.size()) != addr) {
    throw std::invalid_argument(Concat("the local address '", Printable(addr, 64),
                                       "' must be printable UTF-8 of at most ",
                                       HumanBytes(kNodeNameBytesMax)));
  }
  return {.addr = addr,
          .pid = static_cast<int64_t>(system.process_id()),
          .local_id = system.NextNodeId()};
}

}  // namespace muster
