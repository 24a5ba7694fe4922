#include "core/rendezvous/closed_runs.h"

#include "base/limits.h"

namespace muster {

void ClosedRuns::Add(std::string_view run_id, Instant until, Instant now) {
  Expire(now);
  const uint64_t fingerprint = SipHash13(key_, run_id);
  until_[fingerprint] = until;
  oldest_first_.push_back({fingerprint, until});
}

bool ClosedRuns::Contains(std::string_view run_id, Instant now) {
  Expire(now);
  return until_.contains(SipHash13(key_, run_id));
}

// Runs end in the order in which they are to be forgotten.
void ClosedRuns::Expire(Instant now) {
  while (!oldest_first_.empty()) {
    const Entry& oldest = oldest_first_.front();
    if (oldest.until > now && oldest_first_.size() <= kClosedRunsMax) return;
    const auto found = until_.find(oldest.fingerprint);
    if (found != until_.end() && found->second == oldest.until) until_.erase(found);
    oldest_first_.pop_front();
  }
}

}  // namespace muster
