// Stores in an etcd cluster (v3), which survive the loss of any machine of the job.
//
// Every operation is one transaction of etcd, or a loop of them that ends when no other client was
// faster; waiting is a watch. The keys have a prefix, and are readable with etcdctl:
// docs/internals/etcd.md.
#pragma once

#include <optional>

#include "muster/etcd.h"
#include "muster/store.h"

namespace muster {

/// Connects. options.timeout limits that, and is the store's Timeout() afterwards; the default
/// prefix of its keys is "/muster/store". NetworkError if no endpoint answers;
/// std::invalid_argument for invalid options, or if etcd refuses access. In the component
/// muster::etcd.
///
/// Unlike other stores, one object serves many threads at a time; they do not block each other, and
/// a clone shares the connection. MultiGet() and MultiSet() are atomic for up to 128 keys; more are
/// read, or set, 128 at a time.
///
/// Calls to a cluster that is out of reach are repeated until Timeout(). NetworkError: it stayed
/// out of reach; or (immediately) it is unknown whether a write happened, as the message then says.
/// The store can be used afterwards. std::invalid_argument also for requests that etcd refuses:
/// above 1.5 MiB, with a wrong password, or without permission for the key.
std::shared_ptr<Store> OpenEtcdStore(const EtcdOptions& options);

/// The prefix of all keys of a store in etcd; nullopt: it is another store.
std::optional<std::string> EtcdStorePrefix(const Store& store);

}  // namespace muster
