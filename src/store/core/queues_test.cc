#include "store/core/queues.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <string_view>

namespace muster {
namespace {

constexpr ClientId kA{1}, kB{2}, kC{3};
constexpr Instant kStart{1h};
constexpr Duration kKept = 1s;

/// Queues that are addressed by their names alone.
class NamedQueues {
 public:
  explicit NamedQueues(Duration reservation_max) : queues_(reservation_max, scopes_, account_) {}

  void Push(std::string_view key, std::string_view element) {
    queues_.Push(hasher_(key), Value(element), kStart);
  }
  size_t Length(std::string_view key) const { return queues_.Length(hasher_(key)); }
  bool HasFree(std::string_view key) const { return queues_.HasFree(hasher_(key)); }
  void Reserve(ClientId client, std::string_view key, Instant now) {
    queues_.Reserve(client, hasher_(key), now);
  }
  bool HasReserved(ClientId client, std::string_view key) const {
    return queues_.HasReserved(client, hasher_(key));
  }
  std::optional<std::string> Unreserve(ClientId client) {
    const std::optional<OwnedKey> name = queues_.Unreserve(client);
    return name ? std::optional(name->text) : std::nullopt;
  }
  std::optional<ClientId> Expired(Instant now) const { return queues_.Expired(now); }
  std::optional<std::string> Pop(ClientId client, std::string_view key) {
    const std::optional<Value> element = queues_.Pop(client, hasher_(key));
    return element ? std::optional(std::string(element->view())) : std::nullopt;
  }
  uint64_t bytes() const { return account_.used(); }
  /// Deletes some queue of the scope.
  void DeleteIn(std::string_view scope) { queues_.Delete(*scopes_.AnyOf(scope)); }
  bool has_reservations() const { return queues_.has_reservations(); }
  size_t size() const { return queues_.size(); }

 private:
  const KeyHasher hasher_;
  MemoryAccount account_;
  MemoryAccount account_of_scopes_;
  Scopes scopes_{hasher_, 60s, account_of_scopes_};
  Queues queues_;
};

TEST(QueuesTest, ElementsComeOutInTheOrderTheyWentIn) {
  NamedQueues queues(kKept);
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
  NamedQueues queues(kKept);
  EXPECT_EQ(queues.Length("q"), 0u);
  EXPECT_FALSE(queues.HasFree("q"));
  EXPECT_EQ(queues.Pop(kA, "q"), std::nullopt);
  EXPECT_EQ(queues.size(), 0u);
}

TEST(QueuesTest, AQueueExistsWhileItHasElements) {
  NamedQueues queues(kKept);
  queues.Push("q", "1");
  queues.Push("r", "2");
  EXPECT_EQ(queues.size(), 2u);
  queues.Pop(kA, "q");
  EXPECT_EQ(queues.size(), 1u);
  queues.Push("q", "3");
  EXPECT_EQ(queues.Pop(kA, "q"), "3");
}

TEST(QueuesTest, AReservedElementCountsButIsNotFree) {
  NamedQueues queues(kKept);
  queues.Push("q", "1");
  queues.Reserve(kA, "q", kStart);
  EXPECT_EQ(queues.Length("q"), 1u);
  EXPECT_FALSE(queues.HasFree("q"));
  EXPECT_EQ(queues.Pop(kB, "q"), std::nullopt);
  EXPECT_EQ(queues.Pop(kA, "q"), "1");
  EXPECT_FALSE(queues.has_reservations());
}

TEST(QueuesTest, AReservationKeepsOneElementNotOneInParticular) {
  NamedQueues queues(kKept);
  queues.Push("q", "1");
  queues.Push("q", "2");
  queues.Reserve(kA, "q", kStart);
  EXPECT_EQ(queues.Pop(kB, "q"), "1");
  EXPECT_EQ(queues.Pop(kB, "q"), std::nullopt);
  EXPECT_EQ(queues.Pop(kA, "q"), "2");
}

TEST(QueuesTest, PoppingElsewhereKeepsTheReservation) {
  NamedQueues queues(kKept);
  queues.Push("q", "1");
  queues.Push("r", "2");
  queues.Reserve(kA, "q", kStart);
  EXPECT_EQ(queues.Pop(kA, "r"), "2");
  EXPECT_TRUE(queues.HasReserved(kA, "q"));
}

TEST(QueuesTest, GivingAReservationUpFreesTheElementOnce) {
  NamedQueues queues(kKept);
  queues.Push("q", "1");
  queues.Reserve(kA, "q", kStart);
  EXPECT_EQ(queues.Unreserve(kB), std::nullopt);
  EXPECT_EQ(queues.Unreserve(kA), "q");
  EXPECT_EQ(queues.Unreserve(kA), std::nullopt);
  EXPECT_FALSE(queues.HasReserved(kA, "q"));
  EXPECT_EQ(queues.Pop(kB, "q"), "1");
}

TEST(QueuesTest, ReservationsExpireOldestFirstWhenTheirTimeIsUp) {
  NamedQueues queues(kKept);
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
  NamedQueues queues(Duration::max());
  queues.Push("q", "1");
  queues.Reserve(kA, "q", kStart);
  EXPECT_EQ(queues.Expired(kStart + 24h * 365 * 200), std::nullopt);
}

TEST(QueuesTest, ADeletedQueueTakesItsElementsAlongAndLeavesThoseOfItsSuccessorAlone) {
  constexpr std::string_view kQueue = "/muster.run/g/0/q";
  NamedQueues queues(kKept);
  queues.Push(kQueue, "1");
  queues.Push(kQueue, "2");
  queues.Reserve(kA, kQueue, kStart);
  queues.DeleteIn("/muster.run/g/0/");
  EXPECT_EQ(queues.Length(kQueue), 0u);
  EXPECT_EQ(queues.size(), 0u);
  queues.Push(kQueue, "3");
  queues.Reserve(kB, kQueue, kStart);
  EXPECT_EQ(queues.Pop(kA, kQueue), std::nullopt);
  EXPECT_FALSE(queues.HasReserved(kA, kQueue));
  EXPECT_EQ(queues.Pop(kB, kQueue), "3");
  EXPECT_EQ(queues.bytes(), 0u);
}

TEST(QueuesDeathTest, ReservingWhatIsNotFreeIsABug) {
  NamedQueues queues(kKept);
  queues.Push("q", "1");
  queues.Reserve(kA, "q", kStart);
  EXPECT_DEATH(queues.Reserve(kB, "q", kStart), "HasFree\\(key\\) does not hold");
}

TEST(QueuesDeathTest, TwoReservationsOfOneClientAreABug) {
  NamedQueues queues(kKept);
  queues.Push("q", "1");
  queues.Push("q", "2");
  queues.Reserve(kA, "q", kStart);
  EXPECT_DEATH(queues.Reserve(kA, "q", kStart), "contains\\(client\\) does not hold");
}

}  // namespace
}  // namespace muster
