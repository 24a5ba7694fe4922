// The parameters of a rendezvous, from objects with the attributes of torchelastic's.
#pragma once

#include <nanobind/nanobind.h>

#include "muster/rendezvous_parameters.h"

namespace muster::python {

namespace nb = nanobind;

/// From anything with the attributes of RendezvousParameters. TypeError and ValueError name the
/// attribute, or the option.
RendezvousParameters ParametersOf(nb::handle given);

/// Likewise for RendezvousSettings.
RendezvousSettings SettingsOf(nb::handle given);

}  // namespace muster::python
