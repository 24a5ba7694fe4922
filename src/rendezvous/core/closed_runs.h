// Remembers the keys of closed runs that a server had to evict: a flood of new runs must not
// reopen them.
//
// Each key is kept as a keyed 64-bit fingerprint, eight bytes, until the time at which its run
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
  ClosedRuns(SipKey key, size_t max) : key_(key), max_(max) {}

  /// No run is forgotten early: without room, runs must not be evicted.
  bool HasRoom(Instant now);
  /// There must be room. `until` never decreases from one call to the next.
  void Add(std::string_view run, Instant until, Instant now);
  /// Linear: takes at most a tenth of a millisecond, once for each node that comes with the token
  /// of a run that the server does not have.
  bool Contains(std::string_view run, Instant now);
  size_t size() const { return fingerprints_.size(); }

 private:
  void Expire(Instant now);

  struct Second {
    Instant until;
    size_t count;  // number of fingerprints
  };
  const SipKey key_;
  const size_t max_;
  std::deque<uint64_t> fingerprints_;  // oldest first
  std::deque<Second> seconds_;         // their seconds, in the same order
};

}  // namespace muster
