// Names of closed runs that a server had to evict: closed stays closed, whatever floods it.
//
// Each name is kept as a keyed 64-bit fingerprint until the time at which its run would have been
// forgotten anyway: 24 bytes, whatever the name's length. The key is random, so nobody can choose a
// name whose fingerprint equals another's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string_view>
#include <unordered_map>

#include "base/siphash.h"
#include "base/time.h"

namespace muster {

class ClosedRuns {
 public:
  explicit ClosedRuns(SipKey key) : key_(key) {}

  void Add(std::string_view run_id, Instant until, Instant now);
  bool Contains(std::string_view run_id, Instant now);
  size_t size() const { return until_.size(); }

 private:
  void Expire(Instant now);

  struct Entry {
    uint64_t fingerprint;
    Instant until;
  };
  const SipKey key_;
  std::deque<Entry> oldest_first_;
  std::unordered_map<uint64_t, Instant> until_;
};

}  // namespace muster
