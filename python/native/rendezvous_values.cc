// The reports of a rendezvous: membership events, wait reports, and the records of its steps.
#include "rendezvous_values.h"

#include <nanobind/stl/chrono.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <utility>

#include "arguments.h"
#include "interpreter.h"
#include "muster/rendezvous_events.h"
#include "muster/rendezvous_handler.h"

namespace muster::python {

namespace {

void BindMembershipEvent(nb::module_& module) {
  using Kind = MembershipEvent::Kind;
  nb::class_<MembershipEvent> bound(module, "MembershipEvent",
                                    "What happens to a round while its workers run.");
  nb::enum_<Kind>(bound, "Kind", "What happened.")
      .value("MEMBER_LOST", Kind::kMemberLost, "A member died or fell silent.")
      .value("NODES_WAITING", Kind::kNodesWaiting, "Nodes wait for the next round.")
      .value("PLACE_LOST", Kind::kPlaceLost, "The others continue without this node.")
      .value("CLOSED", Kind::kClosed, "The rendezvous is closed.");
  bound
      .def(
          "__init__",
          [](MembershipEvent* self, nb::handle kind, nb::handle round, nb::handle waiting,
             nb::handle who, nb::handle why) {
            if (!nb::isinstance<Kind>(kind)) RaiseWrongType("kind", "a MembershipEvent.Kind", kind);
            new (self) MembershipEvent{.kind = nb::cast<Kind>(kind),
                                       .round = Integer(round, "round"),
                                       .waiting = Integer(waiting, "waiting"),
                                       .who = Text(who, "who"),
                                       .why = Text(why, "why")};
          },
          nb::arg("kind").none(), nb::arg("round").none() = 0, nb::arg("waiting").none() = 0,
          nb::arg("who").none() = "", nb::arg("why").none() = "",
          nb::sig("def __init__(self, kind: Kind, round: int = 0, "
                  "waiting: int = 0, who: str = '', why: str = '') -> None"))
      .def_ro("kind", &MembershipEvent::kind)
      .def_ro("round", &MembershipEvent::round)
      .def_ro("waiting", &MembershipEvent::waiting, "How many nodes wait for the next round.")
      .def_ro("who", &MembershipEvent::who,
              "The node that was lost, or that closed the rendezvous.")
      .def_ro("why", &MembershipEvent::why)
      .def("__str__", &MembershipEvent::ToString)
      .def("__repr__", [](const MembershipEvent& event) {
        return "<muster.rendezvous.MembershipEvent: " + event.ToString() + ">";
      });
}

void BindWaitReport(nb::module_& module) {
  using Phase = WaitReport::Phase;
  nb::class_<WaitReport> bound(
      module, "WaitReport", "Which nodes a rendezvous waits for, and why; str() is one sentence.");
  nb::enum_<Phase>(bound, "Phase", "The phase of the wait.")
      .value("IDLE", Phase::kIdle, "No call is waiting.")
      .value("CONTACT", Phase::kContact, "The backend has not answered yet.")
      .value("FORMING", Phase::kForming, "Too few nodes yet.")
      .value("LAST_CALL", Phase::kLastCall, "Enough; more may come until the last call is over.")
      .value("NEXT_ROUND", Phase::kNextRound,
             "The node came late; the members must leave their round.")
      .value("SPARE", Phase::kSpare, "The round is full.")
      .value("BOOTSTRAP", Phase::kBootstrap,
             "Rank 0 has not published the address of its store yet.")
      .value("COMPLETE", Phase::kComplete, "In a round.")
      .value("CLOSED", Phase::kClosed);
  bound.def(nb::init<>())
      .def_ro("phase", &WaitReport::phase)
      .def_ro("run_id", &WaitReport::run_id)
      .def_ro("round", &WaitReport::round)
      .def_ro("min_nodes", &WaitReport::min_nodes)
      .def_ro("max_nodes", &WaitReport::max_nodes)
      .def_ro("here", &WaitReport::here, "Nodes in the round.")
      .def_ro("joined", &WaitReport::joined, "These nodes, or the first of them, in rank order.")
      .def_ro("waiting", &WaitReport::waiting, "Nodes that wait for the next round.")
      .def_ro("spares", &WaitReport::spares)
      .def_ro("expected", &WaitReport::expected,
              "Nodes of the last round that have not joined again.")
      .def_ro("silent", &WaitReport::silent, "Nodes that have missed a heartbeat.")
      .def_ro("trouble", &WaitReport::trouble,
              "The error that separates this node from its backend.")
      .def_ro("first", &WaitReport::first, "The round's rank 0, while the call waits for it.")
      .def_ro("awaited", &WaitReport::awaited, "Nodes that must still come, or leave.")
      .def_ro("last_call_left", &WaitReport::last_call_left)
      .def_ro("time_left", &WaitReport::time_left, "Time until the waiting call times out.")
      .def("__str__", &WaitReport::ToString)
      .def("__repr__", [](const WaitReport& report) {
        return "<muster.rendezvous.WaitReport: " + report.ToString() + ">";
      });
}

const char* NameOf(NodeState state) {
  switch (state) {
    case NodeState::kInit:
      return "INIT";
    case NodeState::kRunning:
      return "RUNNING";
    case NodeState::kSucceeded:
      return "SUCCEEDED";
    case NodeState::kFailed:
      return "FAILED";
  }
  return "";
}

void BindEvents(nb::module_& module) {
  nb::class_<RendezvousEvent>(module, "RendezvousEvent", "One step of a rendezvous.")
      .def_ro("name", &RendezvousEvent::name)
      .def_ro("run_id", &RendezvousEvent::run_id)
      .def_ro("message", &RendezvousEvent::message)
      .def_ro("hostname", &RendezvousEvent::hostname)
      .def_ro("pid", &RendezvousEvent::pid)
      .def_prop_ro("node_state",
                   [](const RendezvousEvent& event) { return NameOf(event.node_state); })
      .def_ro("master_endpoint", &RendezvousEvent::master_endpoint)
      .def_ro("rank", &RendezvousEvent::rank)
      .def_ro("local_id", &RendezvousEvent::local_id)
      .def_ro("error_trace", &RendezvousEvent::error_trace)
      .def("to_json", &RendezvousEvent::ToJson, "One JSON object.")
      .def("__str__", &RendezvousEvent::ToJson);
  module.def(
      "set_event_sink",
      [](nb::handle sink) {
        if (sink.is_none()) return SetRendezvousEventSink({});
        if (PyCallable_Check(sink.ptr()) == 0) RaiseWrongType("sink", "a callable or None", sink);
        SetRendezvousEventSink([callable = Share(nb::borrow(sink))](const RendezvousEvent& event) {
          const InterpreterVisit visit;
          if (!visit) return;
          const nb::gil_scoped_acquire locked;
          const PendingError kept;
          try {
            nb::handle(callable.get())(nb::cast(event));
          } catch (nb::python_error& raised) {
            raised.discard_as_unraisable(nb::handle(callable.get()));
          }
        });
      },
      nb::arg("sink").none());
}

}  // namespace

void BindRendezvousValues(nb::module_& module) {
  BindMembershipEvent(module);
  BindWaitReport(module);
  BindEvents(module);
  // The sink belongs to Python, and ends with it.
  WatchInterpreter(module, [] { SetRendezvousEventSink({}); });
}

}  // namespace muster::python
