// Callers that end their own wait, on every store: the call ends, and the store works afterwards.
#include "contracts/store_contract.h"
#include "muster/interruption.h"
#include "support/interruption_request.h"

namespace muster::test {

using ::testing::ElementsAre;
using ::testing::MatchesRegex;
using Void = Background<void>;

class InterruptionContract : public StoreContract {
 protected:
  /// Lets `call` wait until it has checked for a request, then requests the end. Returns the
  /// error's message.
  std::string Interrupt(const std::function<void()>& call) {
    InterruptionRequest request;
    Void waiter(request.Within(call));
    EXPECT_TRUE(EventuallyTrue([&] { return request.checks() > 1 || waiter.IsDone(); }));
    request.Make();
    return ErrorOf<InterruptedError>([&] { waiter.Result(); });
  }
};
INSTANTIATE_TEST_SUITE_P(Stores, InterruptionContract, ::testing::ValuesIn(AllStores()), KindName);

class InterruptedPopContract : public InterruptionContract {};
INSTANTIATE_TEST_SUITE_P(Stores, InterruptedPopContract, ::testing::ValuesIn(StoresWithQueues()),
                         KindName);

TEST_P(InterruptionContract, AGetEndsAndTheNextCallHasItsOwnAnswer) {
  const auto store = Open();
  const auto other = Open();
  other->Set("present", "its value");
  Settle(*other);
  EXPECT_THAT(Interrupt([&] { store->Get("k"); }),
              MatchesRegex("interrupted after [0-9]+\\.[0-9] s while .*k.*"));
  other->Set("k", "late");
  Settle(*other);
  EXPECT_EQ(store->Get("present"), "its value");
  EXPECT_EQ(store->Get("k"), "late");
  EXPECT_EQ(store->Add("n", 7), 7);
}

TEST_P(InterruptionContract, AWaitEndsAgainAndAgain) {
  const auto store = Open();
  for (int i = 0; i < 3; ++i) {
    Interrupt([&] { store->Wait({"a", "b"}); });
    EXPECT_FALSE(store->Check({"a"}));
  }
  store->Set("a", "1");
  store->Set("b", "2");
  store->Wait({"a", "b"});
}

TEST_P(InterruptionContract, AMultiGetEnds) {
  const auto store = Open();
  store->Set("a", "1");
  Interrupt([&] { store->MultiGet({"a", "b"}); });
  store->Set("b", "2");
  EXPECT_THAT(store->MultiGet({"a", "b"}), ElementsAre("1", "2"));
}

TEST_P(InterruptedPopContract, APopEndsAndTakesNothingLater) {
  const auto store = Open();
  const std::string queue = FreshQueue();
  Interrupt([&] { store->QueuePop(queue); });
  const auto other = Open();
  other->QueuePush(queue, "element");
  EXPECT_EQ(other->QueueLen(queue), 1);
  EXPECT_EQ(store->QueuePop(queue), "element");
}

TEST_P(InterruptionContract, ABarrierEnds) {
  const auto store = Open();
  Interrupt([&] { store->Barrier("first", 2, kPatience); });
  const auto other = Open();
  Void waiter([&] { store->Barrier("second", 2, kPatience); });
  other->Barrier("second", 2, kPatience);
  waiter.Result();
}

TEST_P(InterruptionContract, ARequestCausesOneError) {
  const auto store = Open();
  InterruptionRequest request;
  Background<std::string> waiter(request.Within([&] {
    EXPECT_THROW(store->Get("k"), InterruptedError);
    request.Withdraw();
    return store->Get("k");
  }));
  request.Make();
  const int asked = request.checks();
  EXPECT_TRUE(EventuallyTrue([&] { return request.checks() > asked + 2 || waiter.IsDone(); }));
  Open()->Set("k", "v");
  EXPECT_EQ(waiter.Result(), "v");
}

TEST_P(InterruptionContract, OtherThreadsAreNotQueried) {
  const auto store = Open();
  InterruptionRequest request;
  request.Make();
  const ScopedInterruption scope(request.Check());
  Void waiter([&] { store->Wait({"k"}, milliseconds(200)); });
  EXPECT_THROW(waiter.Result(), StoreTimeoutError);
  EXPECT_EQ(request.checks(), 0);
}

TEST_P(InterruptionContract, NoThreadIsQueriedAfterTheScope) {
  const auto store = Open();
  InterruptionRequest request;
  { const ScopedInterruption scope(request.Check()); }
  request.Make();
  EXPECT_THROW(store->Wait({"k"}, milliseconds(200)), StoreTimeoutError);
  EXPECT_EQ(request.checks(), 0);
}

TEST_P(InterruptionContract, BothOfTwoNestedScopesCount) {
  const auto store = Open();
  for (const bool request_outer : {true, false}) {
    InterruptionRequest outer;
    InterruptionRequest inner;
    Void waiter(outer.Within(inner.Within([&] { store->Get("k"); })));
    EXPECT_TRUE(EventuallyTrue([&] { return outer.checks() > 0 && inner.checks() > 0; }));
    (request_outer ? outer : inner).Make();
    EXPECT_THROW(waiter.Result(), InterruptedError);
  }
}

TEST_P(InterruptionContract, AThreadThatWaitsForAnothersCallIsQueriedToo) {
  const auto store = Open();
  Void first([&] { store->Wait({"k"}); });
  ASSERT_TRUE(first.UntilBlocked());
  Interrupt([&] { store->Get("k"); });
  EXPECT_FALSE(first.IsDone());
  Open()->Set("k", "v");
  first.Result();
}

TEST_P(InterruptionContract, ATimeoutStaysOne) {
  const auto store = Open();
  InterruptionRequest request;
  const ScopedInterruption scope(request.Check());
  EXPECT_THROW(store->Wait({"k"}, milliseconds(300)), StoreTimeoutError);
  EXPECT_GT(request.checks(), 0);
  EXPECT_FALSE(scope.is_pending());
}

TEST_P(InterruptionContract, AStoreIsDestroyedInOrderDespiteARequest) {
  InterruptionRequest request;
  auto store = Open();
  const ScopedInterruption scope(request.Check());
  request.Make();
  EXPECT_THROW(store->Get("k"), InterruptedError);
  store.reset();
}

}  // namespace muster::test
