#include "core/store/queues.h"

#include <gtest/gtest.h>

namespace muster {
namespace {

constexpr ClientId kA{1}, kB{2}, kC{3};
constexpr Instant kStart{1h};
constexpr Duration kKept = 1s;

TEST(QueuesTest, ElementsComeOutInTheOrderTheyWentIn) {
  Queues queues(kKept);
  queues.Push("q", "1");
  queues.Push("q", "");
  queues.Push("q", std::string_view("\0\xff", 2));
  EXPECT_EQ(queues.Length("q"), 3u);
  EXPECT_EQ(queues.Pop(kA, "q"), "1");
  EXPECT_EQ(queues.Pop(kB, "q"), "");
  EXPECT_EQ(queues.Pop(kA, "q"), std::string("\0\xff", 2));
  EXPECT_EQ(queues.Pop(kA, "q"), std::nullopt);
}

TEST(QueuesTest, AnUnknownQueueIsEmpty) {
  Queues queues(kKept);
  EXPECT_EQ(queues.Length("q"), 0u);
  EXPECT_FALSE(queues.HasFree("q"));
  EXPECT_EQ(queues.Pop(kA, "q"), std::nullopt);
  EXPECT_EQ(queues.size(), 0u);
}

TEST(QueuesTest, AQueueExistsWhileItHasElements) {
  Queues queues(kKept);
  queues.Push("q", "1");
  queues.Push("r", "2");
  EXPECT_EQ(queues.size(), 2u);
  queues.Pop(kA, "q");
  EXPECT_EQ(queues.size(), 1u);
  queues.Push("q", "3");
  EXPECT_EQ(queues.Pop(kA, "q"), "3");
}

TEST(QueuesTest, AReservedElementCountsButIsNotFree) {
  Queues queues(kKept);
  queues.Push("q", "1");
  queues.Reserve(kA, "q", kStart);
  EXPECT_EQ(queues.Length("q"), 1u);
  EXPECT_FALSE(queues.HasFree("q"));
  EXPECT_EQ(queues.Pop(kB, "q"), std::nullopt);
  EXPECT_EQ(queues.Pop(kA, "q"), "1");
  EXPECT_FALSE(queues.has_reservations());
}

TEST(QueuesTest, AReservationKeepsOneElementNotOneInParticular) {
  Queues queues(kKept);
  queues.Push("q", "1");
  queues.Push("q", "2");
  queues.Reserve(kA, "q", kStart);
  EXPECT_EQ(queues.Pop(kB, "q"), "1");
  EXPECT_EQ(queues.Pop(kB, "q"), std::nullopt);
  EXPECT_EQ(queues.Pop(kA, "q"), "2");
}

TEST(QueuesTest, PoppingElsewhereKeepsTheReservation) {
  Queues queues(kKept);
  queues.Push("q", "1");
  queues.Push("r", "2");
  queues.Reserve(kA, "q", kStart);
  EXPECT_EQ(queues.Pop(kA, "r"), "2");
  EXPECT_EQ(queues.ReservedBy(kA), "q");
}

TEST(QueuesTest, GivingAReservationUpFreesTheElementOnce) {
  Queues queues(kKept);
  queues.Push("q", "1");
  queues.Reserve(kA, "q", kStart);
  EXPECT_EQ(queues.Unreserve(kB), std::nullopt);
  EXPECT_EQ(queues.Unreserve(kA), "q");
  EXPECT_EQ(queues.Unreserve(kA), std::nullopt);
  EXPECT_EQ(queues.ReservedBy(kA), std::nullopt);
  EXPECT_EQ(queues.Pop(kB, "q"), "1");
}

TEST(QueuesTest, ReservationsExpireOldestFirstWhenTheirTimeIsUp) {
  Queues queues(kKept);
  for (const std::string_view element : {"1", "2", "3"}) queues.Push("q", element);
  queues.Reserve(kB, "q", kStart);
  queues.Reserve(kA, "q", kStart + 1ms);
  queues.Reserve(kC, "q", kStart + 2ms);
  EXPECT_EQ(queues.Expired(kStart + (kKept - 1ns)), std::nullopt);
  EXPECT_EQ(queues.Expired(kStart + kKept), kB);
  queues.Unreserve(kB);
  EXPECT_EQ(queues.Expired(kStart + kKept), std::nullopt);
  queues.Pop(kA, "q");
  EXPECT_EQ(queues.Expired(Instant::Never()), kC);
}

TEST(QueuesTest, WithoutALimitReservationsLast) {
  Queues queues(Duration::max());
  queues.Push("q", "1");
  queues.Reserve(kA, "q", kStart);
  EXPECT_EQ(queues.Expired(kStart + 24h * 365 * 200), std::nullopt);
}

TEST(QueuesDeathTest, ReservingWhatIsNotFreeIsABug) {
  Queues queues(kKept);
  queues.Push("q", "1");
  queues.Reserve(kA, "q", kStart);
  EXPECT_DEATH(queues.Reserve(kB, "q", kStart), "HasFree\\(key\\) does not hold");
}

TEST(QueuesDeathTest, TwoReservationsOfOneClientAreABug) {
  Queues queues(kKept);
  queues.Push("q", "1");
  queues.Push("q", "2");
  queues.Reserve(kA, "q", kStart);
  EXPECT_DEATH(queues.Reserve(kA, "q", kStart), "contains\\(client\\) does not hold");
}

}  // namespace
}  // namespace muster
