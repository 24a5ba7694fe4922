#include "bindings.h"
#include "muster/rendezvous_error.h"

namespace muster::python {

namespace {

template <typename Error>
nb::object Bind(nb::module_& module, const char* name, nb::handle base, const char* doc) {
  const nb::exception<Error> error(module, name, base);
  error.doc() = doc;
  return error;
}

void BindRendezvousErrors(nb::module_& module, nb::handle root) {
  const nb::object error =
      Bind<RendezvousError>(module, "RendezvousError", root, "Base of the errors of a rendezvous.");
  Bind<RendezvousClosedError>(module, "RendezvousClosedError", error, "The rendezvous is closed.");
  Bind<RendezvousTimeoutError>(module, "RendezvousTimeoutError", error,
                               "The rendezvous did not complete in time.");
  Bind<RendezvousConnectionError>(module, "RendezvousConnectionError", error,
                                  "The backend cannot be reached.");
  Bind<RendezvousStateError>(module, "RendezvousStateError", error,
                             "The backend holds something that is not a rendezvous state.");
  Bind<RendezvousGracefulExitError>(
      module, "RendezvousGracefulExitError", error,
      "The rendezvous was closed while this node was a spare: an orderly exit.");
}

}  // namespace

void BindErrors(nb::module_& module) {
  // If two match, nanobind uses the one that was registered last: bases come first.
  const nb::object root = Bind<DistError>(module, "DistError", PyExc_RuntimeError,
                                          "Base of all of muster's own errors.");
  Bind<NetworkError>(
      module, "DistNetworkError", root,
      "No connection, or it broke. A TCPStore that has raised this cannot be used any\n"
      "more; clone() makes a new connection.");
  const nb::object store =
      Bind<StoreError>(module, "DistStoreError", root, "A store could not execute a call.");
  Bind<StoreTimeoutError>(
      module, "StoreTimeoutError", store,
      "A key, an element or the others at a barrier did not come in time. The store is still\n"
      "usable.");
  Bind<QueueEmptyError>(module, "QueueEmptyError", store, "The queue is empty.");
  BindRendezvousErrors(module, root);
  nb::register_exception_translator([](const std::exception_ptr& thrown, void*) {
    try {
      std::rethrow_exception(thrown);
    } catch (const NotImplementedError& error) {
      PyErr_SetString(PyExc_NotImplementedError, error.what());
    }
  });
}

}  // namespace muster::python
