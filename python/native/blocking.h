// Calls that may take long: others of Python's threads run meanwhile, and Ctrl-C is heard.
#pragma once

#include <nanobind/nanobind.h>

#include <utility>

namespace muster::python {

/// Runs `call` without the interpreter's lock. No Python object may be touched in it.
template <typename Call>
auto Blocking(Call&& call) {
  const nanobind::gil_scoped_release unlocked;
  return std::forward<Call>(call)();
}

}  // namespace muster::python
