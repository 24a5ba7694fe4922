#include "os/posix/process.h"

#include <pthread.h>
#include <unistd.h>

#include <string>

#include "base/utf8.h"

namespace muster {

uint32_t ProcessId() { return static_cast<uint32_t>(getpid()); }

void NameThisThread(std::string_view name) {
  constexpr size_t kMax = 15;
  if (name.size() > kMax) name = EndsOf(name, kMax, 0).first;
  pthread_setname_np(pthread_self(), std::string(name).c_str());
}

}  // namespace muster
