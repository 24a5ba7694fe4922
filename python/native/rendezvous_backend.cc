#include "rendezvous_backend.h"

#include <any>
#include <mutex>
#include <optional>
#include <string_view>
#include <type_traits>

#include "arguments.h"
#include "birthplace.h"
#include "errors.h"
#include "interpreter.h"
#include "muster/c10d_rendezvous.h"
#include "rendezvous_arguments.h"
#include "stores.h"

namespace muster::python {

namespace {

thread_local BackendFailures* this_threads_failures = nullptr;

constexpr const char* kWantedBackend =
    "a RendezvousBackend (with name, get_state() and set_state())";

nb::bytes AsBytes(std::string_view bytes) { return nb::bytes(bytes.data(), bytes.size()); }

// --- A Python class as a backend -----------------------------------------------------------------

class PythonBackend final : public RendezvousBackend {
 public:
  PythonBackend(std::shared_ptr<BackendReference> reference, std::string name)
      : reference_(std::move(reference)), name_(std::move(name)) {}

  using RendezvousBackend::SetState;
  std::string Name() const override { return name_; }

  std::optional<StoredState> GetState() override {
    return InPython("get_state", [&]() -> std::optional<StoredState> {
      const nb::object answer = Object().attr("get_state")();
      if (answer.is_none()) return std::nullopt;
      const nb::tuple parts = Parts(answer, 2, "get_state() must return None or (bytes, token)");
      return StoredState{StateIn(parts, "get_state()"), TokenIn(parts)};
    });
  }

  std::optional<StoredState> SetState(std::string_view bytes, const std::any& token) override {
    bool is_silent = false;
    std::optional<StoredState> stored = InPython("set_state", [&]() -> std::optional<StoredState> {
      const nb::object answer = Object().attr("set_state")(AsBytes(bytes), FromToken(token));
      is_silent = answer.is_none();
      if (is_silent) return std::nullopt;
      const nb::tuple parts =
          Parts(answer, 3, "set_state() must return None or (bytes, token, bool)");
      const int was_set = PyObject_IsTrue(parts[2].ptr());
      if (was_set < 0) throw nb::python_error();
      return StoredState{StateIn(parts, "set_state()"), TokenIn(parts), was_set == 1};
    });
    if (!is_silent) return stored;
    // The method did not return what is stored.
    stored = GetState();
    if (stored) stored->was_set = stored->bytes == bytes;
    return stored;
  }

 private:
  nb::object Object() const {
    if (reference_->get() == nullptr) {
      throw RendezvousConnectionError("the rendezvous backend '" + name_ + "' is gone");
    }
    return nb::borrow(reference_->get());
  }

  static nb::tuple Parts(nb::handle answer, size_t size, const char* wanted) {
    if (PyTuple_Check(answer.ptr()) && nb::len(answer) == size) {
      return nb::borrow<nb::tuple>(answer);
    }
    PyErr_Format(PyExc_TypeError, "%s, not %R", wanted, answer.ptr());
    throw nb::python_error();
  }

  static std::string StateIn(const nb::tuple& parts, const char* where) {
    const nb::object first = parts[0];
    if (PyObject_CheckBuffer(first.ptr()) != 0) return Bytes(first, where);
    PyErr_Format(PyExc_TypeError, "the state that %s returns must be bytes, not %s", where,
                 Py_TYPE(first.ptr())->tp_name);
    throw nb::python_error();
  }

  // None is no token, in both directions.
  static std::any TokenIn(const nb::tuple& parts) {
    const nb::object token = parts[1];
    if (token.is_none()) return {};
    return Share(token);
  }

  static nb::object FromToken(const std::any& token) {
    const auto* const shared = std::any_cast<SharedObject>(&token);
    return shared == nullptr ? nb::none() : nb::borrow(shared->get());
  }

