#include "rendezvous/core/closed_runs.h"

#include <algorithm>
#include <chrono>

#include "base/assert.h"

namespace muster {

bool ClosedRuns::HasRoom(Instant now) {
  Expire(now);
  return fingerprints_.size() < max_;
}

void ClosedRuns::Add(std::string_view run, Instant until, Instant now) {
  MUSTER_ASSERT(HasRoom(now));
  const Instant second{std::chrono::ceil<std::chrono::seconds>(until.since_start)};
  if (seconds_.empty() || seconds_.back().until != second) seconds_.push_back({second, 0});
  ++seconds_.back().count;
  fingerprints_.push_back(SipHash13(key_, run));
}

bool ClosedRuns::Contains(std::string_view run, Instant now) {
  Expire(now);
  if (fingerprints_.empty()) return false;
  return std::ranges::find(fingerprints_, SipHash13(key_, run)) != fingerprints_.end();
}

void ClosedRuns::Expire(Instant now) {
  while (!seconds_.empty() && seconds_.front().until <= now) {
    const auto oldest = fingerprints_.begin();
    fingerprints_.erase(oldest, oldest + static_cast<std::ptrdiff_t>(seconds_.front().count));
    seconds_.pop_front();
  }
}

}  // namespace muster
