// The C++ objects behind the Python classes of stores.
#pragma once

#include <nanobind/nanobind.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "birthplace.h"
#include "muster/store.h"

namespace muster::python {

namespace nb = nanobind;

/// muster.Store, and what all its kinds have in common.
class StoreObject {
 public:
  /// For a class written in Python: it has no native store.
  StoreObject() : store_(nullptr, "Store", InFork::kUsable) {}
  StoreObject(std::shared_ptr<Store> store, std::string what, InFork in_fork = InFork::kRefused)
      : store_(std::move(store), std::move(what), in_fork) {}
  virtual ~StoreObject() = default;
  StoreObject(const StoreObject&) = delete;
  StoreObject& operator=(const StoreObject&) = delete;

  /// Null for a class written in Python. std::runtime_error in a fork, for some kinds.
  const std::shared_ptr<Store>& store() const { return *store_; }
  InFork in_fork() const { return store_.in_fork(); }
  void Drop() { store_.Drop(); }

  /// For a class written in Python, which need not have a timeout of its own.
  std::atomic<milliseconds> python_timeout = kDefaultStoreTimeout;

 private:
  AtHome<Store> store_;
};

struct TcpStoreObject : StoreObject {
  TcpStoreObject(std::shared_ptr<Store> store, std::string its_host, uint16_t its_port,
                 bool is_server, bool wants_libuv = true)
      : StoreObject(std::move(store), "TCPStore"),
        host(std::move(its_host)),
        port(its_port),
        is_master(is_server),
        use_libuv(wants_libuv) {}

  const std::string host;
  const uint16_t port;
  const bool is_master;
  const bool use_libuv;  ///< The argument; there is one kind of server.
};

struct FileStoreObject : StoreObject {
  // It opens its file again for each call. A copy in a fork does not count as a user.
  FileStoreObject(std::shared_ptr<Store> store, std::string its_path)
      : StoreObject(std::move(store), "FileStore", InFork::kUsable), path(std::move(its_path)) {}

  const std::string path;
};

struct HashStoreObject : StoreObject {
  explicit HashStoreObject(std::shared_ptr<Store> store)
      : StoreObject(std::move(store), "HashStore", InFork::kUsable) {}
};

/// The inner store is kept as a Python object, too: it is the object that was given, and Python's
/// collector must see it. A class written in Python is kept by that reference alone; StoreOf()
/// gives others a store that keeps it.
struct PrefixStoreObject : StoreObject {
  PrefixStoreObject(std::string its_prefix, nb::object its_inner);

  const std::string prefix;
  nb::object inner;
};

struct EtcdStoreObject : StoreObject {
  EtcdStoreObject(std::shared_ptr<Store> store, std::string its_prefix)
      : StoreObject(std::move(store), "EtcdStore"), prefix(std::move(its_prefix)) {}

  const std::string prefix;
};

/// The parts of BindStores(), in this order.
void BindStoreMethods(nb::module_& module);
void BindStoreKinds(nb::module_& module);
void BindStoreServer(nb::module_& module);
void BindStoreUtilities(nb::module_& module);

/// b'...' of a value.
nb::bytes ToBytes(const std::string& value);
/// A key as str; bytes that are not UTF-8 become surrogates, which every function accepts.
nb::object ToText(const std::string& key);
/// datetime.timedelta.
nb::object ToTimedelta(milliseconds time);
/// [b'...', ...]
nb::list ToList(const std::vector<std::string>& values);

}  // namespace muster::python
