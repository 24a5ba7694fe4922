// Options of the public face, as the port of etcd takes them.
#pragma once

#include "etcd/etcd_port.h"
#include "muster/etcd.h"

namespace muster {

EtcdAccess AccessOf(const EtcdOptions& options);

}  // namespace muster
