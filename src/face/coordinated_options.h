// From what a user gives to what the nodes of a run must have in common.
#pragma once

#include "core/rendezvous/run_settings.h"
#include "muster/coordinated_rendezvous.h"

namespace muster {

RunSettings Settings(const CoordinatedRendezvousOptions& options);

}  // namespace muster
