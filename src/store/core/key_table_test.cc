#include "store/core/key_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/prng.h"

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
  // About one bucket for each key; deletions free them.
  EXPECT_GT(account_.used(), kMany / 2 * sizeof(void*));
  EXPECT_LT(account_.used(), kMany * 4 * sizeof(void*));
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

// All hashes belong to one shard: it grows and shrinks during all other operations.
TEST_F(KeyTableTest, DoesAsUnorderedMapDoesWhileItGrowsAndShrinks) {
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    Prng random(seed);
    std::unordered_map<std::string, uint64_t> model;
    std::vector<std::string> known;
    const auto hash_of = [&](const std::string& key) { return hasher_.Hash(key) >> 10; };
    const auto remove = [&](size_t index) {
      Plain* node = table_.Find({known[index], hash_of(known[index])});
      ASSERT_NE(node, nullptr);
      EXPECT_EQ(table_.Remove(*node)->key, known[index]);
      model.erase(known[index]);
      known[index] = known.back();
      known.pop_back();
    };
    for (int phase = 0; phase < 20; ++phase) {
      const uint64_t insertions = random.Below(101);  // of a hundred
      const uint64_t steps = random.Below(600);
      for (uint64_t i = 0; i < steps; ++i) {
        const std::string key = std::to_string(random.Below(5'000));
        Plain* found = table_.Find({key, hash_of(key)});
        ASSERT_EQ(found != nullptr, model.contains(key)) << seed;
        ASSERT_TRUE(found == nullptr || found->key == key);
        if (random.Below(100) >= insertions) {
          if (!known.empty()) remove(random.Below(known.size()));
        } else if (found == nullptr) {
          table_.Insert(std::make_unique<Plain>(HashedKey{key, hash_of(key)}));
          model.emplace(key, 0);
          known.push_back(key);
        }
        ASSERT_EQ(table_.size(), model.size());
        if (i % 200 != 0) continue;
        const std::multiset<std::string> all = All();
        ASSERT_EQ(all, std::multiset<std::string>(known.begin(), known.end())) << seed;
      }
    }
    while (!known.empty()) remove(known.size() - 1);
    EXPECT_EQ(All().size(), 0u);
    EXPECT_EQ(account_.used(), 0u);
  }
}

TEST_F(KeyTableTest, NoInsertionAndNoRemovalMovesMany) {
  Prng random(7);
  std::vector<Plain*> nodes;
  std::vector<Plain*> nexts;
  // Only a node that has moved, or that precedes one, changes.
  const auto moved = [&] {
    size_t count = 0;
    for (size_t i = 0; i < nodes.size(); ++i) {
      if (nodes[i]->next != nexts[i]) ++count;
      nexts[i] = nodes[i]->next;
    }
    return count;
  };
  size_t most = 0;
  for (int i = 0; i < 3'000; ++i) {
    nodes.push_back(
        &table_.Insert(std::make_unique<Plain>(HashedKey{std::to_string(i), random.Next() >> 8})));
    nexts.push_back(nullptr);
    most = std::max(most, moved());
  }
  while (!nodes.empty()) {
    const std::unique_ptr<Plain> removed = table_.Remove(*nodes.back());
    nodes.pop_back();
    nexts.pop_back();
    most = std::max(most, moved());
  }
  EXPECT_LT(most, 100u);
}

}  // namespace
}  // namespace muster
