#include "sim/store_host.h"

#include <utility>

#include "base/limits.h"
#include "base/text.h"
#include "sim/sockets.h"

namespace muster::sim {

namespace {
constexpr uint64_t kQueuedTotal = 512ull * 1024 * 1024;  // as a real server
}  // namespace

StoreHost::StoreHost(SimProcess& process, uint16_t port, const StoreHostOptions& options)
    : process_(process),
      port_(port),
      hub_({.reserved_key = wire::kSessionKey}, kQueuedTotal, options.loops,
           [this](size_t loop) { Wake(loop, &ServerLoop::Collect); }),
      sessions_(options.coordinator, options.loops, process.clock(), &SharedStore::LoopOf,
                [this](size_t loop) { Wake(loop, &ServerLoop::CollectPushes); }) {
  KeepScopes(sessions_, hub_);
  for (size_t i = 0; i < options.loops; ++i) {
    loops_.push_back(std::make_unique<SimLoop>(process));
    services_.push_back(std::make_unique<ServerLoop>(*loops_[i], hub_, sessions_, i,
                                                     StoreServerOptions{}, nullptr, nullptr));
  }
  process.network().Listen(process, port, [this, alive = alive_](std::shared_ptr<Socket> socket) {
    if (*alive) Adopt(std::move(socket));
  });
}

StoreHost::~StoreHost() {
  *alive_ = false;
  process_.network().StopListening(process_, port_);
  services_.clear();
}

void StoreHost::Adopt(std::shared_ptr<Socket> socket) {
  const size_t loop = next_loop_++ % services_.size();
  services_[loop]->Serve(MakeStream(std::move(socket), loops_[loop].get()));
}

void StoreHost::Wake(size_t loop, void (ServerLoop::*collect)()) {
  loops_[loop]->Post([this, loop, collect, alive = alive_] {
    if (*alive) (*services_[loop].*collect)();
  });
}

std::string StoreHost::Peek(const std::string& key) {
  return hub_.Peek(Concat('/', key), SIZE_MAX).value_or("");
}

}  // namespace muster::sim
