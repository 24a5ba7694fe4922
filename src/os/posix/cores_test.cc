#include "os/posix/cores.h"

#include <gtest/gtest.h>

#include <sched.h>
#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

namespace muster {
namespace {

namespace fs = std::filesystem;

TEST(LeastCpuQuotaTest, TheLeastOfAGroupAndThoseAboveItCounts) {
  std::string name = fs::temp_directory_path() / "muster_cores_XXXXXX";
  const fs::path root = mkdtemp(name.data());
  const fs::path job = root / "slice" / "job";
  fs::create_directories(job);
  const auto write = [](const fs::path& group, const char* limit) {
    std::ofstream(group / "cpu.max") << limit << '\n';
  };
  EXPECT_EQ(LeastCpuQuota(job), 0) << "there is none";
  write(job, "max 100000");
  EXPECT_EQ(LeastCpuQuota(job), 0);
  write(job, "400000 100000");
  EXPECT_EQ(LeastCpuQuota(job), 4);
  write(root / "slice", "150000 100000");
  EXPECT_EQ(LeastCpuQuota(job), 1.5);
  write(root / "slice", "max 100000");
  EXPECT_EQ(LeastCpuQuota(job), 4);
  fs::remove_all(root);
}

TEST(UsableCoresTest, AreThoseOfTheAffinityMaskAndHalfOfThemServe) {
  // A thread of its own: the mask is the thread's.
  std::thread([] {
    cpu_set_t all{};
    ASSERT_EQ(sched_getaffinity(0, sizeof all, &all), 0);
    EXPECT_GE(UsableCores(), 1u);
    EXPECT_LE(UsableCores(), static_cast<unsigned>(CPU_COUNT(&all)));
    EXPECT_EQ(DefaultLoops(), std::max(1, static_cast<int>(UsableCores() / 2)));
    cpu_set_t one{};
    for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++cpu) {
      if (CPU_ISSET(cpu, &all)) CPU_SET(cpu, &one);
    }
    ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
    EXPECT_EQ(UsableCores(), 1u);
    EXPECT_EQ(DefaultLoops(), 1);
  }).join();
}

}  // namespace
}  // namespace muster
