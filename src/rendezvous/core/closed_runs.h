// Names of closed runs that a server had to evict: a flood of new runs must not reopen them.
//
// Each name is kept as a keyed 64-bit fingerprint, eight bytes, until the time at which its run
// would have been forgotten anyway. The key is random: no client can choose a name whose
// fingerprint equals another's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string_view>

#include "base/siphash.h"
#include "base/time.h"

namespace muster {

class ClosedRuns {
 public:
  explicit ClosedRuns(SipKey key) : key_(key) {}

  /// `until` never decreases from one call to the next.
  void Add(std::string_view run_id, Instant until, Instant now);
  /// Linear: at most a tenth of a millisecond, once for each run that is new to the server.
  bool Contains(std::string_view run_id, Instant now);
  size_t size() const { return fingerprints_.size(); }

 private:
  void Expire(Instant now);
  void DropOldest(size_t count);

  struct Second {
    Instant until;
    size_t count;  // of fingerprints
  };
  const SipKey key_;
  std::deque<uint64_t> fingerprints_;  // oldest first
  std::deque<Second> seconds_;         // of the same, in the same order
};

}  // namespace muster
