// Latencies in logarithmic buckets: a fixed 35 KiB, whatever the number of samples, and every
// percentile within 0.4 % of the truth. One thread; merge the histograms of several threads when
// they are done.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/time.h"

namespace muster::load {

class Histogram {
 public:
  Histogram() : buckets_(kBuckets) {}

  void Add(Duration latency, uint64_t times = 1) {
    const int64_t count = std::clamp<int64_t>(latency.count(), 0, kLargest);
    buckets_[IndexOf(static_cast<uint64_t>(count))] += times;
    count_ += times;
    max_ = std::max(max_, latency);
  }

  void Merge(const Histogram& other) {
    for (size_t i = 0; i < kBuckets; ++i) buckets_[i] += other.buckets_[i];
    count_ += other.count_;
    max_ = std::max(max_, other.max_);
  }

  uint64_t count() const { return count_; }
  Duration max() const { return max_; }

  /// The latency that `fraction` of the samples do not exceed; 0 if there are no samples.
  Duration Percentile(double fraction) const {
    const auto wanted = static_cast<uint64_t>(std::ceil(fraction * static_cast<double>(count_)));
    uint64_t seen = 0;
    for (size_t i = 0; i < kBuckets; ++i) {
      seen += buckets_[i];
      if (buckets_[i] > 0 && seen >= wanted) return std::min(MiddleOf(i), max_);
    }
    return max_;
  }

 private:
  // 128 buckets for each power of two. Below 128 ns each nanosecond has its own, and above 18
  // minutes there is one.
  static constexpr int kSubBits = 7;
  static constexpr uint64_t kSub = 1u << kSubBits;
  static constexpr int kTopBits = 40;
  static constexpr int64_t kLargest = (int64_t{1} << kTopBits) - 1;
  static constexpr size_t kBuckets = (kTopBits - kSubBits + 1) * kSub;

  static size_t IndexOf(uint64_t nanoseconds) {
    if (nanoseconds < kSub) return nanoseconds;
    const int shift = static_cast<int>(std::bit_width(nanoseconds)) - kSubBits - 1;
    return static_cast<size_t>(shift) * kSub + (nanoseconds >> shift);
  }

  static Duration MiddleOf(size_t index) {
    if (index < kSub) return Duration(static_cast<int64_t>(index));
    const size_t shift = index / kSub - 1;
    const uint64_t low = (kSub + index % kSub) << shift;
    return Duration(static_cast<int64_t>(low + ((uint64_t{1} << shift) >> 1)));
  }

  std::vector<uint64_t> buckets_;
  uint64_t count_ = 0;
  Duration max_{};
};

}  // namespace muster::load
