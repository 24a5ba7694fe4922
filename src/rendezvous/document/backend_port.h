// A user's RendezvousBackend behind the port that the driver uses: exceptions become values, and
// are kept so that the caller of the handler gets the very same ones.
#pragma once

#include <exception>
#include <memory>

#include "muster/rendezvous_backend.h"
#include "rendezvous/document/state_backend.h"

namespace muster {

class BackendPort final : public StateBackend {
 public:
  explicit BackendPort(std::unique_ptr<RendezvousBackend> backend) : backend_(std::move(backend)) {}

  std::string Name() const override { return backend_->Name(); }
  Result<std::optional<StoredState>> Get() override;
  Result<std::optional<StoredState>> Set(std::string_view bytes, const std::any& token) override;
  void Announce(std::string_view news) override;
  bool Await(std::string_view news, Duration time) override;
  std::exception_ptr TakeException() override;

 private:
  template <typename Call>
  Result<std::optional<StoredState>> Try(const Call& call);

  std::unique_ptr<RendezvousBackend> backend_;
  std::exception_ptr thrown_;
};

}  // namespace muster
