// From what the driver saw to what a person reads.
#pragma once

#include "muster/rendezvous_handler.h"
#include "runtime/rendezvous_driver.h"

namespace muster {

WaitReport ReportOn(const WaitSnapshot& snapshot, const Node& self, const RendezvousRules& rules,
                    Instant now);

}  // namespace muster
