#include "etcd/layout.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace muster {

TEST(EtcdLayoutTest, APersonFindsWhatIsThere) {
  const EtcdLayout layout("/muster/store");
  EXPECT_EQ(layout.ValueOf("torch.rendezvous/run-7"), "/muster/store/keys/torch.rendezvous/run-7");
  EXPECT_EQ(layout.ValueOf("50 %#"), "/muster/store/keys/50%20%25%23");
  EXPECT_EQ(layout.ValueOf(""), "/muster/store/keys/");
  EXPECT_EQ(layout.ElementOf("jobs", 42), "/muster/store/queues/jobs#00000000000000000042");
  EXPECT_EQ(layout.TailOf("jobs"), "/muster/store/tails/jobs");
}

TEST(EtcdLayoutTest, AQueueHasNoElementsOfAnother) {
  const EtcdLayout layout("/p");
  const EtcdRange queue = layout.QueueOf("a");
  const auto holds = [&](const std::string& key) { return queue.begin <= key && key < queue.end; };
  EXPECT_TRUE(holds(layout.ElementOf("a", 0)));
  EXPECT_TRUE(holds(layout.ElementOf("a", UINT64_MAX)));
  for (const char* other : {"", "a/", "a/b", "a#", "a#00000000000000000001", "ab", "a%", "`"})
    EXPECT_FALSE(holds(layout.ElementOf(other, 1))) << other;
}

TEST(EtcdLayoutTest, NumbersOfElementsAreOrderedLikeTheirKeys) {
  const EtcdLayout layout("/p");
  EXPECT_LT(layout.ElementOf("q", 9), layout.ElementOf("q", 10));
  EXPECT_LT(layout.ElementOf("q", 99), layout.ElementOf("q", UINT64_MAX));
}

TEST(EtcdLayoutTest, WhatNobodyWritesIsNoKey) {
  const EtcdLayout layout("/p");
  for (const char* key :
       {"", "/p", "/p/keys", "/q/keys/a", "/p/keys/%", "/p/keys/%4", "/p/keys/%zz", "/p/keys/%61",
        "/p/keys/%c3", "/p/keys/a b", "/p/queues/a#1"})
    EXPECT_FALSE(layout.KeyOfValue(key)) << key;
  for (const char* key : {"", "/p/queues/", "/p/queues/a", "/p/keys/a#1", "#"})
    EXPECT_FALSE(layout.KeyOfElement(key)) << key;
  for (const char* key : {"/p/queues/a#", "/p/queues/a#1", "/p/queues/a#x0000000000000000001",
                          "/p/queues/a#99999999999999999999"})
    EXPECT_FALSE(layout.NumberOf(key)) << key;
}

RC_GTEST_PROP(EtcdLayoutProperty, EveryKeyComesBack, (const std::string& key, uint64_t number)) {
  const EtcdLayout layout("/p");
  RC_ASSERT(layout.KeyOfValue(layout.ValueOf(key)) == key);
  RC_ASSERT(layout.KeyOfElement(layout.ElementOf(key, number)) == key);
  RC_ASSERT(layout.NumberOf(layout.ElementOf(key, number)) == number);
}

}  // namespace muster
