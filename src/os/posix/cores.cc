#include "os/posix/cores.h"

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <thread>

#include "os/posix/cgroup.h"
#include "os/posix/file_io.h"

namespace muster {

namespace {

unsigned CoresOfMask() {
  cpu_set_t sets[8] = {};  // 8192 CPUs, as many as Linux supports
  if (sched_getaffinity(0, sizeof sets, sets) != 0) return std::thread::hardware_concurrency();
  return static_cast<unsigned>(CPU_COUNT_S(sizeof sets, sets));
}

}  // namespace

double LeastCpuQuota(std::string folder) {
  double least = 0;
  while (!folder.empty()) {
    const std::string text = ReadUpTo(folder + "/cpu.max").value_or("");
    double quota = 0;  // "max" is not a number
    double period = 0;
    if (std::sscanf(text.c_str(), "%lf %lf", &quota, &period) == 2 && quota > 0 && period > 0)
      least = least > 0 ? std::min(least, quota / period) : quota / period;
    folder.resize(folder.rfind('/') == std::string::npos ? 0 : folder.rfind('/'));
  }
  return least;
}

unsigned UsableCores() {
  const unsigned cores = std::max(1u, CoresOfMask());
  const auto group = OwnCgroupFolder(ReadUpTo("/proc/self/mountinfo").value_or(""),
                                     ReadUpTo("/proc/self/cgroup").value_or(""));
  const double quota = group ? LeastCpuQuota(*group) : 0;
  return quota > 0 && quota < cores ? static_cast<unsigned>(std::ceil(quota)) : cores;
}

int DefaultLoops() { return static_cast<int>(std::max(1u, UsableCores() / 2)); }

}  // namespace muster
