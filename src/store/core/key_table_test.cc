#include "store/core/key_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <set>
#include <string>

namespace muster {
namespace {

struct Plain : KeyNode<Plain> {
  using KeyNode::KeyNode;
};

class KeyTableTest : public ::testing::Test {
 protected:
  Plain& Insert(const std::string& key) {
    return table_.Insert(std::make_unique<Plain>(hasher_(key)));
  }
  Plain* Find(const std::string& key) const { return table_.Find(hasher_(key)); }
  std::multiset<std::string> All() const {
    std::multiset<std::string> keys;
    for (size_t shard = 0; shard < table_.kShards; ++shard)
      table_.VisitShard(shard, [&](const Plain& node) { keys.insert(node.key); });
    return keys;
  }

  const KeyHasher hasher_{{.first = 1, .second = 2}};
  MemoryAccount account_;
  KeyTable<Plain> table_{account_};
};

TEST_F(KeyTableTest, FindsWhatWasInsertedAndNothingElse) {
  EXPECT_EQ(Find(""), nullptr);
  Plain& empty = Insert("");
  Plain& nul = Insert(std::string("a\0b", 3));
  EXPECT_EQ(Find(""), &empty);
  EXPECT_EQ(Find(std::string("a\0b", 3)), &nul);
  EXPECT_EQ(Find("a"), nullptr);
  EXPECT_EQ(table_.size(), 2u);
  table_.Remove(empty);
  EXPECT_EQ(Find(""), nullptr);
  EXPECT_EQ(Find(std::string("a\0b", 3)), &nul);
}

TEST_F(KeyTableTest, KeysWithTheSameHashAreToldApart) {
  for (const std::string_view key : {"a", "b", "c"}) {
    table_.Insert(std::make_unique<Plain>(HashedKey{key, 7}));
  }
  EXPECT_EQ(table_.Find({"b", 7})->key, "b");
  EXPECT_EQ(table_.Find({"d", 7}), nullptr);
  table_.Remove(*table_.Find({"b", 7}));
  EXPECT_EQ(table_.Find({"b", 7}), nullptr);
  EXPECT_EQ(table_.Find({"a", 7})->key, "a");
  EXPECT_EQ(table_.Find({"c", 7})->key, "c");
}

TEST_F(KeyTableTest, NodesStayWhereTheyAreWhileItGrowsAndShrinks) {
  constexpr int kMany = 50'000;
  Plain& first = Insert("first");
  for (int i = 0; i < kMany; ++i) Insert(std::to_string(i));
  EXPECT_EQ(Find("first"), &first);
  EXPECT_EQ(All().size(), kMany + 1u);
  // About a bucket for each key; a deletion gives them back.
  EXPECT_GT(table_.bucket_bytes(), kMany / 2 * sizeof(void*));
  EXPECT_LT(table_.bucket_bytes(), kMany * 4 * sizeof(void*));
  EXPECT_EQ(account_.used(), table_.bucket_bytes());
  for (int i = 0; i < kMany; ++i) table_.Remove(*Find(std::to_string(i)));
  EXPECT_EQ(All(), std::multiset<std::string>{"first"});
  EXPECT_EQ(Find("first"), &first);
  EXPECT_EQ(account_.used(), 0u);
}

TEST_F(KeyTableTest, NoShardHasMoreThanItsShare) {
  constexpr size_t kMany = 100'000;
  for (size_t i = 0; i < kMany; ++i) Insert(std::to_string(i));
  for (size_t shard = 0; shard < table_.kShards; ++shard) {
    size_t nodes = 0;
    table_.VisitShard(shard, [&](const Plain&) { ++nodes; });
    EXPECT_LT(nodes, 2 * kMany / table_.kShards);
  }
}

}  // namespace
}  // namespace muster
