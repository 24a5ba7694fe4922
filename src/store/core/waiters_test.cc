#include "store/core/waiters.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace muster {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr ClientId kA{1}, kB{2}, kC{3};

class WaitersTest : public ::testing::Test {
 protected:
  void Park(ClientId client, const std::vector<std::string_view>& missing) {
    std::vector<HashedKey> keys;
    for (const std::string_view key : missing) keys.push_back(hasher_(key));
    waiters_.Park(client, keys);
  }

  Released Created(std::string_view key) {
    Released released;
    waiters_.Created(hasher_(key), released);
    return released;
  }

  /// The client that took the element; empty if no client did.
  Released Offer(std::string_view key) {
    Released released;
    const bool taken = waiters_.Offer(hasher_(key), released);
    EXPECT_EQ(taken, !released.empty());
    return released;
  }

  const KeyHasher hasher_;
  MemoryAccount account_;
  Waiters waiters_{account_};
};

TEST_F(WaitersTest, CreationReleasesEveryWaiterOfTheKeyOldestFirst) {
  Park(kB, {"k"});
  Park(kC, {"other"});
  Park(kA, {"k"});
  EXPECT_THAT(Created("k"), ElementsAre(kB, kA));
  EXPECT_TRUE(waiters_.Contains(kC));
}

TEST_F(WaitersTest, CreationOfAKeyNobodyWaitsForTouchesNobody) {
  EXPECT_THAT(Created("k"), IsEmpty());
  Park(kA, {"k"});
  EXPECT_THAT(Created("kk"), IsEmpty());
  EXPECT_TRUE(waiters_.Contains(kA));
}

TEST_F(WaitersTest, AClientIsReleasedWithItsLastKey) {
  Park(kA, {"1", "2", "3"});
  EXPECT_THAT(Created("2"), IsEmpty());
  EXPECT_THAT(Created("2"), IsEmpty());
  EXPECT_THAT(Created("3"), IsEmpty());
  EXPECT_EQ(waiters_.waited_keys(), 1u);
  EXPECT_THAT(Created("1"), ElementsAre(kA));
  EXPECT_FALSE(waiters_.Contains(kA));
}

TEST_F(WaitersTest, AKeyNamedTwiceIsSatisfiedByOneCreation) {
  Park(kA, {"k", "k", "k"});
  EXPECT_EQ(waiters_.waited_keys(), 1u);
  EXPECT_THAT(Created("k"), ElementsAre(kA));
  EXPECT_EQ(waiters_.waited_keys(), 0u);
}

TEST_F(WaitersTest, AKeyNamedTwiceTakesOneElement) {
  Park(kA, {"q", "q"});
  Park(kB, {"q"});
  EXPECT_THAT(Offer("q"), ElementsAre(kA));
  EXPECT_THAT(Offer("q"), ElementsAre(kB));
  EXPECT_THAT(Offer("q"), IsEmpty());
}

TEST_F(WaitersTest, AnOfferReleasesTheOldestOnly) {
  Park(kA, {"q"});
  Park(kB, {"q"});
  EXPECT_THAT(Offer("q"), ElementsAre(kA));
  EXPECT_TRUE(waiters_.Contains(kB));
}

TEST_F(WaitersTest, AnOfferPassesByThoseWhoMissOtherKeysAndSatisfiesThemOnTheWay) {
  Park(kA, {"q", "k"});
  Park(kB, {"q"});
  EXPECT_THAT(Offer("q"), ElementsAre(kB));
  EXPECT_THAT(Created("k"), ElementsAre(kA));
}

TEST_F(WaitersTest, AnOfferIsNotTakenWhenAllMissOtherKeys) {
  Park(kA, {"q", "k"});
  EXPECT_THAT(Offer("q"), IsEmpty());
  EXPECT_EQ(waiters_.waited_keys(), 1u);
}

