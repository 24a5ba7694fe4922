// The content of libmuster_etcd.so: the parts of muster that need gRPC, behind one symbol.
#pragma once

#include <memory>

#include "muster/etcd.h"
#include "muster/store.h"

namespace muster::python {

struct EtcdPlugin {
  /// From now on the registry makes the backend "etcd", also under its name "etcd-v2".
  void (*enable)();
  std::shared_ptr<Store> (*open_store)(const EtcdOptions& options);
};

inline constexpr const char* kEtcdPluginSymbol = "muster_etcd_plugin";

/// Loads it, the first time. nb::python_error (ImportError) names what is missing.
const EtcdPlugin& LoadEtcd();

}  // namespace muster::python
