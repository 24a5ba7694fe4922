#include "rendezvous/new_node.h"

#include <stdexcept>

#include "base/limits.h"
#include "base/text.h"

namespace muster {

Node NewNode(System& around, const std::string& addr) {
  // What is not printed as it is could not be read as the master's address.
  if (addr.size() > kNodeAddressBytesMax || Printable(addr, addr.size()) != addr) {
    throw std::invalid_argument(Concat("the local address '", Printable(addr, 64),
                                       "' must be printable UTF-8 of at most ",
                                       HumanBytes(kNodeAddressBytesMax)));
  }
  return {.addr = addr,
          .pid = static_cast<int64_t>(around.process_id()),
          .local_id = around.NextNodeId()};
}

}  // namespace muster
