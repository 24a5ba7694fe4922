// The c10d backend: the state of a rendezvous in a key of a store, as torchrun keeps it.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "muster/rendezvous_backend.h"
#include "muster/rendezvous_handler.h"
#include "muster/rendezvous_parameters.h"
#include "muster/store.h"

namespace muster {

class C10dRendezvousBackend final : public RendezvousBackend {
 public:
  /// Uses `store` for itself: nobody else should block on it. std::invalid_argument if the run id
  /// is empty or there is no store; RendezvousConnectionError. A connection that is lost fails the
  /// call under way; the next one takes another.
  C10dRendezvousBackend(std::shared_ptr<Store> store, const std::string& run_id);

  using RendezvousBackend::SetState;
  std::string Name() const override { return "c10d"; }
  std::optional<StoredState> GetState() override;
  std::optional<SetStateResult> SetState(std::string_view bytes, const std::any& token) override;
  /// News are keys beside the state's, which a store can wait for.
  void Announce(std::string_view news) override;
  bool AwaitNews(std::string_view news, std::chrono::milliseconds time) override;

 private:
  template <typename Operation>
  auto Reach(std::string_view what, Operation operation);

  std::shared_ptr<Store> store_;
  std::string key_;
  bool lost_ = false;  ///< The store's connection.
};

struct C10dRendezvous {
  std::unique_ptr<RendezvousBackend> backend;
  std::shared_ptr<Store> store;  ///< Another connection to the same data, for everything else.
};

/// Options: store_type (tcp, file), is_host (default: whether the endpoint is this machine) and
/// read_timeout (seconds, 60). Hosts the store where that is decided; if it is not decided but the
/// endpoint is here and its port taken, connects instead. RendezvousConnectionError,
/// std::invalid_argument.
C10dRendezvous CreateC10dBackend(const RendezvousParameters& parameters);

/// A dynamic rendezvous on it: what the registry makes for "c10d".
RendezvousHandlerPtr CreateC10dHandler(const RendezvousParameters& parameters);

}  // namespace muster
