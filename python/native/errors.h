// Converts Python exceptions into C++ exceptions that the core handles.
#pragma once

#include <nanobind/nanobind.h>

#include <string>
#include <utility>

#include "interpreter.h"
#include "muster/error.h"

namespace muster::python {

namespace nb = nanobind;

/// The modules of torch's store errors and of its rendezvous errors.
inline constexpr const char* kTorchStores = "torch.distributed";
inline constexpr const char* kTorchRendezvous = "torch.distributed.elastic.rendezvous.api";

/// A class of muster._native.
nb::object NativeType(const char* name);
/// A class of a torch module, or None if that module is not loaded.
nb::object TorchType(const char* module, const char* name);
/// Whether `raised` is an instance of muster's or of torch's class of this name.
bool IsA(nb::handle raised, const char* name, const char* torch_module);
/// str(object), or a placeholder if that fails.
std::string Written(nb::handle object);

/// Carries the Python exception. If C++ code does not handle it, Python receives the same object.
struct RaisedInPython {
  SharedObject raised;
};

template <typename Error>
struct RaisedAs final : Error, RaisedInPython {
  RaisedAs(const std::string& text, SharedObject raised_object)
      : Error(text), RaisedInPython{std::move(raised_object)} {}
};

template <typename Error>
[[noreturn]] void ThrowRaised(const nb::object& value) {
  throw RaisedAs<Error>(Written(value), Share(value));
}

/// Throws the matching C++ store error, for example StoreTimeoutError, so that the core handles it
/// like that of a native store. Returns if `raised` is no store error. Requires the GIL.
void ThrowAsStoreError(const nb::python_error& raised);

}  // namespace muster::python
