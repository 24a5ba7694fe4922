#include "os/posix/cores.h"

#include <sched.h>

#include <algorithm>
#include <cstdint>
#include <sstream>
#include <thread>

#include "os/posix/cgroup.h"
#include "os/posix/file_io.h"

namespace muster {

namespace {

size_t CoresOfMask() {
  cpu_set_t sets[8] = {};  // 8192 CPUs, as many as Linux supports
  if (sched_getaffinity(0, sizeof sets, sets) != 0) return std::thread::hardware_concurrency();
  return static_cast<size_t>(CPU_COUNT_S(sizeof sets, sets));
}

}  // namespace

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
  return std::min(std::max<size_t>(1, CoresOfMask()), LeastCpuQuota(group.value_or("")));
}

int DefaultLoops() { return static_cast<int>(std::max<size_t>(1, UsableCores() / 2)); }

}  // namespace muster
