// What users tell a dynamic rendezvous, as the machine wants it.
#pragma once

#include "core/rendezvous/rules.h"
#include "muster/rendezvous_parameters.h"

namespace muster {

/// std::invalid_argument for settings that cannot be meant.
RendezvousRules RulesFrom(const RendezvousSettings& settings);

}  // namespace muster
