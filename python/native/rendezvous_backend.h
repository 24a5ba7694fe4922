// Rendezvous backends in both directions: a Python class as a C++ backend, and C++ backends in
// Python.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <string>
#include <utility>

#include "blocking.h"
#include "muster/rendezvous_backend.h"
#include "muster/rendezvous_error.h"

namespace muster::python {

namespace nb = nanobind;

void BindRendezvousBackends(nb::module_& module);

/// The one reference to a Python backend, where Python's garbage collector finds it: a backend may
/// refer to its handler, if only through the traceback of an error. Any thread may drop it;
/// everything else needs the lock.
class BackendReference {
 public:
  explicit BackendReference(nb::object object) : object_(object.release().ptr()) {}
  ~BackendReference();
  BackendReference(const BackendReference&) = delete;
  BackendReference& operator=(const BackendReference&) = delete;

  /// Borrowed; null after Clear().
  PyObject* get() const { return object_; }
  void Clear() { Py_XDECREF(std::exchange(object_, nullptr)); }

 private:
  PyObject* object_;
};

struct GivenBackend {
  std::unique_ptr<RendezvousBackend> backend;
  std::shared_ptr<BackendReference> reference;  ///< Null if the backend is a C++ one.
};

/// A C++ backend, or any object with `name`, `get_state()` and `set_state()`. TypeError if it is
/// neither.
GivenBackend BackendOf(nb::handle given);

/// While it lives, exceptions of a Python backend on this thread are kept, so that the caller gets
/// the exception and not only its text. Holds the lock when it is made and destroyed.
class BackendFailures {
 public:
  BackendFailures();
  ~BackendFailures();
  BackendFailures(const BackendFailures&) = delete;
  BackendFailures& operator=(const BackendFailures&) = delete;

  /// That of this thread; null: no Python code is waiting for it.
  static BackendFailures* Here();

  void Keep(nb::handle raised, std::string text);
  /// nb::python_error if `error` was caused by an exception of Python code.
  void RaiseCause(const RendezvousError& error) const;

 private:
  BackendFailures* const outer_;
  nb::object raised_;
  std::string text_;
};

/// Blocking(), for calls that may call Python through a backend.
template <typename Call>
auto CallingBackend(Call&& call) {
  const BackendFailures failures;
  try {
    return Blocking(std::forward<Call>(call));
  } catch (const RendezvousError& error) {
    failures.RaiseCause(error);
    throw;
  }
}

}  // namespace muster::python
