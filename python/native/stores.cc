#include "stores.h"

#include <utility>

#include "arguments.h"
#include "bindings.h"
#include "errors.h"
#include "muster/etcd_store.h"
#include "muster/file_store.h"
#include "muster/hash_store.h"
#include "muster/prefix_store.h"
#include "muster/tcp_store.h"
#include "python_store.h"
#include "store_objects.h"

namespace muster::python {

namespace {

template <typename Kind, typename... Arguments>
nb::object Make(Arguments&&... arguments) {
  return nb::cast(new Kind(std::forward<Arguments>(arguments)...), nb::rv_policy::take_ownership);
}

/// Torch's stores have the methods of muster's.
bool IsTorchStore(nb::handle given) {
  const nb::object type = TorchType(kTorchStores, "Store");
  return !type.is_none() && nb::isinstance(given, type);
}

bool IsReady(nb::handle given, const char* argument) {
  if (!nb::isinstance<StoreObject>(given)) RaiseWrongType(argument, "a muster.Store", given);
  return nb::inst_ready(given);
}

const StoreObject* Ours(nb::handle object) {
  return nb::isinstance<StoreObject>(object) ? &nb::cast<const StoreObject&>(object) : nullptr;
}

/// The store that a PrefixStore around it uses.
std::shared_ptr<Store> Inner(nb::handle object) {
  const StoreObject* const ours = Ours(object);
  return ours != nullptr && ours->store() ? ours->store() : PythonStore::Borrowing(object);
}

InFork InForkOf(nb::handle object) {
  const StoreObject* const ours = Ours(object);
  return ours == nullptr ? InFork::kUsable : ours->in_fork();
}

}  // namespace

nb::object WrapStore(std::shared_ptr<Store> store) {
  if (!store) return nb::none();
  if (const auto* const its = dynamic_cast<PythonStore*>(store.get())) return its->object();
  if (const auto* const its = dynamic_cast<TcpStore*>(store.get())) {
    return Make<TcpStoreObject>(store, its->host(), its->port(), its->is_server());
  }
  if (const auto* const its = dynamic_cast<FileStore*>(store.get())) {
    return Make<FileStoreObject>(store, its->path());
  }
  if (dynamic_cast<HashStore*>(store.get()) != nullptr) return Make<HashStoreObject>(store);
  if (const auto* const its = dynamic_cast<PrefixStore*>(store.get())) {
    return Make<PrefixStoreObject>(its->prefix(), WrapStore(its->underlying()));
  }
  if (auto prefix = EtcdStorePrefix(*store)) {
    return Make<EtcdStoreObject>(store, *std::move(prefix));
  }
  return Make<StoreObject>(std::move(store), "Store");
}

PrefixStoreObject::PrefixStoreObject(std::string its_prefix, nb::object its_inner)
    : StoreObject(std::make_shared<PrefixStore>(its_prefix, Inner(its_inner)), "PrefixStore",
                  InForkOf(its_inner)),
      prefix(std::move(its_prefix)),
      inner(std::move(its_inner)) {}

std::shared_ptr<Store> StoreOf(nb::handle given, const char* argument) {
  if (!nb::isinstance<StoreObject>(given) && IsTorchStore(given)) {
    return std::make_shared<PythonStore>(nb::borrow(given));
  }
  if (!IsReady(given, argument)) {
    const std::string message = std::string(argument) + " must be a muster.Store that was made: " +
                                Py_TYPE(given.ptr())->tp_name +
                                ".__init__() has not called super().__init__()";
    PyErr_SetString(PyExc_TypeError, message.c_str());
    throw nb::python_error();
  }
  const auto& object = nb::cast<const StoreObject&>(given);
  const std::shared_ptr<Store>& native = object.store();
  if (!native) return std::make_shared<PythonStore>(nb::borrow(given));
  const auto* const prefixed = dynamic_cast<const PrefixStore*>(native.get());
  if (prefixed == nullptr) return native;
  const std::shared_ptr<Store> innermost = prefixed->underlying_non_prefix();
  if (dynamic_cast<const PythonStore*>(innermost.get()) == nullptr) return native;
  const auto& its = static_cast<const PrefixStoreObject&>(object);
  return std::make_shared<PrefixStore>(its.prefix, StoreOf(its.inner, argument));
}

nb::bytes ToBytes(const std::string& value) { return nb::bytes(value.data(), value.size()); }

nb::object ToText(const std::string& key) {
  nb::object text = nb::steal(
      PyUnicode_DecodeUTF8(key.data(), static_cast<Py_ssize_t>(key.size()), "surrogateescape"));
  if (!text.is_valid()) throw nb::python_error();
  return text;
}

nb::object ToTimedelta(milliseconds time) {
  return nb::module_::import_("datetime").attr("timedelta")(0, 0, 0, time.count());
}

nb::list ToList(const std::vector<std::string>& values) {
  nb::list list;
  for (const std::string& value : values) list.append(ToBytes(value));
  return list;
}

void BindStores(nb::module_& module) {
  BindStoreMethods(module);
  BindStoreKinds(module);
  BindStoreServer(module);
  BindStoreUtilities(module);
}

}  // namespace muster::python
