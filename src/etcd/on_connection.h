// The store and the rendezvous handler in etcd, on a given connection.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string_view>

#include "etcd/calls.h"
#include "muster/etcd_rendezvous.h"
#include "muster/store.h"

namespace muster {

/// A store whose operations are transactions and watches. Any thread, any number of calls at a
/// time. All keys are written under `lease`; 0: without one. Throws if etcd does not answer, or
/// does not permit reading.
std::shared_ptr<Store> OpenEtcdStore(std::shared_ptr<EtcdCalls> calls, std::string_view prefix,
                                     std::chrono::milliseconds timeout, int64_t lease = 0);

/// The handler of the backend "etcd". std::invalid_argument for invalid options.
RendezvousHandlerPtr CreateEtcdHandler(EtcdRendezvousOptions options, EtcdConnector connect,
                                       System& system);

}  // namespace muster
