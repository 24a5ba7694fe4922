#include "base/memory_account.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

namespace muster {
namespace {

constexpr uint64_t kLimit = 64'000;

TEST(MemoryAccountTest, AClientIsChargedForWhatItsThreadAddsMeanwhile) {
  MemoryAccount account(kLimit);
  int64_t added = 0;
  account.Add(100);
  {
    const MemoryAccount::Client client(account, added);
    account.Add(50);
    account.Change(30, 10);
    std::thread([&] { account.Add(1'000); }).join();
  }
  account.Add(1);
  EXPECT_EQ(added, 30);
  {
    const MemoryAccount::Client client(account, added);
    account.Subtract(40);
  }
  EXPECT_EQ(added, -10) << "net";
}

TEST(MemoryAccountTest, TheLastEighthIsNotForOneThatHasAddedMuch) {
  MemoryAccount account(kLimit);
  account.Add(kLimit / 8 * 7 - 10);
  int64_t much = kLimit / 64 + 1;
  int64_t little = kLimit / 64;
  {
    const MemoryAccount::Client client(account, much);
    EXPECT_TRUE(account.HasRoomFor(10));
    EXPECT_FALSE(account.HasRoomFor(11));
  }
  {
    const MemoryAccount::Client client(account, little);
    EXPECT_TRUE(account.HasRoomFor(11));
  }
  EXPECT_TRUE(account.HasRoomFor(11)) << "the rule ends with the client's turn";
}

TEST(MemoryAccountTest, TheLastPartIsNotForAnAddressWhoseClientsHaveAddedHalf) {
  MemoryAccount account(kLimit);
  std::atomic<int64_t> flooder = 0, other = 0;
  // Each of them has added little.
  for (uint64_t used = 0; used < kLimit / 32 * 31; used += kLimit / 128) {
    int64_t added = 0;
    const MemoryAccount::Client client(account, added, &flooder);
    ASSERT_TRUE(account.HasRoomFor(kLimit / 128));
    account.Add(kLimit / 128);
  }
  int64_t added = 0;
  {
    const MemoryAccount::Client client(account, added, &flooder);
    EXPECT_FALSE(account.HasRoomFor(1));
  }
  {
    const MemoryAccount::Client client(account, added, &other);
    EXPECT_TRUE(account.HasRoomFor(kLimit / 32));
    account.Add(10);
  }
  EXPECT_EQ(flooder, kLimit / 32 * 31);
  EXPECT_EQ(other, 10);
}

constexpr uint64_t kMebibyte = 1 << 20;

class SlackTest : public ::testing::Test {
 protected:
  SlackTest() {
    account_.CountResident([this] { return resident_; },
                           [this] {
                             ++reclaimed_;
                             resident_ -= returned_;
                           });
  }

  uint64_t resident_ = 10 * kMebibyte;
  uint64_t returned_ = 0;
  int reclaimed_ = 0;
  MemoryAccount account_{256 * kMebibyte};
};

TEST_F(SlackTest, CountsAgainstAllButSmallRequests) {
  account_.Add(100 * kMebibyte);
  resident_ += 100 * kMebibyte;
  EXPECT_TRUE(account_.HasRoomFor(100 * kMebibyte));
  account_.Subtract(90 * kMebibyte);
  // It has 100 MiB for 10 MiB; an eighth of the limit is its own.
  EXPECT_FALSE(account_.HasRoomFor(160 * kMebibyte));
  EXPECT_EQ(account_.slack(), (100 - 10 - 32) * kMebibyte);
  EXPECT_EQ(account_.Room(), (224 - 10 - 58) * kMebibyte);
  resident_ += 200 * kMebibyte;
  account_.Reclaim();  // measures, as every tick does
  EXPECT_FALSE(account_.HasRoomFor(kMebibyte));
  EXPECT_FALSE(account_.HasRoomFor(513));
  EXPECT_TRUE(account_.HasRoomFor(512));
}

TEST_F(SlackTest, IsMeasuredAgainBeforeARefusal) {
  resident_ += 300 * kMebibyte;
  EXPECT_FALSE(account_.HasRoomFor(5 * kMebibyte));
  resident_ -= 300 * kMebibyte;
  EXPECT_TRUE(account_.HasRoomFor(5 * kMebibyte));
}

TEST_F(SlackTest, IsReclaimedWhenItIsLargeAndAgainWhenItHasGrown) {
  EXPECT_FALSE(account_.Reclaim());
  resident_ += 200 * kMebibyte;
  returned_ = 100 * kMebibyte;
  EXPECT_TRUE(account_.Reclaim());
  EXPECT_EQ(account_.slack(), (100 - 32) * kMebibyte);
  // The rest cannot be returned.
  returned_ = 0;
  EXPECT_FALSE(account_.Reclaim());
  resident_ += 15 * kMebibyte;
  EXPECT_FALSE(account_.Reclaim());
  resident_ += 2 * kMebibyte;
  EXPECT_TRUE(account_.Reclaim());
  EXPECT_EQ(reclaimed_, 2);
}

TEST(MemoryAccountTest, WithoutAMeasureOnlyWhatIsUsedCounts) {
  MemoryAccount account(256 * kMebibyte);
  EXPECT_FALSE(account.Reclaim());
  EXPECT_TRUE(account.HasRoomFor(224 * kMebibyte));
  EXPECT_FALSE(account.HasRoomFor(225 * kMebibyte));
  EXPECT_EQ(account.slack(), 0u);
}

}  // namespace
}  // namespace muster
