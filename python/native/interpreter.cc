#include "interpreter.h"

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>

namespace muster::python {

namespace {

using namespace std::chrono_literals;

// A backend's call that takes longer is not waited for: it has no part in what comes.
constexpr auto kVisitMax = 5s;

struct Gate {
  std::atomic<int> visitors = 0;
  std::atomic<bool> is_closed = false;
  std::atomic<std::thread::id> closed_by{};  // ends the interpreter, and may enter to the last
  pid_t home = getpid();
  void (*last)() = nullptr;
};

// Never destroyed: threads of ours may outlast static objects.
Gate& TheGate() {
  static Gate& gate = *new Gate;
  return gate;
}

void CloseGate() {
  Gate& gate = TheGate();
  if (gate.last != nullptr) gate.last();
  gate.closed_by = std::this_thread::get_id();
  gate.is_closed = true;
  if (getpid() != gate.home) return;  // a fork: whoever was inside then is not here
  const nb::gil_scoped_release unlocked;
  const auto until = std::chrono::steady_clock::now() + kVisitMax;
  while (gate.visitors > 0 && std::chrono::steady_clock::now() < until) {
    std::this_thread::sleep_for(1ms);
  }
}

}  // namespace

bool PythonEnds() {
  const Gate& gate = TheGate();
  return gate.is_closed && gate.closed_by.load() != std::this_thread::get_id();
}

InterpreterVisit::InterpreterVisit() {
  // First in, then a look at the gate: whoever closes it does the same in the other order.
  ++TheGate().visitors;
  admitted_ = !PythonEnds();
  if (!admitted_) --TheGate().visitors;
}

InterpreterVisit::~InterpreterVisit() {
  if (admitted_) --TheGate().visitors;
}

SharedObject Share(nb::object object) {
  return {object.release().ptr(), [](PyObject* dropped) {
            const InterpreterVisit visit;
            if (!visit) return;  // goes with the process
            const nb::gil_scoped_acquire locked;
            const PendingError kept;
            Py_DECREF(dropped);
          }};
}

void WatchInterpreter(nb::module_& module, void (*last)()) {
  TheGate().last = last;
  module.def("_close_gate", &CloseGate);
  nb::module_::import_("atexit").attr("register")(module.attr("_close_gate"));
}

}  // namespace muster::python
