#include "etcd_plugin.h"

#include "muster/etcd_store.h"
#include "muster/etcd_v2_rendezvous.h"

extern "C" const muster::python::EtcdPlugin muster_etcd_plugin = {
    .enable = &muster::EnableEtcd,
    .open_store = [](const muster::EtcdOptions& options) -> std::shared_ptr<muster::Store> {
      return std::make_shared<muster::EtcdStore>(options);
    },
};
