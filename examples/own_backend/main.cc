// A rendezvous whose state can be kept anywhere: here, in a variable of this process. Three nodes
// (threads) meet through it and print their ranks.
#include <any>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "muster/hash_store.h"
#include "muster/rendezvous.h"

namespace {

/// What the nodes share: one cell, and a number that changes with every write.
struct Cell {
  std::mutex mutex;
  std::optional<std::string> bytes;
  int64_t version = 0;
};

class OwnBackend final : public muster::RendezvousBackend {
 public:
  explicit OwnBackend(std::shared_ptr<Cell> cell) : cell_(std::move(cell)) {}

  std::string Name() const override { return "own"; }

  std::optional<muster::StoredState> GetState() override {
    const std::lock_guard lock(cell_->mutex);
    if (!cell_->bytes) return std::nullopt;
    return muster::StoredState{*cell_->bytes, cell_->version};
  }

  std::optional<muster::StoredState> SetState(std::string_view bytes,
                                              const std::any& token) override {
    const std::lock_guard lock(cell_->mutex);
    const auto* version = std::any_cast<int64_t>(&token);
    const bool fits =
        cell_->bytes ? version != nullptr && *version == cell_->version : !token.has_value();
    if (fits) {
      cell_->bytes = bytes;
      ++cell_->version;
    }
    if (!cell_->bytes) return std::nullopt;
    return muster::StoredState{*cell_->bytes, cell_->version, fits};
  }

 private:
  std::shared_ptr<Cell> cell_;
};

}  // namespace

int main() {
  const auto cell = std::make_shared<Cell>();
  const auto store = muster::HashStore::Create();
  muster::RegisterRendezvousBackend(
      "own", [=](const muster::RendezvousParameters& parameters) -> muster::RendezvousHandlerPtr {
        return muster::CreateDynamicHandler(store, std::make_unique<OwnBackend>(cell), parameters);
      });

  constexpr int kNodes = 3;
  const muster::RendezvousParameters parameters("own", "", "example", kNodes, kNodes, "127.0.0.1");
  std::vector<std::thread> nodes;
  for (int i = 0; i < kNodes; ++i) {
    nodes.emplace_back([&] {
      const auto handler = muster::GetRendezvousHandler(parameters);
      const muster::RendezvousInfo info = handler->NextRendezvous();
      std::printf("rank %lld of %lld\n", static_cast<long long>(info.rank),
                  static_cast<long long>(info.world_size));
    });
  }
  for (std::thread& node : nodes) node.join();
}
