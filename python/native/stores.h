// Stores in both directions, for the other parts of the module.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>

#include "muster/store.h"

namespace muster::python {

namespace nb = nanobind;

/// As the Python class that fits it. None for null.
nb::object WrapStore(std::shared_ptr<Store> store);

/// The store that the Python object holds. A store of torch is called through its Python methods.
/// TypeError, naming the argument, if the object is no store.
std::shared_ptr<Store> StoreOf(nb::handle given, const char* argument);

}  // namespace muster::python
