// Queues in one thread.
#include "contracts/store_contract.h"

namespace muster::test {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class QueuesContract : public StoreContract {};
INSTANTIATE_TEST_SUITE_P(Stores, QueuesContract, ::testing::ValuesIn(StoresWithQueues()), KindName);

class NoQueuesContract : public StoreContract {};
INSTANTIATE_TEST_SUITE_P(Stores, NoQueuesContract, ::testing::ValuesIn(StoresWithoutQueues()),
                         KindName);

TEST_P(NoQueuesContract, Item067_AStoreWithoutQueuesReportsIt) {
  const auto store = Open();
  EXPECT_THROW(store->QueuePush("q", "x"), NotImplementedError);
  EXPECT_THROW(store->QueuePop("q"), NotImplementedError);
  EXPECT_THROW(store->QueuePop("q", PopMode::kDoNotWait), NotImplementedError);
  EXPECT_THROW(store->QueueLen("q"), NotImplementedError);
}

TEST_P(QueuesContract, Item067_AnUnknownQueueIsEmptyAndAbsent) {
  const auto store = Open();
  const std::string q = FreshQueue();
  EXPECT_EQ(store->QueueLen(q), 0);
  EXPECT_FALSE(store->Check({q}));
}

TEST_P(QueuesContract, Item068_FirstInFirstOut) {
  const auto store = Open();
  const std::string q = FreshQueue();
  store->QueuePush(q, "1");
  store->QueuePush(q, "2");
  EXPECT_EQ(store->QueueLen(q), 2);
  EXPECT_TRUE(store->Check({q}));
  store->Wait({q});
  EXPECT_EQ(store->QueuePop(q), "1");
  EXPECT_EQ(store->QueueLen(q), 1);
  EXPECT_EQ(store->QueuePop(q, PopMode::kDoNotWait), "2");
  EXPECT_EQ(store->QueueLen(q), 0);
  EXPECT_FALSE(store->Check({q}));
}

TEST_P(QueuesContract, Item068_ElementsAreBytes) {
  const auto store = Open();
  const std::string q = FreshQueue();
  const std::vector<std::string> elements = {"", std::string("\0\xff", 2),
                                             std::string(100'000, 'x')};
  for (const std::string& element : elements) store->QueuePush(q, element);
  const auto other = Open();
  Settle(*store);
  for (const std::string& element : elements) EXPECT_EQ(other->QueuePop(q), element);
}

TEST_P(QueuesContract, Item069_PoppingFromAnEmptyQueueIsReported) {
  const auto store = Open();
  const std::string q = FreshQueue();
  const auto pop = [&] { store->QueuePop(q, PopMode::kDoNotWait); };
  EXPECT_THAT(ErrorOf<QueueEmptyError>(pop), HasSubstr("empty"));
  store->QueuePush(q, "x");
  pop();
  EXPECT_THAT(ErrorOf<QueueEmptyError>(pop), HasSubstr("queue is empty"));
  store->QueuePush(q, "y");
  EXPECT_EQ(store->QueuePop(q), "y");
}

TEST_P(QueuesContract, Item069_TheErrorIsAStoreErrorButNoTimeout) {
  const auto store = Open();
  const std::string q = FreshQueue();
  EXPECT_THROW(store->QueuePop(q, PopMode::kDoNotWait), StoreError);
  try {
    store->QueuePop(q, PopMode::kDoNotWait);
  } catch (const std::exception& error) {
    EXPECT_EQ(dynamic_cast<const StoreTimeoutError*>(&error), nullptr);
  }
}

TEST_P(QueuesContract, Item072_ABlockingPopTimesOut) {
  const auto store = Open();
  const std::string q = FreshQueue();
  store->SetTimeout(milliseconds(100));
  const Stopwatch watch;
  const std::string text = ErrorOf<StoreTimeoutError>([&] { store->QueuePop(q); });
  EXPECT_GE(watch.Elapsed(), milliseconds(100));
  EXPECT_THAT(text, ::testing::ContainsRegex("[tT]imeout"));
  store->QueuePush(q, "late");
  EXPECT_EQ(store->QueuePop(q), "late");
}

TEST_P(QueuesContract, Item076_QueuesAreNotValues) {
  const auto store = Open();
  const std::string q = FreshQueue();
  store->QueuePush(q, "element");
  EXPECT_EQ(store->GetNumKeys(), facts().internal_keys);
  EXPECT_THAT(store->ListKeys(), IsEmpty());
  EXPECT_FALSE(store->DeleteKey(q));
  EXPECT_EQ(store->QueueLen(q), 1);
  EXPECT_EQ(store->Add(q, 5), 5);  // a counter of the same name, separate from the queue
  EXPECT_EQ(store->Get(q), "5");
  EXPECT_EQ(store->QueuePop(q), "element");
  EXPECT_EQ(store->Get(q), "5");
  EXPECT_EQ(store->QueueLen(q), 0);
  EXPECT_TRUE(store->Check({q}));
}

TEST_P(QueuesContract, Item076_GetNeverSeesAnElement) {
  const auto store = Open();
  const std::string q = FreshQueue();
  store->QueuePush(q, "element");
  store->SetTimeout(milliseconds(100));
  if (facts().queue_satisfies_get) {
    EXPECT_EQ(store->Get(q), "");
  } else {
    EXPECT_THROW(store->Get(q), StoreTimeoutError);
  }
  EXPECT_EQ(store->QueueLen(q), 1);
}

TEST_P(QueuesContract, Item068_CheckAndWaitLookAtValuesAndQueuesTogether) {
  const auto store = Open();
  const std::string q = FreshQueue();
  store->Set("value", "v");
  EXPECT_FALSE(store->Check({"value", q}));
  store->QueuePush(q, "x");
  EXPECT_TRUE(store->Check({"value", q}));
  store->Wait({q, "value"});
}

TEST_P(QueuesContract, Item074_AClientThatLookedAtAQueueIsNotLetGoByItElsewhere) {
  const auto store = Open();
  const auto pusher = Open();
  const std::string q = FreshQueue();
  store->QueuePush(q, "1");
  store->Wait({q});
  pusher->QueuePush(q, "2");
  Settle(*pusher);
  EXPECT_THROW(store->Wait({"unrelated"}, milliseconds(100)), StoreTimeoutError);
  EXPECT_EQ(store->QueueLen(q), 2);
}

TEST_P(QueuesContract, Item068_AThousandElementsKeepTheirOrder) {
  const auto store = Open();
  const std::string q = FreshQueue();
  for (int i = 0; i < 1000; ++i) store->QueuePush(q, std::to_string(i));
  EXPECT_EQ(store->QueueLen(q), 1000);
  for (int i = 0; i < 1000; ++i) ASSERT_EQ(store->QueuePop(q), std::to_string(i));
}

}  // namespace muster::test
