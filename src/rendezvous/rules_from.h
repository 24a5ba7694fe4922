// What users tell a dynamic rendezvous, as the machine wants it.
#pragma once

#include "muster/rendezvous_parameters.h"
#include "rendezvous/core/rules.h"

namespace muster {

/// std::invalid_argument for settings that cannot be meant.
RendezvousRules RulesFrom(const RendezvousSettings& settings);

}  // namespace muster
