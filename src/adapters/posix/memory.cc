#include "adapters/posix/memory.h"

#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <iterator>
#include <optional>

#include "adapters/posix/cgroup.h"

namespace muster {

namespace {

std::string ReadText(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

uint64_t LeastMemoryMax(std::string folder) {
  uint64_t least = UINT64_MAX;
  while (!folder.empty()) {
    const std::string text = ReadText(folder + "/memory.max");
    uint64_t limit = 0;  // "max" is no number
    const auto read = std::from_chars(text.data(), text.data() + text.size(), limit);
    if (read.ec == std::errc() && limit > 0) least = std::min(least, limit);
    folder.resize(folder.rfind('/') == std::string::npos ? 0 : folder.rfind('/'));
  }
  return least;
}

uint64_t UsableMemory() {
  const auto machine =
      static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  const std::optional<std::string> group =
      OwnCgroupFolder(ReadText("/proc/self/mountinfo"), ReadText("/proc/self/cgroup"));
  return group ? std::min(machine, LeastMemoryMax(*group)) : machine;
}

void GiveMemoryBack() {
#if defined(__GLIBC__)
  constexpr int kMapped = 128 * 1024;
  mallopt(M_MMAP_THRESHOLD, kMapped);  // said so, it stays what it is
  mallopt(M_TRIM_THRESHOLD, 4 * kMapped);
  mallopt(M_ARENA_MAX, 2);  // memory freed in one is of no use to another
#endif
}

}  // namespace muster
