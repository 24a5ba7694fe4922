// Python from threads that are not Python's: objects that they may drop, calls that end in order
// when the interpreter does.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>

namespace muster::python {

namespace nb = nanobind;

/// While it lives and is true, the interpreter exists and its lock can be taken. When the
/// interpreter ends, it ends any thread that requests its lock, in the middle of our code.
class InterpreterVisit {
 public:
  InterpreterVisit();
  ~InterpreterVisit();
  InterpreterVisit(const InterpreterVisit&) = delete;
  InterpreterVisit& operator=(const InterpreterVisit&) = delete;

  explicit operator bool() const { return admitted_; }

 private:
  bool admitted_;
};

/// Whether Python is ending, and this is not the thread that ends it.
bool PythonEnds();

/// Puts Python's pending exception aside, and restores it at the end. Holds the lock.
class PendingError {
 public:
  PendingError() { PyErr_Fetch(&type_, &value_, &trace_); }
  ~PendingError() { PyErr_Restore(type_, value_, trace_); }
  PendingError(const PendingError&) = delete;
  PendingError& operator=(const PendingError&) = delete;

  /// Makes `error` the pending one, unless there is one already.
  void Keep(nb::python_error& error) {
    if (type_ != nullptr) return;
    error.restore();
    PyErr_Fetch(&type_, &value_, &trace_);
  }

 private:
  PyObject* type_ = nullptr;
  PyObject* value_ = nullptr;
  PyObject* trace_ = nullptr;
};

/// An object of Python's that any thread may copy and drop, with the lock or without.
using SharedObject = std::shared_ptr<PyObject>;
SharedObject Share(nb::object object);

/// Calls `last` when Python ends, before its threads are stopped; after that no visit is admitted.
void WatchInterpreter(nb::module_& module, void (*last)());

}  // namespace muster::python
