// The address of the workers' store: in every round, rank 0 serves a store and publishes its
// address under the round's prefix, and the other nodes read it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "muster/rendezvous_handler.h"
#include "os/ports/system.h"
#include "rendezvous/core/node.h"

namespace muster {

class Bootstrap {
 public:
  /// `prefix_of` returns the prefix of a round's keys in `store`.
  Bootstrap(std::shared_ptr<Store> store, std::function<std::string(int64_t)> prefix_of,
            std::string local_addr, System& around);

  /// Whether workers use the agent's store: unless TORCH_DISABLE_SHARE_RDZV_TCP_STORE is 1.
  static bool IsShared();

  /// Replaces the connection to the store.
  void UseStore(std::shared_ptr<Store> store) { store_ = std::move(store); }

  /// Blocks until the round's rank 0, which is `first` if that is known, has published. Throws
  /// RendezvousTimeoutError after the store's timeout, and what the store throws.
  RendezvousStoreInfo Of(int64_t round, int64_t rank, const std::optional<Node>& first);

 private:
  RendezvousStoreInfo Publish(int64_t round);
  RendezvousStoreInfo Await(int64_t round, const std::optional<Node>& first);
  /// The address that a PyTorch rank 0 published in an earlier round and will not publish again.
  std::optional<RendezvousStoreInfo> Earlier(int64_t round, const std::optional<Node>& first);
  RendezvousStoreInfo Read(int64_t round);

  std::shared_ptr<Store> store_;
  const std::function<std::string(int64_t)> prefix_of_;
  const std::string local_addr_;
  System& around_;
  Clock& clock_;
  std::optional<Node> publishes_once_;  ///< A rank 0 that has published without signing.
  /// One port for all rounds, because PyTorch's agents read it once. Each round starts with an
  /// empty store.
  std::unique_ptr<ReservedPort> server_;
};

}  // namespace muster
