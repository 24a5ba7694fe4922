// The handler of backend "muster": a session with the coordinator of a server, or the c10d backend
// where the server turns out to be PyTorch's.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "muster/coordinated_rendezvous.h"
#include "muster/store_server.h"
#include "rendezvous/session/session_handler.h"

namespace muster {

class CoordinatedHandler final : public SessionHandler {
 public:
  /// Serves, where that is decided. RendezvousConnectionError, std::invalid_argument.
  static std::unique_ptr<CoordinatedHandler> Create(CoordinatedRendezvousOptions options,
                                                    System& system);
  ~CoordinatedHandler() override;

  using SessionHandler::SetClosed;
  std::string GetBackend() const override { return "muster"; }
  std::string ActiveBackend() const override { return Fallback() ? "c10d" : "muster"; }
  bool AllowsConcurrentCalls() const override { return Fallback() == nullptr; }
  bool IsHost() const override { return server_ != nullptr; }

  RendezvousInfo NextRendezvous() override;
  bool IsClosed() override;
  int64_t NumNodesWaiting() override;
  void SetClosed(std::string_view reason) override;
  std::optional<MembershipEvent> AwaitEvent(std::chrono::milliseconds time) override;
  bool StopWaiting() override;
  void Leave() override;
  WaitReport DescribeWait() const override;

 private:
  /// The server of the run, if it is in this process, or why it cannot be.
  struct Host {
    std::shared_ptr<StoreServer> server{};
    std::string cannot_serve{};
  };
  static Host Serve(const CoordinatedRendezvousOptions& options);

  CoordinatedHandler(CoordinatedRendezvousOptions options, System& system, Host host,
                     const Endpoint& at);

  /// Null unless the server is PyTorch's.
  RendezvousHandler* Fallback() const;
  RendezvousHandler& FallBackToC10d();
  std::shared_ptr<Store> StoreOf(const Push& assignment);

  const CoordinatedRendezvousOptions coordinated_;
  const Endpoint at_;
  const std::shared_ptr<StoreServer> server_;
  std::shared_ptr<Store> store_;
  uint64_t store_of_ = 0;  ///< The connection of the session at whose time it was made.
  mutable std::mutex fallback_mutex_;
  RendezvousHandlerPtr fallback_;  ///< Guarded by fallback_mutex_ until it is there.
};

}  // namespace muster
