// muster.Store: the operations that all kinds of stores have.
#include <limits>
#include <string>
#include <vector>

#include "arguments.h"
#include "blocking.h"
#include "python_store.h"
#include "store_objects.h"
#include "stores.h"

namespace muster::python {

namespace {

using Object = const StoreObject&;

/// The store whose `method` is called. A class written in Python must define the method itself.
std::shared_ptr<Store> Native(Object self, const char* method) {
  const std::shared_ptr<Store>& store = self.store();
  if (store) return store;
  const std::string type = Py_TYPE(nb::find(self).ptr())->tp_name;
  PyErr_SetString(
      PyExc_NotImplementedError,
      (type + " has no " + method + "(): a subclass of muster.Store defines it").c_str());
  throw nb::python_error();
}

void Init(nb::pointer_and_handle<StoreObject> self) {
  if (self.h.type().is(nb::type<StoreObject>())) {
    PyErr_SetString(PyExc_TypeError,
                    "Store cannot be made itself: make a TCPStore, FileStore, HashStore, "
                    "PrefixStore or EtcdStore, or derive a class from it");
    throw nb::python_error();
  }
  new (self.p) StoreObject();
}

// --- Values --------------------------------------------------------------------------------------

void Set(Object self, nb::handle key, nb::handle value) {
  const std::string its_key = Bytes(key, "key");
  const std::string its_value = Bytes(value, "value");
  Blocking([&, store = Native(self, "set")] { store->Set(its_key, its_value); });
}

nb::bytes Get(Object self, nb::handle key) {
  const std::string its_key = Bytes(key, "key");
  return ToBytes(Blocking([&, store = Native(self, "get")] { return store->Get(its_key); }));
}

int64_t Add(Object self, nb::handle key, nb::handle value) {
  const std::string its_key = Bytes(key, "key");
  const int64_t delta = Integer(value, "value");
  return Blocking([&, store = Native(self, "add")] { return store->Add(its_key, delta); });
}

nb::bytes CompareSet(Object self, nb::handle key, nb::handle expected_value,
                     nb::handle desired_value) {
  const std::string its_key = Bytes(key, "key");
  const std::string expected = Bytes(expected_value, "expected_value");
  const std::string desired = Bytes(desired_value, "desired_value");
  return ToBytes(Blocking([&, store = Native(self, "compare_set")] {
    return store->CompareSet(its_key, expected, desired);
  }));
}

bool Check(Object self, nb::handle keys) {
  const std::vector<std::string> its_keys = ManyBytes(keys, "keys");
  return Blocking([&, store = Native(self, "check")] { return store->Check(its_keys); });
}

void Wait(Object self, nb::handle keys, nb::handle timeout) {
  const std::vector<std::string> its_keys = ManyBytes(keys, "keys");
  if (timeout.is_none()) {
    Blocking([&, store = Native(self, "wait")] { store->Wait(its_keys); });
  } else {
    const milliseconds time = Time(timeout, "timeout");
    Blocking([&, store = Native(self, "wait")] { store->Wait(its_keys, time); });
  }
}

bool DeleteKey(Object self, nb::handle key) {
  const std::string its_key = Bytes(key, "key");
  return Blocking([&, store = Native(self, "delete_key")] { return store->DeleteKey(its_key); });
}

int64_t NumKeys(Object self) {
  return Blocking([store = Native(self, "num_keys")] { return store->GetNumKeys(); });
}

nb::list ListKeys(Object self) {
  nb::list keys;
  for (const std::string& key :
       Blocking([store = Native(self, "list_keys")] { return store->ListKeys(); })) {
    keys.append(ToText(key));
  }
  return keys;
}

// --- Operations of classes written in Python, made from their own methods ------------------------

/// `native` for native stores, `general` (muster::Store's own way) for a class written in Python.
template <typename OnNative, typename InGeneral>
auto NativeOrGeneral(Object self, OnNative&& native, InGeneral&& general) {
  if (const std::shared_ptr<Store>& its = self.store()) {
    return Blocking([&, store = its] { return native(*store); });
  }
  const auto store = std::make_shared<PythonStore>(nb::borrow(nb::find(self)));
  return Blocking([&] { return general(*store); });
}

nb::list MultiGet(Object self, nb::handle keys) {
  const std::vector<std::string> its_keys = ManyBytes(keys, "keys");
  return ToList(NativeOrGeneral(
      self, [&](Store& store) { return store.MultiGet(its_keys); },
      [&](PythonStore& store) { return store.Store::MultiGet(its_keys); }));
}

void MultiSet(Object self, nb::handle keys, nb::handle values) {
  const std::vector<std::string> its_keys = ManyBytes(keys, "keys");
  const std::vector<std::string> its_values = ManyBytes(values, "values");
  if (its_keys.size() != its_values.size()) {
    const std::string message = "values must be as many as keys: there are " +
                                std::to_string(its_keys.size()) + " keys and " +
                                std::to_string(its_values.size()) + " values";
    throw nb::value_error(message.c_str());
  }
  NativeOrGeneral(
      self, [&](Store& store) { store.MultiSet(its_keys, its_values); },
      [&](PythonStore& store) { store.Store::MultiSet(its_keys, its_values); });
}

nb::object Timeout(Object self) {
  const std::shared_ptr<Store>& its = self.store();
  if (!its) return ToTimedelta(self.python_timeout.load());
  return ToTimedelta(Blocking([store = its] { return store->Timeout(); }));
}

void Barrier(Object self, nb::handle key, nb::handle world_size, nb::handle timeout) {
  const std::string its_key = Bytes(key, "key");
  const int64_t size = Integer(world_size, "world_size", 1);
  const milliseconds time =
      Time(timeout.is_none() ? Timeout(self) : nb::borrow(timeout), "timeout");
  NativeOrGeneral(
      self, [&](Store& store) { store.Barrier(its_key, size, time); },
      [&](PythonStore& store) { store.Store::Barrier(its_key, size, time); });
}

/// Appends with compare_set alone, and repeats until no other write interferes.
void AppendByComparing(Store& store, const std::string& key, const std::string& suffix) {
  std::string present;
  for (;;) {
    const std::string wanted = present + suffix;
    const std::string stored = store.CompareSet(key, present, wanted);
    if (stored == wanted) return;
    // compare_set returns the expected value if the key was deleted meanwhile.
    present = stored == present ? std::string() : stored;
  }
}

void Append(Object self, nb::handle key, nb::handle value) {
  const std::string its_key = Bytes(key, "key");
  const std::string suffix = Bytes(value, "value");
  NativeOrGeneral(
      self, [&](Store& store) { store.Append(its_key, suffix); },
      [&](PythonStore& store) { AppendByComparing(store, its_key, suffix); });
}

bool HasExtendedApi(Object self) {
  const std::shared_ptr<Store>& its = self.store();
  return its && Blocking([store = its] { return store->HasExtendedApi(); });
}

void SetTimeout(StoreObject& self, nb::handle timeout) {
  const milliseconds time = Time(timeout, "timeout");
  if (const std::shared_ptr<Store>& its = self.store()) {
    Blocking([&, store = its] { store->SetTimeout(time); });
  } else {
    self.python_timeout = time;
  }
}

// --- Queues, and the rest ------------------------------------------------------------------------

void QueuePush(Object self, nb::handle key, nb::handle value) {
  const std::string its_key = Bytes(key, "key");
  const std::string its_value = Bytes(value, "value");
  Blocking([&, store = Native(self, "queue_push")] { store->QueuePush(its_key, its_value); });
}

nb::bytes QueuePop(Object self, nb::handle key, nb::handle block) {
  const std::string its_key = Bytes(key, "key");
  const PopMode mode = Flag(block, "block") ? PopMode::kWait : PopMode::kDoNotWait;
  return ToBytes(
      Blocking([&, store = Native(self, "queue_pop")] { return store->QueuePop(its_key, mode); }));
}

int64_t QueueLen(Object self, nb::handle key) {
  const std::string its_key = Bytes(key, "key");
  return Blocking([&, store = Native(self, "queue_len")] { return store->QueueLen(its_key); });
}

nb::object Clone(Object self) {
  return WrapStore(Blocking([store = Native(self, "clone")] { return store->Clone(); }));
}

void BindValues(nb::class_<StoreObject>& store) {
  using nb::sig;
  store.def("set", &Set, Any("key"), Any("value"),
            sig("def set(self, key: str | bytes, value: str | bytes) -> None"),
            "Creates or overwrites a value, and wakes all waiters of the key.");
  store.def("get", &Get, Any("key"), sig("def get(self, key: str | bytes) -> bytes"),
            "Waits for the key, then returns its value.\n\n"
            "Raises StoreTimeoutError (a DistStoreError) if it does not come within `timeout`.");
  store.def(
      "add", &Add, Any("key"), Any("value"),
      sig("def add(self, key: str | bytes, value: int) -> int"),
      "Adds to a counter, atomically, and returns the sum. A key that is not there counts as\n"
      "0; the counter is kept as decimal text.");
  store.def("compare_set", &CompareSet, Any("key"), Any("expected_value"), Any("desired_value"),
            sig("def compare_set(self, key: str | bytes, expected_value: str | bytes, "
                "desired_value: str | bytes) -> bytes"),
            "If the value is `expected_value`, it becomes `desired_value`; an empty expectation\n"
            "also means a key that is not there. Returns the value afterwards. If there is none,\n"
            "because another one was expected, `expected_value` itself is returned.");
  store.def("check", &Check, Any("keys"),
            sig("def check(self, keys: collections.abc.Sequence[str | bytes]) -> bool"),
            "Whether all keys are there. Does not wait.");
  store.def("wait", &Wait, Any("keys"), Any("timeout") = nb::none(),
            sig("def wait(self, keys: collections.abc.Sequence[str | bytes], "
                "timeout: datetime.timedelta | float | None = None) -> None"),
            "Waits until all keys are there: for at most `timeout` (a timedelta or seconds; zero:\n"
            "without limit), or the store's own. Raises StoreTimeoutError after that.");
  store.def("delete_key", &DeleteKey, Any("key"),
            sig("def delete_key(self, key: str | bytes) -> bool"),
            "Removes a value. Returns whether there was one; a FileStore always returns True.");
  store.def("num_keys", &NumKeys, sig("def num_keys(self) -> int"),
            "The number of values in the whole store, including some of its own.");
  store.def("list_keys", &ListKeys, sig("def list_keys(self) -> list[str]"),
            "All keys that have values, in no particular order.");
  store.def("append", &Append, Any("key"), Any("value"),
            sig("def append(self, key: str | bytes, value: str | bytes) -> None"),
            "Adds to the end of a value, or creates it.");
  store.def("multi_get", &MultiGet, Any("keys"),
            sig("def multi_get(self, keys: collections.abc.Sequence[str | bytes]) -> list[bytes]"),
            "Waits for all keys, then returns their values in the order given.");
  store.def("multi_set", &MultiSet, Any("keys"), Any("values"),
            sig("def multi_set(self, keys: collections.abc.Sequence[str | bytes], "
                "values: collections.abc.Sequence[str | bytes]) -> None"),
            "Sets each key to the value at the same position.");
}

void BindRest(nb::class_<StoreObject>& store) {
  using nb::sig;
  store.def("queue_push", &QueuePush, Any("key"), Any("value"),
            sig("def queue_push(self, key: str | bytes, value: str | bytes) -> None"),
            "Appends an element to a queue. Queues are separate from values; a FileStore has\n"
            "none: NotImplementedError.");
  store.def("queue_pop", &QueuePop, Any("key"), Any("block") = true,
            sig("def queue_pop(self, key: str | bytes, block: bool = True) -> bytes"),
            "Takes the oldest element of a queue. Waits for one; with block=False raises\n"
            "QueueEmptyError instead.");
  store.def("queue_len", &QueueLen, Any("key"), sig("def queue_len(self, key: str | bytes) -> int"),
            "How many elements a queue has.");
  store.def("barrier", &Barrier, Any("key"), Any("world_size"), Any("timeout") = nb::none(),
            sig("def barrier(self, key: str | bytes, world_size: int, "
                "timeout: datetime.timedelta | float | None = None) -> None"),
            "Returns when `world_size` participants have called it with this key; a key works\n"
            "once. Raises StoreTimeoutError if they do not come within `timeout`, or the store's.");
  store.def("clone", &Clone, sig("def clone(self) -> Store"),
            "Another handle on the same data, for another thread: a call that waits delays the\n"
            "other calls on the same object.");
  store.def("has_extended_api", &HasExtendedApi, sig("def has_extended_api(self) -> bool"),
            "Whether append, multi_get and multi_set are one operation each. They work in any\n"
            "case.");
  store.def("set_timeout", &SetTimeout, Any("timeout"),
            sig("def set_timeout(self, timeout: datetime.timedelta | float) -> None"),
            "Sets `timeout`: a timedelta, or seconds. Zero: without limit.");
  store.def_prop_ro("timeout", &Timeout,
                    nb::for_getter(sig("def timeout(self) -> datetime.timedelta")),
                    "How long get, multi_get and queue_pop may wait; the default of wait and\n"
                    "barrier.");
}

}  // namespace

void BindStoreMethods(nb::module_& module) {
  nb::class_<StoreObject> store(
      module, "Store",
      "A map from keys to values that the processes of a group share to find each other.\n\n"
      "Keys and values are str or bytes; values come back as bytes. Calls that wait let other\n"
      "threads run, and end with KeyboardInterrupt on Ctrl-C; the store can be used afterwards.\n"
      "Several threads may use one object, which runs one call at a time: see clone().\n\n"
      "Derived classes can be used wherever a Store is expected. They define set, get, add,\n"
      "compare_set, check, wait, delete_key, and other operations that they need. The base\n"
      "implements append, multi_get, multi_set, barrier, timeout and set_timeout with these.\n\n"
      "Torch's stores can be used wherever a Store is expected, too.");
  store.def("__init__", &Init, nb::sig("def __init__(self) -> None"));
  BindValues(store);
  BindRest(store);
}

}  // namespace muster::python
