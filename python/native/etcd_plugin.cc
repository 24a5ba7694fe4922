#include "etcd_plugin.h"

#include "muster/etcd_rendezvous.h"
#include "muster/etcd_store.h"

extern "C" {
extern const muster::python::EtcdPlugin muster_etcd_plugin;
const muster::python::EtcdPlugin muster_etcd_plugin = {
    .enable = &muster::EnableEtcd,
    .open_store = &muster::OpenEtcdStore,
};
}  // extern "C"
