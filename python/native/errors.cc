#include "errors.h"

#include <exception>

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

/// Creates a base class between an error and `base`. Without it, Python refuses to add torch's
/// class to the bases of the error later (muster._torch_link).
nb::object Linkable(const char* name, nb::handle base) {
  nb::object type = nb::steal(PyErr_NewException(name, base.ptr(), nullptr));
  if (!type.is_valid()) throw nb::python_error();
  return type;
}

/// Raises `error` with the nested Python exception as its cause. Returns false if there is none.
bool RaiseWithCause(const RendezvousConnectionError& error) {
  nb::object cause;
  try {
    std::rethrow_if_nested(error);
  } catch (const RaisedInPython& nested) {
    cause = nb::borrow(nested.raised.get());
  } catch (const nb::python_error& nested) {
    cause = nb::borrow(nested.value());
  } catch (...) {
  }
  if (!cause.is_valid()) return false;
  const nb::object type = NativeType("RendezvousConnectionError");
  const nb::object raised = type(nb::str(error.what()));
  PyException_SetCause(raised.ptr(), cause.release().ptr());
  PyErr_SetObject(type.ptr(), raised.ptr());
  return true;
}

void BindRendezvousErrors(nb::module_& module) {
  const nb::object error = Bind<RendezvousError>(module, "RendezvousError",
                                                 Linkable("muster._native.Error", PyExc_Exception),
                                                 "Base of the errors of a rendezvous.");
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
  BindRendezvousErrors(module);
  nb::register_exception_translator([](const std::exception_ptr& thrown, void*) {
    try {
      std::rethrow_exception(thrown);
    } catch (const RaisedInPython& raised) {
      PyObject* const value = raised.raised.get();
      PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(value)), value);
    } catch (const RendezvousConnectionError& error) {
      if (!RaiseWithCause(error)) throw;
    } catch (const NotImplementedError& error) {
      PyErr_SetString(PyExc_NotImplementedError, error.what());
    }
  });
}

nb::object NativeType(const char* name) {
  return nb::module_::import_("muster._native").attr(name);
}

nb::object TorchType(const char* module, const char* name) {
  const nb::object modules = nb::module_::import_("sys").attr("modules");
  return nb::getattr(modules.attr("get")(module, nb::none()), name, nb::none());
}

bool IsA(nb::handle raised, const char* name, const char* torch_module) {
  if (nb::isinstance(raised, NativeType(name))) return true;
  const nb::object of_torch = TorchType(torch_module, name);
  return !of_torch.is_none() && nb::isinstance(raised, of_torch);
}

std::string Written(nb::handle object) {
  const nb::object text = nb::steal(PyObject_Str(object.ptr()));
  const char* const utf8 = text.is_valid() ? PyUnicode_AsUTF8(text.ptr()) : nullptr;
  if (utf8 != nullptr) return utf8;
  PyErr_Clear();
  return "(which has no text)";
}

void ThrowAsStoreError(const nb::python_error& raised) {
  const nb::object value = nb::borrow(raised.value());
  const auto is_a = [&](const char* name) { return IsA(value, name, kTorchStores); };
  if (is_a("QueueEmptyError")) ThrowRaised<QueueEmptyError>(value);
  if (nb::isinstance(value, NativeType("StoreTimeoutError"))) ThrowRaised<StoreTimeoutError>(value);
  if (nb::isinstance(value, NativeType("DistStoreError"))) ThrowRaised<StoreError>(value);
  // Torch has one class for all failures of a store. Most of them are timeouts.
  if (is_a("DistStoreError")) ThrowRaised<StoreTimeoutError>(value);
  if (is_a("DistNetworkError")) ThrowRaised<NetworkError>(value);
  if (nb::isinstance(value, PyExc_NotImplementedError)) ThrowRaised<NotImplementedError>(value);
}

}  // namespace muster::python
