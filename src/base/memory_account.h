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

  void Add(size_t bytes) {
    used_.fetch_add(bytes, std::memory_order_relaxed);
    added_here_ += static_cast<int64_t>(bytes);
  }
  void Subtract(size_t bytes) {
    used_.fetch_sub(bytes, std::memory_order_relaxed);
    added_here_ -= static_cast<int64_t>(bytes);
  }
  void Change(size_t before, size_t after) {
    if (before != after) Add(after - before);
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

  /// The last eighth is for small requests of clients that have not added much: a client that fills
  /// the rest, with values of whatever size, leaves room for the others.
  bool HasRoomFor(uint64_t bytes) const {
    const uint64_t all = limit();
    const uint64_t most = bytes > kSmall || for_heavy_client_ ? all - all / 8 : all;
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

  /// Whether there is little left, even for what clients hold between two turns.
  bool IsNearlyUsedUp() const {
    const uint64_t all = limit();
    return used() > all - all / 16;
  }
  /// Whether large replies and requests must make haste.
  bool IsScarce() const { return used() > limit() / 2; }

  /// While it lives, this thread works for one client: counts in `added` what that adds to the
  /// accounts, net. A client that has added more than a 64th of the limit gets nothing of the last
  /// eighth.
  class Client {
   public:
    Client(const MemoryAccount& account, int64_t& added) : added_(added), before_(added_here_) {
      for_heavy_client_ = added > 0 && static_cast<uint64_t>(added) > account.limit() / 64;
    }
    ~Client() {
      added_ += added_here_ - before_;
      for_heavy_client_ = false;
    }
    Client(const Client&) = delete;
    Client& operator=(const Client&) = delete;

   private:
    int64_t& added_;
    const int64_t before_;
  };

 private:
  static constexpr uint64_t kSmall = 64 * 1024;
  // Of the calling thread: other threads change the account at the same time.
  static inline constinit thread_local int64_t added_here_ = 0;
  static inline constinit thread_local bool for_heavy_client_ = false;

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
