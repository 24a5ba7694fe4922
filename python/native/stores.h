// Stores in both directions, for the other parts of the module.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>

#include "muster/store.h"

namespace muster::python {

namespace nb = nanobind;

/// As the Python class that fits it. None for null.
nb::object WrapStore(std::shared_ptr<Store> store);

/// The store of the Python object. TypeError, with the name of the argument, if it is not a store.
std::shared_ptr<Store> StoreOf(nb::handle given, const char* argument);

}  // namespace muster::python
