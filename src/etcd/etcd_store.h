// A store's operations as transactions and watches of etcd. Any thread, any number of calls at a
// time.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string_view>

#include "etcd/calls.h"
#include "muster/store.h"

namespace muster {

/// A store on a shared connection. All keys are written under `lease`; 0: without one. Throws if
/// etcd does not answer, or does not permit reading.
std::shared_ptr<Store> OpenEtcdStore(std::shared_ptr<EtcdCalls> calls, std::string_view prefix,
                                     std::chrono::milliseconds timeout, int64_t lease = 0);

}  // namespace muster
