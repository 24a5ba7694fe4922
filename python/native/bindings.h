// The parts of the module, each in a file of its own.
#pragma once

#include <nanobind/nanobind.h>

namespace muster::python {

namespace nb = nanobind;

void BindErrors(nb::module_& module);
void BindNetwork(nb::module_& module);
void BindStores(nb::module_& module);
void BindRendezvous(nb::module_& module);

}  // namespace muster::python
