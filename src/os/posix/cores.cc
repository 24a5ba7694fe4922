#include "os/posix/cores.h"

#include <sched.h>

#include <algorithm>
#include <cstdint>
#include <sstream>
#include <thread>

#include "os/posix/cgroup.h"
#include "os/posix/file_io.h"
#include "os/posix/system_error.h"

namespace muster {

Result<std::vector<int>> OwnCpus() {
  // The kernel needs room for all CPUs that it was built for.
  cpu_set_t sets[kCpusMax / CPU_SETSIZE] = {};
  if (sched_getaffinity(0, sizeof sets, sets) != 0)
    return SystemError("the CPUs of this process cannot be read");
  std::vector<int> cpus;
  for (int cpu = 0; cpu < kCpusMax; ++cpu)
    if (CPU_ISSET_S(static_cast<size_t>(cpu), sizeof sets, sets)) cpus.push_back(cpu);
  return cpus;
}

size_t LeastCpuQuota(std::string folder) {
  size_t least = SIZE_MAX;
  while (!folder.empty()) {
    std::istringstream words(ReadUpTo(folder + "/cpu.max").value_or(""));
    size_t quota = 0;  // "max" is not a number
    size_t period = 0;
    if (words >> quota >> period && quota > 0 && period > 0)
      least = std::min(least, (quota - 1) / period + 1);
    folder.resize(folder.rfind('/') == folder.npos ? 0 : folder.rfind('/'));
  }
  return least;
}

size_t UsableCores() {
  const auto group = OwnCgroupFolder(ReadUpTo("/proc/self/mountinfo").value_or(""),
                                     ReadUpTo("/proc/self/cgroup").value_or(""));
  const auto cpus = OwnCpus();
  const size_t count = cpus ? cpus->size() : std::thread::hardware_concurrency();
  return std::min(std::max<size_t>(1, count), LeastCpuQuota(group.value_or("")));
}

int DefaultLoops() { return static_cast<int>(std::max<size_t>(1, UsableCores() / 2)); }

}  // namespace muster
