// A backend whose writes are slow, or fail with an unknown outcome.
#pragma once

#include <memory>

#include "base/prng.h"
#include "muster/rendezvous_backend.h"
#include "sim/process.h"

namespace muster::sim {

class World;

class FaultyBackend final : public RendezvousBackend {
 public:
  FaultyBackend(std::unique_ptr<RendezvousBackend> backend, World& world, SimProcess& process,
                uint64_t seed);

  std::string Name() const override { return backend_->Name(); }
  std::optional<StoredState> GetState() override { return backend_->GetState(); }
  std::optional<StoredState> SetState(std::string_view bytes, const std::any& token) override;
  void Announce(std::string_view news) override { backend_->Announce(news); }
  bool AwaitNews(std::string_view news, std::chrono::milliseconds time) override {
    return backend_->AwaitNews(news, time);
  }

 private:
  const std::unique_ptr<RendezvousBackend> backend_;
  World& world_;
  SimProcess& process_;
  Prng prng_;
};

}  // namespace muster::sim
