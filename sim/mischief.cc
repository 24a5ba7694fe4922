#include "sim/mischief.h"

#include <utility>

#include "base/text.h"
#include "sim/world.h"

namespace muster::sim {

Mischief::Mischief(World& world, uint64_t seed) : world_(world), prng_(seed) {
  const Faults& faults = world.plan_.faults;
  const auto add = [&](bool on, std::function<void()> kind) {
    if (on) kinds_.push_back(std::move(kind));
  };
  add(faults.cut, [this] { CutLink(); });
  add(faults.clog, [this] { ClogLink(); });
  add(faults.reset, [this] { ResetConnection(); });
  add(faults.crash, [this] { CrashNode(Network::Ending::kTold); });
  add(faults.power, [this] { CrashNode(Network::Ending::kSilent); });
  add(faults.pause, [this] { PauseNode(); });
  add(faults.server_crash, [this] { CrashServer(); });
  add(faults.server_pause, [this] { PauseServer(); });
  add(faults.jump, [this] { JumpClock(); });
}

void Mischief::Begin() {
  if (!kinds_.empty()) Next();
}

void Mischief::Next() {
  const Duration every = world_.plan_.fault_every;
  Later(Draw(every / 10, 2 * every), [this] {
    for (int64_t i = 0; i < world_.plan_.faults_at_once; ++i) kinds_[prng_.Below(kinds_.size())]();
    Next();
  });
}

Duration Mischief::Draw(Duration low, Duration high) {
  const auto range = static_cast<uint64_t>((high - low).count()) + 1;
  return low + Duration(static_cast<int64_t>(prng_.Below(range)));
}

size_t Mischief::DrawNode() { return prng_.Below(world_.places_.size()); }

void Mischief::Later(Duration time, std::function<void()> work) {
  const WorldTime when = world_.scheduler_.now() + time;
  if (when >= world_.plan_.trouble) return;
  world_.scheduler_.At(when, std::move(work));
}

void Mischief::CutLink() {
  const HostId node = world_.places_[DrawNode()].host;
  const HostId server = world_.server_host_;
  const uint64_t ways = prng_.Below(3);
  world_.trace_.Say(world_.scheduler_.now(), [&] {
    return Concat("cut: ", world_.network_.address(node),
                  ways == 0   ? " to the server"
                  : ways == 1 ? " from the server"
                              : " both ways");
  });
  if (ways != 1) world_.network_.Cut(node, server);
  if (ways != 0) world_.network_.Cut(server, node);
  Later(Draw(20ms, 4s), [this, node, server] {
    world_.network_.Mend(node, server);
    world_.network_.Mend(server, node);
  });
}

void Mischief::ClogLink() {
  const HostId node = world_.places_[DrawNode()].host;
  const WorldTime until = world_.scheduler_.now() + Draw(10ms, 3s);
  if (Coin()) {
    world_.network_.Clog(node, world_.server_host_, until);
  } else {
    world_.network_.Clog(world_.server_host_, node, until);
  }
}

void Mischief::ResetConnection() { world_.network_.ResetOne(prng_); }

void Mischief::CrashNode(Network::Ending ending) {
  const size_t index = DrawNode();
  if (world_.places_[index].process == nullptr || world_.places_[index].ended) return;
  world_.EndNode(index, ending);
  Later(Draw(1ms, 5s), [this, index] {
    World::Place& place = world_.places_[index];
    if (place.process == nullptr && !place.ended) world_.StartNode(index);
  });
}

void Mischief::PauseNode() {
  SimProcess* process = world_.places_[DrawNode()].process;
  if (process == nullptr) return;
  process->Pause();
  Later(Draw(10ms, Coin() ? 1s : 9s), [process] { process->Resume(); });
}

void Mischief::CrashServer() {
  if (world_.server_ == nullptr) return;
  world_.EndServer(Coin() ? Network::Ending::kTold : Network::Ending::kSilent);
  Later(Draw(1ms, 3s), [this] {
    if (world_.server_ == nullptr) world_.StartServer();
  });
}

void Mischief::PauseServer() {
  SimProcess* server = world_.server_;
  if (server == nullptr) return;
  if (world_.host_->loops() > 1 && prng_.Below(4) != 0) {
    // One of its threads is late, and the others go on.
    const size_t loop = prng_.Below(world_.host_->loops());
    const Duration late = Draw(1ms, 500ms);
    world_.host_->BeLate(loop, world_.scheduler_.now() + late);
    for (int i = 0; i < 3 && world_.plan_.faults.reset; ++i)
      Later(Draw(0ms, late), [this] { world_.network_.LoseUnread(); });
    return;
  }
  server->Pause();
  Later(Draw(10ms, 3s), [server] { server->Resume(); });
}

void Mischief::JumpClock() {
  SimProcess* process = world_.places_[DrawNode()].process;
  if (process != nullptr) process->JumpWallClock(Draw(0s, 2h) - 1h);
}

}  // namespace muster::sim
