// From what a user gives to what the nodes of a run must have in common.
#pragma once

#include "muster/coordinated_rendezvous.h"
#include "rendezvous/core/run_settings.h"

namespace muster {

RunSettings Settings(const CoordinatedRendezvousOptions& options);

}  // namespace muster
