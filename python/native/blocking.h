// Calls that may take long: Python's other threads run meanwhile, and Ctrl-C ends the call.
#pragma once

#include <nanobind/nanobind.h>

#include <type_traits>
#include <utility>

#include "interpreter.h"
#include "muster/interruption.h"

namespace muster::python {

/// Whether one of Python's signal handlers raises an exception, which the caller then raises. Only
/// the main thread receives signals. In other threads, a call must end when Python does: Python
/// ends a thread that requests its lock later, anywhere in our code.
inline bool IsSignalled() {
  if (PythonEnds()) return true;
  const nanobind::gil_scoped_acquire locked;
  return PyErr_Occurred() != nullptr || PyErr_CheckSignals() != 0;
}

/// The exception is not shown: threading drops it.
[[noreturn]] inline void EndThread() {
  PyErr_SetString(PyExc_SystemExit, "Python ends");
  throw nanobind::python_error();
}

/// Runs `call` without the interpreter's lock. No Python object may be touched in it.
/// nb::python_error (KeyboardInterrupt) if a signal's handler raised it meanwhile.
template <typename Call>
auto Blocking(Call&& call) {
  const InterpreterVisit visit;  // the end of Python waits for it
  if (!visit) EndThread();
  const auto run = [&] {
    const nanobind::gil_scoped_release unlocked;
    const ScopedInterruption on_signals(&IsSignalled);
    return std::forward<Call>(call)();
  };
  const auto raise_if_signalled = [] {
    if (PyErr_Occurred() != nullptr) throw nanobind::python_error();
  };
  try {
    if constexpr (std::is_void_v<decltype(run())>) {
      run();
      raise_if_signalled();
    } else {
      auto result = run();
      raise_if_signalled();
      return result;
    }
  } catch (...) {
    // The signal ended the call, or came while it failed: the handler's exception has priority.
    raise_if_signalled();
    if (PythonEnds()) EndThread();
    throw;
  }
}

}  // namespace muster::python
