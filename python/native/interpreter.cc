#include "interpreter.h"

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

namespace muster::python {

namespace {

using namespace std::chrono_literals;

// The end of Python does not wait for a backend's call that takes longer: it has no effect then.
constexpr auto kVisitMax = 5s;

struct Gate {
  std::atomic<int> visitors = 0;
  std::atomic<bool> is_closed = false;
  std::atomic<std::thread::id> closed_by{};  // this thread may always enter
  pid_t home = getpid();
  void (*last)() = nullptr;
  // For the last visitor to report that it has left. Only for that: a fork may come at any time.
  std::mutex mutex;
  std::condition_variable left;
};

// Never destroyed: our threads may outlive static objects.
Gate& TheGate() {
  static Gate& gate = *new Gate;
  return gate;
}

void CloseGate() {
  Gate& gate = TheGate();
  if (gate.last != nullptr) gate.last();
  gate.closed_by = std::this_thread::get_id();
  gate.is_closed = true;
  if (getpid() != gate.home) return;  // a fork does not have the threads that were inside
  const nb::gil_scoped_release unlocked;
  std::unique_lock lock(gate.mutex);
  gate.left.wait_for(lock, kVisitMax, [&] { return gate.visitors == 0; });
}

void Leave() {
  Gate& gate = TheGate();
  if (--gate.visitors > 0 || !gate.is_closed) return;
  const std::lock_guard lock(gate.mutex);
  gate.left.notify_one();
}

}  // namespace

bool PythonEnds() {
  const Gate& gate = TheGate();
  return gate.is_closed && gate.closed_by.load() != std::this_thread::get_id();
}

InterpreterVisit::InterpreterVisit() {
  // Enters first, then checks the gate: the thread that closes it does the same in the other order.
  ++TheGate().visitors;
  admitted_ = !PythonEnds();
  if (!admitted_) Leave();
}

InterpreterVisit::~InterpreterVisit() {
  if (admitted_) Leave();
}

SharedObject Share(nb::object object) {
  return {object.release().ptr(), [](PyObject* dropped) {
            const InterpreterVisit visit;
            if (!visit) return;  // the process ends anyway
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
