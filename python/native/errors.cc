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
      Bind<RendezvousError>(module, "RendezvousError", root, "Root of the errors of a rendezvous.");
  Bind<RendezvousClosedError>(module, "RendezvousClosedError", error, "The rendezvous is closed.");
  Bind<RendezvousTimeoutError>(module, "RendezvousTimeoutError", error,
                               "The rendezvous did not complete in time.");
  Bind<RendezvousConnectionError>(module, "RendezvousConnectionError", error,
                                  "The backend cannot be reached.");
  Bind<RendezvousStateError>(module, "RendezvousStateError", error,
                             "The shared state is not what it should be.");
  Bind<RendezvousGracefulExitError>(module, "RendezvousGracefulExitError", error,
                                    "The node left, as it was asked to.");
}

}  // namespace

void BindErrors(nb::module_& module) {
  // Of two that fit, nanobind asks the one that was registered last: roots come first.
  const nb::object root = Bind<DistError>(module, "DistError", PyExc_RuntimeError,
                                          "Root of all errors of muster's own.");
  Bind<NetworkError>(
      module, "DistNetworkError", root,
      "No connection, or it broke. A TCPStore that has raised this is of no further\n"
      "use; clone() makes a fresh connection.");
  const nb::object store =
      Bind<StoreError>(module, "DistStoreError", root, "A store could not do what it was asked.");
  Bind<StoreTimeoutError>(
      module, "StoreTimeoutError", store,
      "A key, an element or the others at a barrier did not come in time. The store is still\n"
      "usable.");
  Bind<QueueEmptyError>(module, "QueueEmptyError", store, "Nothing to pop.");
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
