#include "os/posix/memory.h"

#include <fcntl.h>
#include <malloc.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cinttypes>
#include <cstdio>
#include <mutex>
#include <new>
#include <optional>
#include <utility>

#include "base/text.h"
#include "os/posix/cgroup.h"
#include "os/posix/file_io.h"

namespace muster {

namespace {

std::string ReadText(const std::string& path) { return ReadUpTo(path).value_or(""); }

// There is one for the process, as for operator new and its handler. Nothing here allocates.
struct Reserve {
  std::mutex mutex;
  MemoryAccount* account = nullptr;  // null: there is none
  std::new_handler next = nullptr;
  void* kept = nullptr;
  bool was_given_up = false;

  void Keep() {
    void* made = mmap(nullptr, MemoryReserve::kBytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    kept = made == MAP_FAILED ? nullptr : made;
  }
  /// False: there was none.
  bool GiveUp() {
    if (kept == nullptr) return false;
    munmap(std::exchange(kept, nullptr), MemoryReserve::kBytes);
    was_given_up = true;
    return true;
  }
};
constinit Reserve reserve;

std::atomic<bool> gives_back = false;

// When this returns, operator new tries again with the current handler; without a handler it
// throws. The limit is lowered only until the reserve can be allocated again: the allocation may be
// an impossibly large one somewhere else in the process.
void OnNoMemory() {
  const std::lock_guard lock(reserve.mutex);
  if (!reserve.GiveUp()) {
    std::set_new_handler(reserve.next);
    return;
  }
  constexpr uint64_t kSome = MemoryReserve::kBytes / 4;
  if (reserve.account != nullptr) reserve.account->LowerLimit(reserve.account->used() + kSome);
}

void Install() {
  if (std::get_new_handler() == &OnNoMemory) return;
  reserve.next = std::set_new_handler(&OnNoMemory);
}

}  // namespace

MemoryReserve::MemoryReserve(MemoryAccount& account) {
  const std::lock_guard lock(reserve.mutex);
  if (reserve.account != nullptr) return;
  is_the_one_ = true;
  reserve.account = &account;
  reserve.Keep();
  reserve.was_given_up = false;
  Install();
}

MemoryReserve::~MemoryReserve() {
  if (!is_the_one_) return;
  const std::lock_guard lock(reserve.mutex);
  if (std::get_new_handler() == &OnNoMemory) std::set_new_handler(reserve.next);
  reserve.account = nullptr;
  reserve.GiveUp();
}

bool MemoryReserve::Refill() {
  if (!is_the_one_) return false;
  const std::lock_guard lock(reserve.mutex);
  if (reserve.kept == nullptr) reserve.Keep();
  if (reserve.kept != nullptr) reserve.account->RestoreLimit();
  Install();
  return std::exchange(reserve.was_given_up, false);
}

bool MemoryReserve::is_full() const {
  const std::lock_guard lock(reserve.mutex);
  return !is_the_one_ || (reserve.kept != nullptr && !reserve.was_given_up);
}

uint64_t LeastMemoryMax(std::string folder) {
  uint64_t least = UINT64_MAX;
  while (!folder.empty()) {
    // "max" is not a number.
    const auto limit = ParseAll<uint64_t>(Trim(ReadText(folder + "/memory.max")));
    if (limit.value_or(0) > 0) least = std::min(least, *limit);
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
  gives_back = true;
  constexpr int kMapped = 128 * 1024;
  mallopt(M_MMAP_THRESHOLD, kMapped);  // once set, it does not adapt
  mallopt(M_TRIM_THRESHOLD, 4 * kMapped);
  mallopt(M_ARENA_MAX, 2);  // memory freed in one arena cannot be used by another
}

bool GivesMemoryBack() { return gives_back; }

void TrimMemory() { malloc_trim(0); }

ResidentMemory::ResidentMemory() : statm_(open("/proc/self/statm", O_RDONLY | O_CLOEXEC)) {}

uint64_t ResidentMemory::Read() const {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return 0;  // most of it is the sanitizer's
#else
  char text[128] = "";
  uint64_t resident = 0;  // in pages, as are those of files
  uint64_t files = 0;
  if (pread(statm_.get(), text, sizeof text - 1, 0) <= 0) return 0;
  if (std::sscanf(text, "%*u %" SCNu64 " %" SCNu64, &resident, &files) != 2) return 0;
  return (resident - std::min(resident, files)) * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
#endif
}

}  // namespace muster
