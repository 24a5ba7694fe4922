// The faults of a run: one after the other, each with its own end, until everything is healed.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/prng.h"
#include "base/time.h"
#include "sim/network.h"

namespace muster::sim {

class World;

class FaultInjector {
 public:
  FaultInjector(World& world, uint64_t seed);
  void Begin();

 private:
  void Next();
  Duration Draw(Duration low, Duration high);
  bool Coin() { return prng_.Below(2) == 0; }
  size_t DrawNode();
  /// Runs the work later, if there are still faults.
  void Later(Duration time, std::function<void()> work);
  void Note(const std::string& line);
  void Disturb(HostId host, Duration time);
  /// `what` lasts so long, or as long as another fault of its kind that lasts longer; then `end`
  /// runs.
  void Last(const std::string& what, Duration time, std::function<void()> end);
  void Pause(SimProcess& process, const std::string& who, Duration time);

  void CutLink();
  void Cut(HostId from, HostId to, Duration time);
  void ClogLink();
  void ResetConnection();
  void CrashNode(Network::Ending ending);
  void PauseNode();
  void SignalLauncher();
  void Depart();
  void CrashServer();
  void PauseServer();
  struct Victim {
    SimProcess* process;  ///< Null: it is dead.
    std::string name;
  };
  /// A node's, or the coordinator's.
  Victim DrawMachine();
  void JumpClock();
  void SuspendMachine();
  void Elect();
  void Compact();
  void Meddle();
  void RestoreEtcd();

  World& world_;
  Prng prng_;
  std::vector<std::function<void()>> kinds_;
  std::map<std::string, WorldTime, std::less<>> lasting_;  // active faults, and until when
};

}  // namespace muster::sim
