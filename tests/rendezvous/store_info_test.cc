// The address of the workers' store: written by rank 0, read by all.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "muster/network.h"
#include "muster/rendezvous_handler.h"
#include "rendezvous/recording_store.h"
#include "support/errors.h"

namespace muster::test {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(StoreInfoTest, Rank0PublishesTheAddressBeforeThePort) {
  RecordingStore store;
  const RendezvousStoreInfo info = RendezvousStoreInfo::Build(0, store, "node-1", 4711);
  EXPECT_EQ(info, (RendezvousStoreInfo{"node-1", 4711}));
  EXPECT_THAT(store.Taken(), ElementsAre("set MASTER_ADDR", "set MASTER_PORT", "get MASTER_ADDR",
                                         "get MASTER_PORT"));
  EXPECT_EQ(store.Get("MASTER_ADDR"), "node-1");
  EXPECT_EQ(store.Get("MASTER_PORT"), "4711");
}

TEST(StoreInfoTest, TheOthersOnlyRead) {
  RecordingStore store;
  store.Set("MASTER_ADDR", "m\xc3\xbcnchen");
  store.Set("MASTER_PORT", "65535");
  store.Taken();
  EXPECT_EQ(RendezvousStoreInfo::Build(1, store, "ignored", 1),
            (RendezvousStoreInfo{"m\xc3\xbcnchen", 65535}));
  EXPECT_THAT(store.Taken(), ElementsAre("get MASTER_ADDR", "get MASTER_PORT"));
}

TEST(StoreInfoTest, WithoutAddressAndPortThisMachineAndAFreePort) {
  const auto store = HashStore::Create();
  const RendezvousStoreInfo info = RendezvousStoreInfo::Build(0, *store, "");
  EXPECT_EQ(info.master_addr, FullyQualifiedName());
  EXPECT_GT(info.master_port, 0);
  EXPECT_EQ(RendezvousStoreInfo::Build(5, *store, ""), info);
}

TEST(StoreInfoTest, ReadersWaitAsLongAsTheStoreAllows) {
  const auto store = HashStore::Create();
  store->SetTimeout(milliseconds(20));
  EXPECT_THROW(RendezvousStoreInfo::Build(1, *store, ""), StoreTimeoutError);
}

TEST(StoreInfoTest, WhatIsNoAddressAndPortIsReported) {
  const auto store = HashStore::Create();
  store->Set("MASTER_ADDR", "node-1");
  for (const char* text : {"", "abc", "65536", "-1", " 80", "123456"}) {
    store->Set("MASTER_PORT", text);
    EXPECT_THAT(ErrorOf<RendezvousStateError>([&] { RendezvousStoreInfo::Build(1, *store, ""); }),
                AllOf(HasSubstr("MASTER_PORT"), HasSubstr("'" + std::string(text) + "'")));
  }
  store->Set("MASTER_ADDR", "\xff\xfe");
  EXPECT_THAT(ErrorOf<RendezvousStateError>([&] { RendezvousStoreInfo::Build(1, *store, ""); }),
              AllOf(HasSubstr("MASTER_ADDR"), HasSubstr("'\\xff\\xfe'")));
}

}  // namespace muster::test
