#include "bindings.h"
#include "muster/rendezvous_error.h"

namespace muster::python {

void BindErrors(nb::module_& module) {
  // Of two that fit, nanobind asks the one that was registered last: roots come first.
  const nb::exception<DistError> dist(module, "DistError", PyExc_RuntimeError);
  const nb::exception<NetworkError> network(module, "DistNetworkError", dist);
  const nb::exception<StoreError> store(module, "DistStoreError", dist);
  const nb::exception<StoreTimeoutError> timeout(module, "StoreTimeoutError", store);
  const nb::exception<QueueEmptyError> empty(module, "QueueEmptyError", store);
  const nb::exception<RendezvousError> rendezvous(module, "RendezvousError", dist);
  nb::exception<RendezvousClosedError>(module, "RendezvousClosedError", rendezvous);
  nb::exception<RendezvousTimeoutError>(module, "RendezvousTimeoutError", rendezvous);
  nb::exception<RendezvousConnectionError>(module, "RendezvousConnectionError", rendezvous);
  nb::exception<RendezvousStateError>(module, "RendezvousStateError", rendezvous);
  nb::exception<RendezvousGracefulExitError>(module, "RendezvousGracefulExitError", rendezvous);
  nb::register_exception_translator([](const std::exception_ptr& thrown, void*) {
    try {
      std::rethrow_exception(thrown);
    } catch (const NotImplementedError& error) {
      PyErr_SetString(PyExc_NotImplementedError, error.what());
    }
  });
}

}  // namespace muster::python
