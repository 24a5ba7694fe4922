// Keyed hashing of texts that clients choose: without the key they cannot construct collisions,
// which would make the hash tables slow.
#pragma once

#include <cstdint>
#include <string_view>

namespace muster {

struct SipKey {
  uint64_t first = 0;
  uint64_t second = 0;
};

/// SipHash with one round for each word and three at the end (Aumasson and Bernstein 2012; the
/// variant that Rust and Linux use for tables in memory).
uint64_t SipHash13(const SipKey& key, std::string_view text);

}  // namespace muster
