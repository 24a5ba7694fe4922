// This process as a node of a rendezvous.
#pragma once

#include <cstdint>
#include <string>

#include "core/rendezvous/node.h"
#include "ports/clock.h"

namespace muster {

/// Another node of this process each time. std::invalid_argument for an address that others could
/// not read.
Node ThisNode(const std::string& addr);

/// Different for whatever starts at another time, or elsewhere. No secret.
uint64_t SeedOfNow(const Clock& clock);

}  // namespace muster
