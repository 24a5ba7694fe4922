// Hash tables for keys that clients choose.
//
// Keys are hashed with a secret (base/siphash.h), so that no client can choose keys that collide. A
// table is divided into shards that grow and shrink one by one: no insertion pays for all of it. A
// node is made by its owner, if need be before the table is locked, and lies where it is until it
// is removed.
#pragma once

#include <array>
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
/// buckets; the owner of the nodes counts those.
template <typename Node>
class KeyTable {
 public:
  static constexpr size_t kShards = 256;

  explicit KeyTable(MemoryAccount& account) : charge_(account) {}
  ~KeyTable() { Clear(); }
  KeyTable(const KeyTable&) = delete;
  KeyTable& operator=(const KeyTable&) = delete;

  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }

  /// Null if it is not there.
  Node* Find(const HashedKey& key) const {
    const Shard& shard = shards_[ShardOf(key.hash)];
    if (shard.size == 0) return nullptr;
    for (Node* node = shard.buckets[key.hash & shard.mask]; node != nullptr; node = node->next) {
      if (node->hash == key.hash && node->key == key.text) return node;
    }
    return nullptr;
  }

  /// The key must not be there.
  Node& Insert(std::unique_ptr<Node> made) {
    Shard& shard = shards_[ShardOf(made->hash)];
    if (shard.buckets == nullptr || shard.size > shard.mask) Resize(shard, BucketsFor(shard) * 2);
    Node* node = made.release();
    Node*& bucket = shard.buckets[node->hash & shard.mask];
    node->next = bucket;
    bucket = node;
    ++shard.size;
    ++size_;
    return *node;
  }

  /// `node` must be in this table.
  std::unique_ptr<Node> Remove(Node& node) {
    Shard& shard = shards_[ShardOf(node.hash)];
    Node** at = &shard.buckets[node.hash & shard.mask];
    while (*at != &node) at = &(*at)->next;
    *at = node.next;
    --shard.size;
    --size_;
    if (shard.mask >= kBucketsMin && shard.size < (shard.mask + 1) / 8) {
      Resize(shard, (shard.mask + 1) / 2);
    }
    return std::unique_ptr<Node>(&node);
  }

  /// Every node of one shard, in no order that means anything. `visit` must not change the table.
  template <typename Visit>
  void VisitShard(size_t index, Visit visit) const {
    const Shard& shard = shards_[index];
    if (shard.size == 0) return;
    for (size_t bucket = 0; bucket <= shard.mask; ++bucket) {
      for (Node* node = shard.buckets[bucket]; node != nullptr; node = node->next) visit(*node);
    }
  }

  /// What the table itself has allocated, without its nodes and the least that shards have, which
  /// is 20 KiB for all.
  size_t bucket_bytes() const { return charge_.bytes(); }

 private:
  static constexpr size_t kBucketsMin = 8;
  struct Shard {
    std::unique_ptr<Node*[]> buckets;
    uint32_t mask = 0;
    uint32_t size = 0;
  };

  // The high bits; a bucket goes by the low ones.
  static size_t ShardOf(uint64_t hash) { return hash >> 56; }
  static size_t BucketsFor(const Shard& shard) {
    return shard.buckets == nullptr ? kBucketsMin / 2 : size_t{shard.mask} + 1;
  }

  static size_t CostOf(size_t buckets) {
    return buckets <= kBucketsMin ? 0 : AllocatedBytes(buckets * sizeof(Node*));
  }

  void Resize(Shard& shard, size_t count) {
    auto buckets = std::make_unique<Node*[]>(count);
    const auto mask = static_cast<uint32_t>(count - 1);
    if (shard.buckets != nullptr) {
      for (size_t i = 0; i <= shard.mask; ++i) {
        while (Node* node = shard.buckets[i]) {
          shard.buckets[i] = node->next;
          node->next = std::exchange(buckets[node->hash & mask], node);
        }
      }
    }
    charge_.Set(charge_.bytes() + CostOf(count) - CostOf(size_t{shard.mask} + 1));
    shard.buckets = std::move(buckets);
    shard.mask = mask;
  }

  void Clear() {
    for (Shard& shard : shards_) {
      if (shard.size == 0) continue;
      for (size_t i = 0; i <= shard.mask; ++i) {
        while (Node* node = shard.buckets[i]) {
          const std::unique_ptr<Node> gone(std::exchange(shard.buckets[i], node->next));
        }
      }
    }
  }

  std::array<Shard, kShards> shards_{};
  size_t size_ = 0;
  Charge charge_;
};

}  // namespace muster
