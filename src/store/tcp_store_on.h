// A TcpStore in a simulated process instead of this one. It cannot serve there.
#pragma once

#include <memory>
#include <string>

#include "muster/tcp_store.h"
#include "os/ports/system.h"

namespace muster {

/// What the constructor of TcpStore does.
std::shared_ptr<TcpStore> OpenTcpStore(std::string host, const TcpStoreOptions& options,
                                       System& system);

}  // namespace muster
