// The sum of what a server has allocated for its clients, and the bound on it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

namespace muster {

/// Any thread. Code that allocates for a client calls HasRoomFor() first, and Add() afterwards.
class MemoryAccount {
 public:
  explicit MemoryAccount(uint64_t limit = UINT64_MAX) : first_limit_(limit), limit_(limit) {}

  void Add(size_t bytes) { used_.fetch_add(bytes, std::memory_order_relaxed); }
  void Subtract(size_t bytes) { used_.fetch_sub(bytes, std::memory_order_relaxed); }
  void Change(size_t before, size_t after) {
    if (before != after) used_.fetch_add(after - before, std::memory_order_relaxed);
  }

  uint64_t used() const { return used_.load(std::memory_order_relaxed); }
  uint64_t limit() const { return limit_.load(std::memory_order_relaxed); }

  /// Until RestoreLimit(): the process cannot allocate more.
  void LowerLimit(uint64_t limit) {
    uint64_t before = limit_.load();
    while (limit < before && !limit_.compare_exchange_weak(before, limit)) {
    }
  }

  void RestoreLimit() { limit_.store(first_limit_); }

  /// The last eighth is for small requests: a client that fills the rest with large values,
  /// requests or replies leaves room for the others.
  bool HasRoomFor(uint64_t bytes) const {
    const uint64_t all = limit();
    const uint64_t most = bytes > kSmall ? all - all / 8 : all;
    const uint64_t now = used();
    return now <= most && bytes <= most - now;
  }
  /// The largest for which there is room.
  uint64_t Room() const {
    const uint64_t all = limit();
    const uint64_t most = all - all / 8;
    const uint64_t now = used();
    return now < most ? most - now : 0;
  }

 private:
  static constexpr uint64_t kSmall = 64 * 1024;

  const uint64_t first_limit_;
  std::atomic<uint64_t> limit_;
  std::atomic<uint64_t> used_ = 0;
};

/// One owner's part of an account, subtracted by its destructor.
class Charge {
 public:
  explicit Charge(MemoryAccount& account, size_t bytes = 0) : account_(&account), bytes_(bytes) {
    account_->Add(bytes_);
  }
  ~Charge() { account_->Subtract(bytes_); }
  Charge(const Charge&) = delete;
  Charge& operator=(const Charge&) = delete;

  void Set(size_t bytes) { account_->Change(std::exchange(bytes_, bytes), bytes); }
  size_t bytes() const { return bytes_; }

 private:
  MemoryAccount* account_;
  size_t bytes_;
};

/// What the allocator takes for `bytes`.
constexpr size_t AllocatedBytes(size_t bytes) {
  constexpr size_t kHeader = 8, kUnit = 16, kMin = 32;
  const size_t rounded = (bytes + kHeader + kUnit - 1) / kUnit * kUnit;
  return rounded < kMin ? kMin : rounded;
}

/// What a string has allocated besides itself.
inline size_t HeapBytes(const std::string& text) {
  constexpr size_t kInside = 15;
  return text.capacity() <= kInside ? 0 : AllocatedBytes(text.capacity() + 1);
}

}  // namespace muster
