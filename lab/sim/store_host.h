// The server of muster in a simulated process: the real hubs and services on simulated loops.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "rendezvous/core/coordinator.h"
#include "rendezvous/session/session_hub.h"
#include "server/server_loop.h"
#include "server/shared_store.h"
#include "sim/process.h"

namespace muster::sim {

struct StoreHostOptions {
  size_t loops = 1;
  CoordinatorOptions coordinator{};
};

class StoreHost {
 public:
  StoreHost(SimProcess& process, uint16_t port, const StoreHostOptions& options);
  ~StoreHost();

  /// The value of an application's key; empty if there is none.
  std::string Peek(const std::string& key);
  SessionHub& sessions() { return sessions_; }
  size_t loops() const { return loops_.size(); }
  /// One of its threads does not run before then.
  void BeLate(size_t loop, WorldTime until) { loops_[loop]->BeLate(until); }

 private:
  void Adopt(std::shared_ptr<Socket> socket);
  void Wake(size_t loop, void (ServerLoop::*collect)());

  SimProcess& process_;
  const uint16_t port_;
  SharedStore hub_;
  SessionHub sessions_;
  std::vector<std::unique_ptr<SimLoop>> loops_;
  std::vector<std::unique_ptr<ServerLoop>> services_;
  size_t next_loop_ = 0;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace muster::sim
