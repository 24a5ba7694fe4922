#include "face/this_node.h"

#include <atomic>
#include <stdexcept>

#include "adapters/posix/process.h"
#include "base/limits.h"
#include "base/text.h"

namespace muster {

Node ThisNode(const std::string& addr) {
  static std::atomic<int64_t> made = 0;
  // What is not printed as it is could not be read as the master's address.
  if (addr.size() > kNodeAddressBytesMax || Printable(addr, addr.size()) != addr) {
    throw std::invalid_argument(Concat("the local address '", Printable(addr, 64),
                                       "' must be printable UTF-8 of at most ",
                                       HumanBytes(kNodeAddressBytesMax)));
  }
  return {.addr = addr, .pid = static_cast<int64_t>(ProcessId()), .local_id = made++};
}

uint64_t SeedOfNow(const Clock& clock) {
  return static_cast<uint64_t>(clock.Wall()) ^ (uint64_t{ProcessId()} << 40) ^
         static_cast<uint64_t>(clock.Now().since_start.count());
}

}  // namespace muster
