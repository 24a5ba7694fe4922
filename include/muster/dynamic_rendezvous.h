// DynamicRendezvousHandler: nodes come and go; all of them agree through one cell of a backend.
//
// Works in one rendezvous with PyTorch's handlers (tested: 2.13, 2.15): same state, same keys.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "muster/rendezvous_backend.h"
#include "muster/rendezvous_events.h"
#include "muster/rendezvous_handler.h"
#include "muster/rendezvous_parameters.h"

namespace muster {

/// The cost of agreement: the figures behind "why is this slow?".
struct RendezvousCost {
  int64_t reads = 0;   ///< Of the backend.
  int64_t writes = 0;  ///< Attempts.
  int64_t lost = 0;    ///< Attempts that lost to another node's write.
};

/// IsHost(): whether its store is served here. Leave(): heartbeats end, and the others see
/// immediately that this node has left. Shutdown() closes the rendezvous for all.
class DynamicRendezvousHandler : public RendezvousHandler {
 public:
  virtual const RendezvousSettings& settings() const = 0;
  virtual RendezvousCost cost() const = 0;
};

/// NextRendezvous() returns `store` with a prefix for each round. `local_addr`: under which others
/// reach this machine; empty: its fully qualified name. `events` null: the process's sink.
/// std::invalid_argument for impossible settings, an unusable address, and for null.
std::unique_ptr<DynamicRendezvousHandler> CreateDynamicHandler(
    RendezvousSettings settings, std::shared_ptr<Store> store,
    std::unique_ptr<RendezvousBackend> backend, const std::string& local_addr = "",
    RendezvousEventSink events = {});

/// Settings and node from the parameters. A failure is reported as an event, too.
std::unique_ptr<DynamicRendezvousHandler> CreateDynamicHandler(
    std::shared_ptr<Store> store, std::unique_ptr<RendezvousBackend> backend,
    const RendezvousParameters& parameters);

}  // namespace muster
