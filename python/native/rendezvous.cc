// Handlers. muster.rendezvous builds torchelastic's classes from these bindings.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <climits>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "arguments.h"
#include "bindings.h"
#include "birthplace.h"
#include "blocking.h"
#include "errors.h"
#include "etcd_plugin.h"
#include "muster/dynamic_rendezvous.h"
#include "muster/network.h"
#include "muster/rendezvous_registry.h"
#include "rendezvous_arguments.h"
#include "rendezvous_backend.h"
#include "rendezvous_values.h"
#include "stores.h"

namespace muster::python {

namespace {

using namespace std::chrono_literals;

/// A handler and a lock for its callers: most of our handlers take one caller at a time, and Python
/// has threads.
struct Turns {
  explicit Turns(RendezvousHandlerPtr its_handler) : handler(std::move(its_handler)) {}

  using Lock = std::unique_lock<std::timed_mutex>;

  /// Without the interpreter's lock. InterruptedError if a signal comes first.
  Lock TakeTurn() {
    Lock lock(mutex, std::defer_lock);
    while (!lock.try_lock_for(50ms)) {
      if (IsSignalled())
        throw InterruptedError("interrupted while another thread was being served");
    }
    return lock;
  }

  /// For everything but NextRendezvous().
  Lock TakeTurnIfNeeded() { return handler->AllowsConcurrentCalls() ? Lock() : TakeTurn(); }

  RendezvousHandlerPtr handler;
  // Decided at construction; later, another thread may change the members that it depends on.
  const bool is_host = handler->IsHost();
  std::timed_mutex mutex;
};

class NativeHandler {
 public:
  explicit NativeHandler(std::shared_ptr<Turns> turns,
                         std::shared_ptr<BackendReference> backend = nullptr)
      : home_(std::move(turns), "RendezvousHandler"), backend_(std::move(backend)) {}

  RendezvousHandler& handler() const { return *home_->handler; }
  Turns& turns() const { return **home_; }
  BackendReference* backend() const { return backend_.get(); }

  /// Calls `work` on the handler, when it is this thread's turn.
  template <typename Work>
  auto InTurn(Work work) const {
    Turns& turns = this->turns();
    return CallingBackend([&] {
      const Turns::Lock turn = turns.TakeTurnIfNeeded();
      return work(*turns.handler);
    });
  }

