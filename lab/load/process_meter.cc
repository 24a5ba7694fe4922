#include "load/process_meter.h"

#include <time.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <system_error>

#include "base/text.h"

namespace muster::load {

namespace {

Error NoProcess(pid_t pid) { return Error{Code::kNotFound, Concat("there is no process ", pid)}; }

Duration ReadClock(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

}  // namespace

Result<Duration> CpuTime(pid_t pid) {
  clockid_t clock;
  if (clock_getcpuclockid(pid, &clock) != 0) return NoProcess(pid);
  return ReadClock(clock);
}

Duration OwnCpuTime() { return ReadClock(CLOCK_PROCESS_CPUTIME_ID); }

Result<Memory> MemoryOf(pid_t pid) {
  std::ifstream status(Concat("/proc/", pid, "/status"));
  if (!status) return NoProcess(pid);
  Memory memory;
  for (std::string line; std::getline(status, line);) {
    const auto bytes = [&] {
      return std::strtoull(line.c_str() + line.find(':') + 1, nullptr, 10) * 1024;
    };
    if (line.starts_with("VmRSS:")) memory.resident_bytes = bytes();
    if (line.starts_with("VmHWM:")) memory.peak_bytes = bytes();
  }
  return memory;
}

Result<size_t> DescriptorsOf(pid_t pid) {
  std::error_code failed;
  const std::filesystem::directory_iterator open(Concat("/proc/", pid, "/fd"), failed);
  if (failed) return NoProcess(pid);
  return static_cast<size_t>(std::distance(begin(open), end(open)));
}

}  // namespace muster::load
