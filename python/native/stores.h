// Stores across the border, for the other parts of the module.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>

#include "muster/store.h"

namespace muster::python {

namespace nb = nanobind;

/// As the Python class that fits it. None for null.
nb::object WrapStore(std::shared_ptr<Store> store);

/// What the Python object holds. TypeError, naming the argument, if it is no store.
std::shared_ptr<Store> StoreOf(nb::handle given, const char* argument);

}  // namespace muster::python
