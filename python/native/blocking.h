// Calls that may take long: others of Python's threads run meanwhile, and Ctrl-C is heard.
#pragma once

#include <nanobind/nanobind.h>

#include <type_traits>
#include <utility>

#include "interpreter.h"
#include "muster/interruption.h"

namespace muster::python {

/// Whether Python's signal handlers have something to raise; it is raised by who asks. Only the
/// main thread is ever told of signals. Others are to come to an end when Python does: it ends a
/// thread that asks for its lock later, wherever in our code that is.
inline bool IsSignalled() {
  if (PythonEnds()) return true;
  const nanobind::gil_scoped_acquire locked;
  return PyErr_Occurred() != nullptr || PyErr_CheckSignals() != 0;
}

/// Nobody hears of it: threading drops it.
[[noreturn]] inline void EndThread() {
  PyErr_SetString(PyExc_SystemExit, "Python ends");
  throw nanobind::python_error();
}

/// Runs `call` without the interpreter's lock. No Python object may be touched in it.
/// nb::python_error (KeyboardInterrupt) if a signal's handler raised it meanwhile.
template <typename Call>
auto Blocking(Call&& call) {
  const InterpreterVisit visit;  // Python's end waits for us
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
    // The signal ended the call, or came while it failed: what its handler raised goes first.
    raise_if_signalled();
    if (PythonEnds()) EndThread();
    throw;
  }
}

}  // namespace muster::python