  template <typename Work>
  std::invoke_result_t<Work> InPython(const char* method, Work work) {
    const InterpreterVisit visit;
    if (!visit) throw RendezvousConnectionError("the Python interpreter is ending");
    const nb::gil_scoped_acquire locked;
    PendingError pending;
    try {
      return work();
    } catch (nb::python_error& raised) {
      Fail(method, raised, pending);
    }
  }

  [[noreturn]] void Fail(const char* method, nb::python_error& raised, PendingError& pending) {
    BackendFailures* const caller = BackendFailures::Here();
    const bool is_exception = raised.matches(PyExc_Exception);
    if (!is_exception && caller != nullptr) {
      pending.Keep(raised);
      throw InterruptedError(std::string("interrupted in ") + method + "()");
    }
    const nb::object value = nb::borrow(raised.value());
    const bool is_ours = IsA(value, "RendezvousError", kTorchRendezvous);
    const std::string text = is_ours ? Written(value)
                                     : "the rendezvous backend '" + name_ + "' failed in " +
                                           method + "(): " + Py_TYPE(value.ptr())->tp_name + ": " +
                                           Written(value);
    if (caller != nullptr) caller->Keep(value, text);
    const bool out_of_reach = IsA(value, "RendezvousConnectionError", kTorchRendezvous) ||
                              (!is_ours && raised.matches(PyExc_OSError));
    if (out_of_reach) throw RendezvousConnectionError(text);
    throw RendezvousStateError(text);
  }

  const std::shared_ptr<BackendReference> reference_;
  const std::string name_;
};

// --- muster's backends in Python
// ------------------------------------------------------------------

/// One thread at a time may call a backend; in Python several threads may have it.
struct SharedBackend {
  std::mutex mutex;
  std::unique_ptr<RendezvousBackend> backend;

  template <typename Work>
  auto Alone(Work work) {
    const std::lock_guard lock(mutex);
    return work(*backend);
  }
};

class BackendInPython final : public RendezvousBackend {
 public:
  explicit BackendInPython(std::shared_ptr<SharedBackend> shared) : shared_(std::move(shared)) {}

  using RendezvousBackend::SetState;
  std::string Name() const override { return shared_->backend->Name(); }
  std::optional<StoredState> GetState() override {
    return shared_->Alone([](RendezvousBackend& backend) { return backend.GetState(); });
  }
  std::optional<StoredState> SetState(std::string_view bytes, const std::any& token) override {
    return shared_->Alone(
        [&](RendezvousBackend& backend) { return backend.SetState(bytes, token); });
  }
  void Announce(std::string_view news) override {
    shared_->Alone([&](RendezvousBackend& backend) { backend.Announce(news); });
  }
  bool AwaitNews(std::string_view news, std::chrono::milliseconds time) override {
    return shared_->Alone(
        [&](RendezvousBackend& backend) { return backend.AwaitNews(news, time); });
  }

 private:
  const std::shared_ptr<SharedBackend> shared_;
};

/// The object behind Python's class.
class C10dBackend {
 public:
  explicit C10dBackend(std::unique_ptr<RendezvousBackend> backend)
      : home_(std::make_shared<SharedBackend>(), "C10dRendezvousBackend") {
    home_->backend = std::move(backend);
  }

  std::shared_ptr<SharedBackend> shared() const { return *home_; }

