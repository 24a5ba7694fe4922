// Rendezvous backends across the border: a Python class as a backend of ours, and ours in Python.
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
/// well refer to its handler, if only by the traceback of an error. Any thread may drop it; all
/// else needs the lock.
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
  std::shared_ptr<BackendReference> reference;  ///< Null if the backend is one of ours.
};

/// One of ours, or any object with `name`, `get_state()` and `set_state()`. TypeError if it is
/// neither.
GivenBackend BackendOf(nb::handle given);

/// While it lives, what a Python backend raises on this thread is kept, so that the caller gets
/// that and not only its text. Holds the lock when it is made and destroyed.
class BackendFailures {
 public:
  BackendFailures();
  ~BackendFailures();
  BackendFailures(const BackendFailures&) = delete;
  BackendFailures& operator=(const BackendFailures&) = delete;

  /// The one of this thread; null: nobody in Python is waiting for it.
  static BackendFailures* Here();

  void Keep(nb::handle raised, std::string text);
  /// nb::python_error if `error` is what became of something that Python code raised.
  void RaiseCause(const RendezvousError& error) const;

 private:
  BackendFailures* const outer_;
  nb::object raised_;
  std::string text_;
};

/// Blocking(), for calls that may come back to Python through a backend.
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
