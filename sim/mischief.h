// What goes wrong: one fault after the other, each with its own end, until all is mended.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "base/prng.h"
#include "base/time.h"
#include "sim/network.h"

namespace muster::sim {

class World;

class Mischief {
 public:
  Mischief(World& world, uint64_t seed);
  void Begin();

 private:
  void Next();
  Duration Draw(Duration low, Duration high);
  bool Coin() { return prng_.Below(2) == 0; }
  size_t DrawNode();
  /// Later, if there is still trouble.
  void Later(Duration time, std::function<void()> work);

  void CutLink();
  void ClogLink();
  void ResetConnection();
  void CrashNode(Network::Ending ending);
  void PauseNode();
  void CrashServer();
  void PauseServer();
  void JumpClock();

  World& world_;
  Prng prng_;
  std::vector<std::function<void()>> kinds_;
};

}  // namespace muster::sim
