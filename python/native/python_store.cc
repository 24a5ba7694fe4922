#include "python_store.h"

#include <string>
#include <vector>

#include "arguments.h"
#include "errors.h"
#include "store_objects.h"
#include "stores.h"

namespace muster::python {

namespace {

nb::object Key(std::string_view key) { return ToText(std::string(key)); }
nb::bytes Value(std::string_view value) { return nb::bytes(value.data(), value.size()); }

nb::list Keys(const std::vector<std::string>& keys) {
  nb::list list;
  for (const std::string& key : keys) list.append(ToText(key));
  return list;
}

/// Calls `use` with the object and the GIL. Store errors are rethrown as C++ store errors, other
/// exceptions as nb::python_error. An exception that a signal handler raised before takes
/// precedence.
template <typename Use>
auto WithPython(PyObject* object, Use&& use) {
  const InterpreterVisit visit;
  if (!visit) throw StoreError("Python ends: its stores cannot be used any more");
  const nb::gil_scoped_acquire locked;
  PendingError kept;
  try {
    return use(nb::handle(object));
  } catch (const nb::python_error& raised) {
    ThrowAsStoreError(raised);
    throw;
  }
}

/// For messages about a method's result: "MyStore.get()".
std::string ResultOf(nb::handle object, const char* method) {
  return "what " + std::string(Py_TYPE(object.ptr())->tp_name) + "." + method + "() returns";
}

template <typename... Arguments>
std::string CallForBytes(PyObject* its, const char* method, const Arguments&... arguments) {
  return WithPython(its, [&](nb::handle object) {
    return Bytes(object.attr(method)(arguments()...), ResultOf(object, method).c_str());
  });
}

template <typename... Arguments>
int64_t CallForInteger(PyObject* its, const char* method, const Arguments&... arguments) {
  return WithPython(its, [&](nb::handle object) {
    return Integer(object.attr(method)(arguments()...), ResultOf(object, method).c_str());
  });
}

template <typename... Arguments>
bool CallForFlag(PyObject* its, const char* method, const Arguments&... arguments) {
  return WithPython(its, [&](nb::handle object) {
    return Flag(object.attr(method)(arguments()...), ResultOf(object, method).c_str());
  });
}

template <typename... Arguments>
std::vector<std::string> CallForList(PyObject* its, const char* method,
                                     const Arguments&... arguments) {
  return WithPython(its, [&](nb::handle object) {
    return ManyBytes(object.attr(method)(arguments()...), ResultOf(object, method).c_str());
  });
}

template <typename... Arguments>
void Call(PyObject* its, const char* method, const Arguments&... arguments) {
  WithPython(its, [&](nb::handle object) { object.attr(method)(arguments()...); });
}

}  // namespace

// The arguments are functions: they make Python's objects once the lock is held.

void PythonStore::Set(std::string_view key, std::string_view value) {
  Call(
      object_.get(), "set", [&] { return Key(key); }, [&] { return Value(value); });
}

std::string PythonStore::Get(std::string_view key) {
  return CallForBytes(object_.get(), "get", [&] { return Key(key); });
}

int64_t PythonStore::Add(std::string_view key, int64_t delta) {
  return CallForInteger(
      object_.get(), "add", [&] { return Key(key); }, [&] { return delta; });
}

std::string PythonStore::CompareSet(std::string_view key, std::string_view expected,
                                    std::string_view desired) {
  return CallForBytes(
      object_.get(), "compare_set", [&] { return Key(key); }, [&] { return Value(expected); },
      [&] { return Value(desired); });
}

bool PythonStore::Check(const std::vector<std::string>& keys) {
  return CallForFlag(object_.get(), "check", [&] { return Keys(keys); });
}

void PythonStore::Wait(const std::vector<std::string>& keys, milliseconds timeout) {
  Call(
      object_.get(), "wait", [&] { return Keys(keys); }, [&] { return ToTimedelta(timeout); });
}

bool PythonStore::DeleteKey(std::string_view key) {
  return CallForFlag(object_.get(), "delete_key", [&] { return Key(key); });
}

int64_t PythonStore::GetNumKeys() { return CallForInteger(object_.get(), "num_keys"); }

std::vector<std::string> PythonStore::ListKeys() { return CallForList(object_.get(), "list_keys"); }

void PythonStore::Append(std::string_view key, std::string_view suffix) {
  Call(
      object_.get(), "append", [&] { return Key(key); }, [&] { return Value(suffix); });
}

std::vector<std::string> PythonStore::MultiGet(const std::vector<std::string>& keys) {
  return CallForList(object_.get(), "multi_get", [&] { return Keys(keys); });
}

void PythonStore::MultiSet(const std::vector<std::string>& keys,
                           const std::vector<std::string>& values) {
  Call(
      object_.get(), "multi_set", [&] { return Keys(keys); }, [&] { return ToList(values); });
}

bool PythonStore::HasExtendedApi() const { return CallForFlag(object_.get(), "has_extended_api"); }

void PythonStore::QueuePush(std::string_view key, std::string_view value) {
  Call(
      object_.get(), "queue_push", [&] { return Key(key); }, [&] { return Value(value); });
}

std::string PythonStore::QueuePop(std::string_view key, PopMode mode) {
  return CallForBytes(
      object_.get(), "queue_pop", [&] { return Key(key); }, [&] { return mode == PopMode::kWait; });
}

int64_t PythonStore::QueueLen(std::string_view key) {
  return CallForInteger(object_.get(), "queue_len", [&] { return Key(key); });
}

void PythonStore::Barrier(std::string_view key, int64_t world_size, milliseconds timeout) {
  Call(
      object_.get(), "barrier", [&] { return Key(key); }, [&] { return world_size; },
      [&] { return ToTimedelta(timeout); });
}

std::shared_ptr<Store> PythonStore::Clone() {
  return WithPython(object_.get(), [](nb::handle object) {
    return StoreOf(object.attr("clone")(), ResultOf(object, "clone").c_str());
  });
}

milliseconds PythonStore::Timeout() const {
  return WithPython(object_.get(), [](nb::handle object) {
    const std::string its = std::string(Py_TYPE(object.ptr())->tp_name) + ".timeout";
    return Time(object.attr("timeout"), its.c_str());
  });
}

void PythonStore::SetTimeout(milliseconds timeout) {
  Call(object_.get(), "set_timeout", [&] { return ToTimedelta(timeout); });
}

}  // namespace muster::python