 private:
  AtHome<SharedBackend> home_;
};

nb::object TokenForPython(const std::any& token) {
  const auto* const text = std::any_cast<std::string>(&token);
  return text == nullptr ? nb::none() : nb::object(AsBytes(*text));
}

/// Anything but bytes was not made by this backend, and fences nothing.
std::any TokenFromPython(nb::handle given) {
  if (given.is_none()) return {};
  if (PyBytes_Check(given.ptr())) return Bytes(given, "token");
  return std::any(nullptr);
}

nb::object GetC10dState(const C10dBackend& self) {
  const auto shared = self.shared();
  const auto stored =
      Blocking([&] { return shared->Alone([](auto& backend) { return backend.GetState(); }); });
  if (!stored) return nb::none();
  return nb::make_tuple(AsBytes(stored->bytes), TokenForPython(stored->token));
}

nb::object SetC10dState(const C10dBackend& self, nb::handle state, nb::handle token) {
  const auto shared = self.shared();
  if (PyObject_CheckBuffer(state.ptr()) == 0) RaiseWrongType("state", "bytes", state);
  const std::string bytes = Bytes(state, "state");
  const std::any fence = TokenFromPython(token);
  const auto stored = Blocking(
      [&] { return shared->Alone([&](auto& backend) { return backend.SetState(bytes, fence); }); });
  if (!stored) return nb::none();
  return nb::make_tuple(AsBytes(stored->bytes), TokenForPython(stored->token), stored->was_set);
}

nb::tuple CreateBackendAndStore(nb::handle params) {
  const RendezvousParameters parameters = ParametersOf(params);
  auto made = Blocking([&] { return CreateC10dBackend(parameters); });
  return nb::make_tuple(
      nb::cast(new C10dBackend(std::move(made.first)), nb::rv_policy::take_ownership),
      WrapStore(std::move(made.second)));
}

}  // namespace

BackendFailures::BackendFailures() : outer_(std::exchange(this_threads_failures, this)) {}
BackendFailures::~BackendFailures() { this_threads_failures = outer_; }
BackendFailures* BackendFailures::Here() { return this_threads_failures; }

void BackendFailures::Keep(nb::handle raised, std::string text) {
  raised_ = nb::borrow(raised);
  text_ = std::move(text);
}

void BackendFailures::RaiseCause(const RendezvousError& error) const {
  if (PyErr_Occurred() != nullptr) throw nb::python_error();
  if (!raised_.is_valid() || text_ != error.what()) return;
  if (nb::isinstance(raised_, NativeType("RendezvousError"))) {
    PyErr_SetObject(raised_.type().ptr(), raised_.ptr());
    throw nb::python_error();
  }
  const bool out_of_reach = dynamic_cast<const RendezvousConnectionError*>(&error) != nullptr;
  const nb::object type =
      NativeType(out_of_reach ? "RendezvousConnectionError" : "RendezvousStateError");
  const nb::object surfaced = type(nb::str(text_.data(), text_.size()));
  PyException_SetCause(surfaced.ptr(), nb::object(raised_).release().ptr());
  PyErr_SetObject(type.ptr(), surfaced.ptr());
  throw nb::python_error();
}

BackendReference::~BackendReference() {
  const InterpreterVisit visit;
  if (!visit) return;  // the process ends anyway
  const nb::gil_scoped_acquire locked;
  const PendingError kept;
  Clear();
}

GivenBackend BackendOf(nb::handle given) {
  if (nb::isinstance<C10dBackend>(given)) {
    return {std::make_unique<BackendInPython>(nb::cast<const C10dBackend&>(given).shared()),
            nullptr};
  }
  for (const char* const needed : {"name", "get_state", "set_state"}) {
    if (!nb::hasattr(given, needed)) RaiseWrongType("backend", kWantedBackend, given);
  }
  auto reference = std::make_shared<BackendReference>(nb::borrow(given));
  std::string name = Text(given.attr("name"), "backend.name");
  return {std::make_unique<PythonBackend>(reference, std::move(name)), reference};
}

void BindRendezvousBackends(nb::module_& module) {
  nb::class_<C10dBackend>(module, "NativeC10dBackend")
      .def(
          "__init__",
          [](C10dBackend* self, nb::handle store, nb::handle run_id) {
            const std::shared_ptr<Store> its_store = StoreOf(store, "store");
            const std::string run = Text(run_id, "run_id");
            auto made = Blocking([&] { return CreateC10dBackend(its_store, run); });
            new (self) C10dBackend(std::move(made));
          },
          nb::arg("store").none(), nb::arg("run_id").none())
      .def("get_state", &GetC10dState)
      .def("set_state", &SetC10dState, nb::arg("state").none(), nb::arg("token").none());
  module.def("create_c10d_backend", &CreateBackendAndStore, nb::arg("params").none());
}

}  // namespace muster::python
