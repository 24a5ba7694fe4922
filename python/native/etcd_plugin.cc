#include "etcd_plugin.h"

#include "muster/etcd_rendezvous.h"
#include "muster/etcd_store.h"

namespace {

std::shared_ptr<muster::Store> OpenStore(const muster::EtcdOptions& options) {
  return std::make_shared<muster::EtcdStore>(options);
}

std::optional<std::string> StorePrefix(const muster::Store& store) {
  const auto* const its = dynamic_cast<const muster::EtcdStore*>(&store);
  return its == nullptr ? std::nullopt : std::optional(its->prefix());
}

}  // namespace

extern "C" {
extern const muster::python::EtcdPlugin muster_etcd_plugin;
const muster::python::EtcdPlugin muster_etcd_plugin = {
    .enable = &muster::EnableEtcd,
    .open_store = &OpenStore,
    .store_prefix = &StorePrefix,
};
}  // extern "C"
