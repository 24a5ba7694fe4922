// A user's RendezvousBackend behind the port that the driver speaks: exceptions become values, and
// are kept so that the public face can throw the very same ones.
#pragma once

#include <exception>
#include <memory>

#include "muster/rendezvous_backend.h"
#include "rendezvous/document/state_backend.h"

namespace muster {

class BackendPort final : public StateBackend {
 public:
  explicit BackendPort(std::unique_ptr<RendezvousBackend> backend);

  Result<std::optional<Stored>> Get() override;
  Result<std::optional<Answer>> Set(std::string_view bytes, const std::any& token) override;

  void Announce(std::string_view news) override;
  bool Await(std::string_view news, Duration time) override;

  std::string name() const { return backend_->Name(); }
  /// What the backend threw in the call that just failed; null if the failure was not the
  /// backend's.
  std::exception_ptr TakeException();

 private:
  std::unique_ptr<RendezvousBackend> backend_;
  std::exception_ptr thrown_;
};

}  // namespace muster
