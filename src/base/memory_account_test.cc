#include "base/memory_account.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace muster
