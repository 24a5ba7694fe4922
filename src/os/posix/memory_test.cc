#include "os/posix/memory.h"

#include <gtest/gtest.h>

#include <stdlib.h>
#include <unistd.h>
#include <new>

#include <filesystem>
#include <fstream>
#include <string>

namespace muster {
namespace {

namespace fs = std::filesystem;

class MemoryTest : public ::testing::Test {
 protected:
  MemoryTest() {
    std::string name = fs::temp_directory_path() / "muster_memory_XXXXXX";
    folder_ = mkdtemp(name.data());
    fs::create_directories(folder_ / "slice" / "job");
  }
  ~MemoryTest() override { fs::remove_all(folder_); }

  void Write(const fs::path& group, const std::string& limit) {
    std::ofstream(folder_ / group / "memory.max") << limit << '\n';
  }
  uint64_t Least() const { return LeastMemoryMax(folder_ / "slice" / "job"); }

  fs::path folder_;
};

TEST_F(MemoryTest, GroupsWithoutALimitLimitNothing) {
  EXPECT_EQ(Least(), UINT64_MAX);
  Write("slice/job", "max");
  EXPECT_EQ(Least(), UINT64_MAX);
}

TEST_F(MemoryTest, TheLeastOfAGroupAndThoseAboveItCounts) {
  Write("slice/job", "4096");
  EXPECT_EQ(Least(), 4096u);
  Write("slice", "1024");
  EXPECT_EQ(Least(), 1024u);
  Write("slice", "max");
  EXPECT_EQ(Least(), 4096u);
}

TEST(UsableMemoryTest, IsNoMoreThanTheMachineHas) {
  EXPECT_GT(UsableMemory(), 1u << 20);
  EXPECT_LE(UsableMemory(), static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) *
                                static_cast<uint64_t>(sysconf(_SC_PAGESIZE)));
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST(ResidentMemoryTest, GrowsWithWhatIsAllocated) {
  constexpr size_t kMuch = 64 << 20;
  const ResidentMemory resident;
  const uint64_t before = resident.Read();
  EXPECT_GT(before, 0u);
  const std::string much(kMuch, 'x');
  EXPECT_GT(resident.Read(), before + kMuch / 10 * 9);
  EXPECT_LT(resident.Read(), before + kMuch / 10 * 11);
}
#endif

TEST(MemoryReserveTest, LowersTheLimitUntilItIsThereAgain) {
  MemoryAccount account(1 << 30);
  account.Add(1000);
  MemoryReserve reserve(account);
  const std::new_handler handler = std::get_new_handler();
  ASSERT_NE(handler, nullptr);
  // As operator new does for an impossible allocation: until there is no handler.
  handler();
  EXPECT_EQ(account.limit(), 1000 + MemoryReserve::kBytes / 4);
  handler();
  EXPECT_EQ(account.limit(), 1000 + MemoryReserve::kBytes / 4);
  EXPECT_NE(std::get_new_handler(), handler);

  EXPECT_TRUE(reserve.Refill());
  EXPECT_EQ(account.limit(), 1 << 30);
  EXPECT_EQ(std::get_new_handler(), handler);
  EXPECT_FALSE(reserve.Refill());
}

}  // namespace
}  // namespace muster
