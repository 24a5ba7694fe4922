// The reports of a rendezvous, as Python classes; defined once, when the module is loaded.
#pragma once

#include <nanobind/nanobind.h>

namespace muster::python {

namespace nb = nanobind;

/// MembershipEvent, WaitReport, RendezvousEvent and set_event_sink().
void BindRendezvousValues(nb::module_& module);

}  // namespace muster::python
