// Hash tables for keys that clients choose.
//
// Keys are hashed with a secret (base/siphash.h), so that no client can choose keys that collide. A
// table is divided into shards, which grow and shrink one by one and a few buckets at a time: every
// insertion and removal moves some buckets from the shard's former array to its new one. The owner
// creates a node, before the table is locked if necessary; the node then keeps its address until it
// is removed.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "base/memory_account.h"
#include "base/siphash.h"

namespace muster {

/// A key and its hash, which is computed once.
struct HashedKey {
  std::string_view text;
  uint64_t hash;
};

/// The same, but it outlives what it was read from.
struct OwnedKey {
  explicit OwnedKey(const HashedKey& from) : text(from.text), hash(from.hash) {}
  HashedKey hashed() const { return {text, hash}; }

  std::string text;
  uint64_t hash;
};

class KeyHasher {
 public:
  explicit KeyHasher(const SipKey& secret = {}) : secret_(secret) {}

  uint64_t Hash(std::string_view text) const { return SipHash13(secret_, text); }
  HashedKey operator()(std::string_view text) const { return {text, Hash(text)}; }

 private:
  SipKey secret_;
};

/// Base of every node of a table.
template <typename Node>
struct KeyNode {
  explicit KeyNode(const HashedKey& from) : hash(from.hash), key(from.text) {}

  HashedKey hashed() const { return {key, hash}; }

  Node* next = nullptr;  // in its bucket
  const uint64_t hash;
  const std::string key;
};

/// `Node` derives from KeyNode<Node>. Pure; one owner. The account, which outlives it, counts its
/// buckets, without the minimum for all shards, which is 152 KiB; the owner of the nodes counts
/// those.
template <typename Node>
class KeyTable {
 public:
  static constexpr size_t kShards = 1024;

  explicit KeyTable(MemoryAccount& account) : charge_(account) {}
  ~KeyTable() {
    for (size_t i = 0; i < kShards; ++i)
      VisitShard(i, [](Node& node) { const std::unique_ptr<Node> gone(&node); });
  }

  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }

  /// Null if the key is not in the table.
  Node* Find(const HashedKey& key) const {
    Node* node = BucketOf(shards_[ShardOf(key.hash)], key.hash);
    for (; node != nullptr; node = node->next) {
      if (node->hash == key.hash && node->key == key.text) return node;
    }
    return nullptr;
  }

  /// The key must not be in the table.
  Node& Insert(std::unique_ptr<Node> made) {
    Shard& shard = shards_[ShardOf(made->hash)];
    if (shard.size >= shard.mask) Resize(shard, std::max(kBucketsMin, (shard.mask + 1) * 2));
    Node* node = made.release();
    Node*& bucket = BucketOf(shard, node->hash);
    node->next = bucket;
    bucket = node;
    ++shard.size;
    ++size_;
    if (shard.former != nullptr) Move(shard, kMovedByInsert);
    return *node;
  }

  /// `node` must be in this table.
  std::unique_ptr<Node> Remove(Node& node) {
    Shard& shard = shards_[ShardOf(node.hash)];
    Node** at = &BucketOf(shard, node.hash);
    while (*at != &node) at = &(*at)->next;
    std::unique_ptr<Node> removed(&node);
    *at = node.next;
    --shard.size;
    --size_;
    if (shard.former != nullptr) {
      Move(shard, kMovedByRemove);
    } else if (shard.mask >= kBucketsMin && shard.size < (shard.mask + 1) / 8) {
      Resize(shard, (shard.mask + 1) / 2);
      Move(shard, kMovedByRemove);
    }
    return removed;
  }

  /// Visits every node of one shard, in an unspecified order. `visit` must not change the table.
  void VisitShard(size_t index, auto visit) const {
    const Shard& shard = shards_[index];
    if (shard.size == 0) return;
    const auto visit_all = [&](Node* const* buckets, size_t begin, size_t end) {
      for (size_t i = begin; i < end; ++i) {
        for (Node* node = buckets[i]; node != nullptr;) visit(*std::exchange(node, node->next));
      }
    };
    visit_all(shard.buckets.get(), 0, size_t{shard.mask} + 1);
    if (shard.former == nullptr) return;
    const Former& former = *shard.former;
    visit_all(former.buckets.get(), former.moved, size_t{former.mask} + 1);
  }

 private:
  static constexpr uint32_t kBucketsMin = 16;
  // A shard doubles when it has one node per bucket, and halves at one node per eight buckets: with
  // these numbers of buckets moved each time, the former array is empty before the next resize.
  static constexpr size_t kMovedByInsert = 4;
  static constexpr size_t kMovedByRemove = 16;

  // The only bucket of a shard that has never had a node.
  static inline Node* none_ = nullptr;
  struct Free {
    void operator()(Node** buckets) const {
      if (buckets != &none_) std::unique_ptr<Node*[]>(buckets).reset();
    }
  };
  using Buckets = std::unique_ptr<Node*[], Free>;

  // The array that a shard had before, while nodes move from it to the new one.
  struct Former {
    Buckets buckets;
    uint32_t mask;
    uint32_t moved = 0;  // buckets below this are empty
  };
  struct Shard {
    Buckets buckets{&none_};
    uint32_t mask = 0;  // 0: the shard has never had a node
    uint32_t size = 0;
    std::unique_ptr<Former> former;
  };

  // The shard is chosen by the high bits of the hash, the bucket by the low ones.
  static size_t ShardOf(uint64_t hash) { return hash >> (64 - std::countr_zero(kShards)); }
  // The bucket where a node with this hash is, or belongs.
  static Node*& BucketOf(const Shard& shard, uint64_t hash) {
    if (shard.former != nullptr) [[unlikely]] {
      const Former& former = *shard.former;
      const size_t index = hash & former.mask;
      if (index >= former.moved) return former.buckets[index];
    }
    return shard.buckets[hash & shard.mask];
  }

  static size_t CostOf(size_t buckets) {
    return buckets <= kBucketsMin ? 0 : AllocatedBytes(buckets * sizeof(Node*));
  }

  void Resize(Shard& shard, uint32_t count) {
    if (shard.former != nullptr) Move(shard, SIZE_MAX);
    Buckets buckets(std::make_unique<Node*[]>(count).release());
    if (shard.mask > 0) {
      shard.former = std::make_unique<Former>();
      *shard.former = {std::move(shard.buckets), shard.mask};
    }
    charge_.Set(charge_.bytes() + CostOf(count));
    shard.buckets = std::move(buckets);
    shard.mask = count - 1;
  }

  // For a shard with a former array.
  void Move(Shard& shard, size_t buckets_max) {
    Former& former = *shard.former;
    const size_t count = size_t{former.mask} + 1;
    const auto end =
        static_cast<uint32_t>(former.moved + std::min(buckets_max, count - former.moved));
    for (; former.moved < end; ++former.moved) {
      Node*& from = former.buckets[former.moved];
      while (Node* node = from) {
        from = node->next;
        node->next = std::exchange(shard.buckets[node->hash & shard.mask], node);
      }
    }
    if (end < count) return;
    charge_.Set(charge_.bytes() - CostOf(count));
    shard.former.reset();
  }

  std::array<Shard, kShards> shards_{};
  size_t size_ = 0;
  Charge charge_;
};

}  // namespace muster