TEST_F(WaitersTest, AnOfferDoesNotReachThoseBehindTheOneWhoTookIt) {
  Park(kA, {"q"});
  Park(kB, {"q", "k"});
  EXPECT_THAT(Offer("q"), ElementsAre(kA));
  EXPECT_THAT(Created("k"), IsEmpty());
  EXPECT_THAT(Offer("q"), ElementsAre(kB));
}

TEST_F(WaitersTest, ARemovedClientIsNotReleasedAndTheOthersKeepTheirPlace) {
  Park(kA, {"k"});
  Park(kB, {"k", "l"});
  Park(kC, {"k"});
  EXPECT_TRUE(waiters_.Remove(kB));
  EXPECT_THAT(Created("k"), ElementsAre(kA, kC));
  EXPECT_THAT(Created("l"), IsEmpty());
}

TEST_F(WaitersTest, RemovingForgetsKeysNamedTwiceAndKeysAlreadySatisfied) {
  Park(kA, {"k", "l", "k", "m"});
  Created("l");
  EXPECT_TRUE(waiters_.Remove(kA));
  EXPECT_EQ(waiters_.waited_keys(), 0u);
  EXPECT_THAT(Created("k"), IsEmpty());
  EXPECT_THAT(Created("m"), IsEmpty());
}

TEST_F(WaitersTest, RemovingAClientThatDoesNotWaitSaysSo) {
  EXPECT_FALSE(waiters_.Remove(kA));
  Park(kA, {"k"});
  Created("k");
  EXPECT_FALSE(waiters_.Remove(kA));
}

TEST_F(WaitersTest, AClientParksAgainAfterReleaseAndAfterRemovalAtTheEndOfTheLine) {
  Park(kA, {"k"});
  Created("k");
  Park(kA, {"q"});
  Park(kB, {"q"});
  waiters_.Remove(kA);
  Park(kA, {"q"});
  EXPECT_THAT(Offer("q"), ElementsAre(kB));
  EXPECT_THAT(Offer("q"), ElementsAre(kA));
}

TEST_F(WaitersTest, TheEmptyKeyAndKeysWithNulAreKeysLikeOthers) {
  const std::string_view nul("a\0b", 3);
  Park(kA, {"", nul});
  EXPECT_THAT(Created("a"), IsEmpty());
  EXPECT_THAT(Created(""), IsEmpty());
  EXPECT_THAT(Created(nul), ElementsAre(kA));
}

// Lines are created and removed while other clients wait: growing the table must not move what a
// waiter points to.
TEST_F(WaitersTest, TenThousandWaitersOnTheirOwnKeysAreReleasedOneByOne) {
  constexpr uint64_t kClients = 10'000;
  for (uint64_t i = 0; i < kClients; ++i) Park(ClientId{i}, {std::to_string(i), "all"});
  for (uint64_t i = 0; i < kClients; i += 2) EXPECT_THAT(Created(std::to_string(i)), IsEmpty());
  for (uint64_t i = 0; i < kClients; i += 5) EXPECT_TRUE(waiters_.Remove(ClientId{i}));
  const Released released = Created("all");
  EXPECT_EQ(released.size(), kClients / 2 - kClients / 10);
  EXPECT_TRUE(std::is_sorted(released.begin(), released.end()));
  for (uint64_t i = 1; i < kClients; i += 2) {
    EXPECT_EQ(Created(std::to_string(i)).size(), i % 5 == 0 ? 0u : 1u);
  }
  EXPECT_EQ(waiters_.clients(), 0u);
  EXPECT_EQ(waiters_.waited_keys(), 0u);
}

using WaitersDeathTest = WaitersTest;

TEST_F(WaitersDeathTest, ParkingTwiceIsABug) {
  Park(kA, {"k"});
  EXPECT_DEATH(Park(kA, {"l"}), "!Contains\\(client\\) does not hold");
}

TEST_F(WaitersDeathTest, ParkingForNothingIsABug) {
  EXPECT_DEATH(Park(kA, {}), "!missing.empty\\(\\) does not hold");
}

}  // namespace
}  // namespace muster
