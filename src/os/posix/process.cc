#include "os/posix/process.h"

#include <pthread.h>
#include <unistd.h>

#include <string>

namespace muster {

uint32_t ProcessId() { return static_cast<uint32_t>(getpid()); }

void NameThisThread(std::string_view name) {
  constexpr size_t kMax = 15;
  if (name.size() > kMax) {
    size_t end = kMax;
    // Not in the middle of a UTF-8 character: goes back to its beginning.
    while (end > 0 && (static_cast<unsigned char>(name[end]) & 0xc0) == 0x80) --end;
    name = name.substr(0, end);
  }
  pthread_setname_np(pthread_self(), std::string(name).c_str());
}

}  // namespace muster
