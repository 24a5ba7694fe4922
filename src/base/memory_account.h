// The sum of what a server has allocated for its clients, and the bound on it.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
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
    if (bytes > kReusing) return HasRoomForLarge(bytes);
    return Fits(bytes, limit(), used());
  }
  /// The largest for which there is room.
  uint64_t Room() const {
    const uint64_t all = limit();
    const uint64_t most = all - all / 8;
    const uint64_t now = used() + slack();
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
  /// accounts, net, and in `by_all` (null: nowhere) what all clients of its address add. A client
  /// that has added more than a 64th of the limit gets nothing of the last eighth. An address that
  /// has added more than half of it gets nothing of the last 32nd (at most 4 MiB): its clients may
  /// come again and again, as others that have added nothing.
  class Client {
   public:
    Client(const MemoryAccount& account, int64_t& added, std::atomic<int64_t>* by_all = nullptr)
        : added_(added), by_all_(by_all), before_(added_here_) {
      const auto all = static_cast<int64_t>(std::min<uint64_t>(account.limit(), INT64_MAX));
      for_heavy_client_ = added > all / 64;
      for_heavy_address_ = by_all_ != nullptr && by_all_->load() > all / 2;
    }
    ~Client() {
      const int64_t more = added_here_ - before_;
      added_ += more;
      if (by_all_ != nullptr && more != 0) by_all_->fetch_add(more);
      for_heavy_client_ = for_heavy_address_ = false;
    }
    Client(const Client&) = delete;
    Client& operator=(const Client&) = delete;

   private:
    int64_t& added_;
    std::atomic<int64_t>* const by_all_;
    const int64_t before_;
  };

  /// Freed memory stays with the allocator, in pieces: small requests find room there, larger ones
  /// need more of the system's. From now on, what the process has besides what is used (its slack)
  /// counts against requests of more than 512 bytes. `resident` returns what the process has, from any
  /// thread; `reclaim` has the allocator return what it can. Before the account is used.
  void CountResident(std::function<uint64_t()> resident, std::function<void()> reclaim) {
    resident_ = std::move(resident);
    reclaim_ = std::move(reclaim);
    resident_first_ = resident_();
  }

  /// Without an eighth of the limit, or 16 MiB, which is what a server needs for itself.
  uint64_t slack() const { return slack_.load(std::memory_order_relaxed); }

  /// Where the slack is large: has the allocator return what it can. This takes milliseconds, so it
  /// happens again only if the slack has grown since. Not under a lock; every second or so, and
  /// before a refusal. True: it was done.
  bool Reclaim() {
    if (!resident_) return false;
    Measure();
    const uint64_t before = slack(), useless = slack_left_.load();
    if (before < useless) slack_left_ = before;
    if (before <= limit() / 8 || before < useless + limit() / 16) return false;
    if (is_reclaiming_.exchange(true)) return false;
    reclaim_();
    Measure();
    slack_left_ = slack();
    is_reclaiming_ = false;
    return true;
  }

 private:
  static constexpr uint64_t kSmall = 64 * 1024;
  static constexpr uint64_t kReusing = 512;
  static constexpr uint64_t kForOthersMost = 4 << 20;
  static constexpr uint64_t kMeasuredEach = 4 << 20;  // bytes of requests
  static constexpr uint64_t kOwnLeast = 16 << 20;

  static bool Fits(uint64_t bytes, uint64_t all, uint64_t now) {
    const bool is_light = bytes <= kSmall && !for_heavy_client_;
    const uint64_t for_others = std::min(all / 32, kForOthersMost);
    const uint64_t most = !is_light ? all - all / 8 : for_heavy_address_ ? all - for_others : all;
    return now <= most && bytes <= most - now;
  }

  bool HasRoomForLarge(uint64_t bytes) const {
    if (!resident_) return Fits(bytes, limit(), used());
    if (measured_.fetch_add(bytes, std::memory_order_relaxed) + bytes > kMeasuredEach) Measure();
    if (Fits(bytes, limit(), used() + slack())) return true;
    if (slack() == 0) return false;
    Measure();  // what was measured last may be too much
    return Fits(bytes, limit(), used() + slack());
  }

  void Measure() const {
    measured_ = 0;
    const uint64_t all = limit();
    const uint64_t expected =
        resident_first_ + used() + (all / 8 > kOwnLeast ? all / 8 : kOwnLeast);
    const uint64_t resident = resident_();
    slack_.store(resident > expected ? resident - expected : 0, std::memory_order_relaxed);
  }

  // Of the calling thread: other threads change the account at the same time.
  static inline constinit thread_local int64_t added_here_ = 0;
  static inline constinit thread_local bool for_heavy_client_ = false;
  static inline constinit thread_local bool for_heavy_address_ = false;

  const uint64_t first_limit_;
  std::atomic<uint64_t> limit_;
  std::atomic<uint64_t> used_ = 0;
  mutable std::atomic<uint64_t> slack_ = 0;
  mutable std::atomic<uint64_t> measured_ = 0;  // asked for since the last measurement
  std::atomic<uint64_t> slack_left_ = 0;        // after the last reclaiming
  std::atomic<bool> is_reclaiming_ = false;
  std::function<uint64_t()> resident_;  // null: only what is used counts
  std::function<void()> reclaim_;
  uint64_t resident_first_ = 0;
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
  void Add(size_t bytes) { Set(bytes_ + bytes); }
  void Subtract(size_t bytes) { Set(bytes_ - bytes); }
  void Change(size_t before, size_t after) { Set(bytes_ - before + after); }
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
