// Options of the public face, as the port of etcd takes them.
#pragma once

#include "muster/etcd.h"
#include "ports/etcd.h"

namespace muster {

EtcdAccess AccessOf(const EtcdOptions& options);

}  // namespace muster
