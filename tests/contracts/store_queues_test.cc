// Queues as one thread sees them.
#include "contracts/store_contract.h"

namespace muster::test {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// The same contract, for the stores that have queues.
class StoreQueues : public StoreContract {};

TEST_P(StoreContract, Item067_AStoreWithoutQueuesSaysSo) {
  if (facts().has_queues) GTEST_SKIP() << "this one has them";
  const auto store = Open();
  EXPECT_THROW(store->QueuePush("q", "x"), NotImplementedError);
  EXPECT_THROW(store->QueuePop("q"), NotImplementedError);
  EXPECT_THROW(store->QueuePop("q", PopMode::kDoNotWait), NotImplementedError);
  EXPECT_THROW(store->QueueLen("q"), NotImplementedError);
}