 private:
  AtHome<Turns> home_;
  std::shared_ptr<BackendReference> backend_;  ///< Null unless it is Python's.
};

// --- For the garbage collector -------------------------------------------------------------------

int VisitBackend(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  if (!nb::inst_ready(self)) return 0;
  const BackendReference* const backend = nb::inst_ptr<NativeHandler>(self)->backend();
  if (backend != nullptr) Py_VISIT(backend->get());
  return 0;
}

int ClearBackend(PyObject* self) {
  if (!nb::inst_ready(self)) return 0;
  if (BackendReference* const backend = nb::inst_ptr<NativeHandler>(self)->backend()) {
    backend->Clear();
  }
  return 0;
}

PyType_Slot handler_slots[] = {{Py_tp_traverse, reinterpret_cast<void*>(&VisitBackend)},
                               {Py_tp_clear, reinterpret_cast<void*>(&ClearBackend)},
                               {0, nullptr}};

nb::object Wrapped(std::shared_ptr<Turns> turns,
                   std::shared_ptr<BackendReference> backend = nullptr) {
  return nb::cast(new NativeHandler(std::move(turns), std::move(backend)),
                  nb::rv_policy::take_ownership);
}

// --- Making them ---------------------------------------------------------------------------------

nb::object CreateHandler(nb::handle params) {
  const RendezvousParameters parameters = ParametersOf(params);
  if (parameters.backend == "etcd" || parameters.backend == "etcd-v2") LoadEtcd();
  return Wrapped(
      CallingBackend([&] { return std::make_shared<Turns>(GetRendezvousHandler(parameters)); }));
}

nb::object CreateDynamic(nb::handle settings, nb::handle store, nb::handle backend,
                         nb::handle local_addr) {
  RendezvousSettings its_settings = SettingsOf(settings);
  std::shared_ptr<Store> its_store = StoreOf(store, "store");
  const std::string its_addr = local_addr.is_none() ? "" : Text(local_addr, "local_addr");
  GivenBackend given = BackendOf(backend);
  // Looks up this machine's name.
  auto turns = CallingBackend([&] {
    return std::make_shared<Turns>(CreateDynamicHandler(
        std::move(its_settings), std::move(its_store), std::move(given.backend), its_addr));
  });
  return Wrapped(std::move(turns), std::move(given.reference));
}

// --- Using them ----------------------------------------------------------------------------------

/// The static rendezvous passes its store's errors through; in Python, every backend raises the
/// same error for the same cause.
[[noreturn]] void RaiseAsRendezvousError(const char* type, const std::exception& error) {
  PyErr_SetString(NativeType(type).ptr(), error.what());
  throw nb::python_error();
}

RendezvousInfo Next(const NativeHandler& self) {
  Turns& turns = self.turns();
  try {
    return CallingBackend([&] {
      const Turns::Lock turn = turns.TakeTurn();
      return turns.handler->NextRendezvous();
    });
  } catch (const NetworkError& error) {
    RaiseAsRendezvousError("RendezvousConnectionError", error);
  } catch (const StoreTimeoutError& error) {
    RaiseAsRendezvousError("RendezvousTimeoutError", error);
  }
}

/// (store, rank, world_size, round, master_addr, master_port)
nb::tuple NextRendezvous(const NativeHandler& self) {
  RendezvousInfo info = Next(self);
  return nb::make_tuple(WrapStore(std::move(info.store)), info.rank, info.world_size, info.round,
                        info.bootstrap_store_info.master_addr,
                        info.bootstrap_store_info.master_port);
}

const DynamicRendezvousHandler& Dynamic(const NativeHandler& self) {
  const auto* const dynamic = dynamic_cast<const DynamicRendezvousHandler*>(&self.handler());
  if (dynamic == nullptr) throw nb::type_error("this is no handler of a dynamic rendezvous");
  return *dynamic;
}

/// (run_id, min_nodes, max_nodes, four timeouts, keep-alive interval and backoff: milliseconds,
/// max_attempt)
nb::tuple SettingsForPython(const NativeHandler& self) {
  const RendezvousSettings& settings = Dynamic(self).settings();
  return nb::make_tuple(settings.run_id, settings.min_nodes, settings.max_nodes,
                        settings.join_timeout.count(), settings.last_call.count(),
                        settings.close_timeout.count(), settings.heartbeat_timeout.count(),
                        settings.keep_alive_interval.count(), settings.cas_backoff_max.count(),
                        settings.keep_alive_max_attempt);
}

nb::tuple Cost(const NativeHandler& self) {
  const DynamicRendezvousHandler& dynamic = Dynamic(self);
  const RendezvousCost cost = Blocking([&] { return dynamic.cost(); });
  return nb::make_tuple(cost.reads, cost.writes, cost.lost);
}

std::optional<MembershipEvent> AwaitEvent(const NativeHandler& self, nb::handle timeout) {
  const milliseconds time = Time(timeout, "timeout");
  return self.InTurn([&](RendezvousHandler& handler) { return handler.AwaitEvent(time); });
}

void SetClosed(const NativeHandler& self, nb::handle reason) {
  const std::string text = Text(reason, "reason");
  self.InTurn([&](RendezvousHandler& handler) { handler.SetClosed(text); });
}

nb::tuple BuildStoreInfo(nb::handle rank, nb::handle store, nb::handle local_addr,
                         nb::handle server_port) {
  const int64_t its_rank = Integer(rank, "rank", 0);
  const std::shared_ptr<Store> its_store = StoreOf(store, "store");
  const std::string address = local_addr.is_none() ? "" : Text(local_addr, "local_addr");
  const auto port = static_cast<uint16_t>(
      server_port.is_none() ? 0 : Integer(server_port, "server_port", 0, UINT16_MAX));
  const RendezvousStoreInfo info =
      Blocking([&] { return RendezvousStoreInfo::Build(its_rank, *its_store, address, port); });
  return nb::make_tuple(info.master_addr, info.master_port);
}

nb::tuple ParseEndpoint(nb::handle endpoint, nb::handle default_port) {
  // Launchers pass None for options without a value.
  const std::string text = endpoint.is_none() ? "" : Text(endpoint, "endpoint");
  const auto fallback = static_cast<int>(Integer(default_port, "default_port", INT_MIN, INT_MAX));
  const HostAndPort parsed = ParseRendezvousEndpoint(text, fallback);
  return nb::make_tuple(parsed.host, parsed.port);
}

nb::dict ParseConfig(nb::handle text) {
  nb::dict config;
  for (const auto& [key, value] : ParseRendezvousConfig(Text(text, "config_str"))) {
    config[key.c_str()] = std::get<std::string>(value);
  }
  return config;
}

void BindHandler(nb::module_& module) {
  nb::class_<NativeHandler>(module, "NativeRendezvousHandler", nb::type_slots(handler_slots))
      .def("get_backend", [](const NativeHandler& self) { return self.handler().GetBackend(); })
      .def("get_run_id", [](const NativeHandler& self) { return self.handler().GetRunId(); })
      .def("node", [](const NativeHandler& self) { return self.handler().node(); })
      .def("active_backend",
           [](const NativeHandler& self) { return self.handler().ActiveBackend(); })
      .def("is_host", [](const NativeHandler& self) { return self.turns().is_host; })
      .def("use_agent_store",
           [](const NativeHandler& self) { return self.handler().UseAgentStore(); })
      .def("next_rendezvous", &NextRendezvous)
      .def("is_closed",
           [](const NativeHandler& self) {
             return self.InTurn([](RendezvousHandler& handler) { return handler.IsClosed(); });
           })
      .def("set_closed", &SetClosed, nb::arg("reason").none())
      .def("num_nodes_waiting",
           [](const NativeHandler& self) {
             return self.InTurn(
                 [](RendezvousHandler& handler) { return handler.NumNodesWaiting(); });
           })
      .def("await_event", &AwaitEvent, nb::arg("timeout").none())
      .def("stop_waiting",
           [](const NativeHandler& self) {
             RendezvousHandler& handler = self.handler();
             return Blocking([&] { return handler.StopWaiting(); });
           })
      .def("leave",
           [](const NativeHandler& self) {
             self.InTurn([](RendezvousHandler& handler) { handler.Leave(); });
           })
      .def("shutdown",
           [](const NativeHandler& self) {
             return self.InTurn([](RendezvousHandler& handler) { return handler.Shutdown(); });
           })
      .def("describe_wait",
           [](const NativeHandler& self) {
             const RendezvousHandler& handler = self.handler();
             return Blocking([&] { return handler.DescribeWait(); });
           })
      .def("settings", &SettingsForPython)
      .def("cost", &Cost);
}

}  // namespace

void BindRendezvous(nb::module_& module) {
  BindRendezvousValues(module);
  BindRendezvousBackends(module);
  BindHandler(module);
  module.def("create_rendezvous_handler", &CreateHandler, nb::arg("params").none());
  module.def("create_dynamic_handler", &CreateDynamic, nb::arg("settings"), nb::arg("store").none(),
             nb::arg("backend").none(), nb::arg("local_addr").none());
  module.def("build_store_info", &BuildStoreInfo, nb::arg("rank").none(), nb::arg("store").none(),
             nb::arg("local_addr").none(), nb::arg("server_port").none());
  module.def("parse_rendezvous_endpoint", &ParseEndpoint, nb::arg("endpoint").none(),
             nb::arg("default_port").none());
  module.def("parse_rendezvous_config", &ParseConfig, nb::arg("config_str").none());
}

}  // namespace muster::python
