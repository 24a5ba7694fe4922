#include "sim/fault_injector.h"

#include <utility>

#include "base/text.h"
#include "etcd/records.h"
#include "sim/world.h"

namespace muster::sim {

FaultInjector::FaultInjector(World& world, uint64_t seed) : world_(world), prng_(seed) {
  const Faults& faults = world.plan_.faults;
  const auto add = [&](bool on, std::function<void()> kind) {
    if (on) kinds_.push_back(std::move(kind));
  };
  add(faults.cut, [this] { CutLink(); });
  add(faults.clog, [this] { ClogLink(); });
  add(faults.reset, [this] { ResetConnection(); });
  add(faults.crash, [this] { CrashNode(Network::Ending::kNotified); });
  add(faults.power, [this] { CrashNode(Network::Ending::kSilent); });
  add(faults.pause, [this] { PauseNode(); });
  add(faults.server_crash, [this] { CrashServer(); });
  add(faults.server_pause, [this] { PauseServer(); });
  add(faults.jump, [this] { JumpClock(); });
  add(faults.suspend, [this] { SuspendMachine(); });
  add(faults.exodus, [this] { Depart(); });
  add(faults.election, [this] { Elect(); });
  add(faults.compaction, [this] { Compact(); });
  add(faults.meddling, [this] { Meddle(); });
  add(faults.restore, [this] { RestoreEtcd(); });
  add(faults.leave && world.plan_.driver == Driver::kLauncher, [this] { SignalLauncher(); });
}

void FaultInjector::Begin() {
  if (!kinds_.empty()) Next();
}

void FaultInjector::Next() {
  const Duration every = world_.plan_.fault_every;
  Later(Draw(every / 10, 2 * every), [this] {
    for (int64_t i = 0; i < world_.plan_.faults_at_once; ++i) kinds_[prng_.Below(kinds_.size())]();
    Next();
  });
}

Duration FaultInjector::Draw(Duration low, Duration high) {
  const auto range = static_cast<uint64_t>((high - low).count()) + 1;
  return low + Duration(static_cast<int64_t>(prng_.Below(range)));
}

size_t FaultInjector::DrawNode() { return prng_.Below(world_.places_.size()); }

void FaultInjector::Later(Duration time, std::function<void()> work) {
  const WorldTime when = world_.scheduler_.now() + time;
  if (when >= world_.plan_.trouble) return;
  world_.scheduler_.At(when, std::move(work));
}

void FaultInjector::Note(const std::string& line) {
  world_.trace_.Note(world_.scheduler_.now(), [&] { return line; });
}

void FaultInjector::Disturb(HostId host, Duration time) {
  world_.Disturb(host, world_.scheduler_.now() + time);
}

void FaultInjector::Last(const std::string& what, Duration time, std::function<void()> end) {
  const WorldTime until = world_.scheduler_.now() + time;
  WorldTime& lasts = lasting_[what];
  if (lasts >= until) return;
  lasts = until;
  Later(time, [this, what, until, end = std::move(end)] {
    if (lasting_[what] != until) return;  // another one lasts longer
    Note(Concat(what, ": over"));
    end();
  });
}

void FaultInjector::CutLink() {
  const HostId node = world_.places_[DrawNode()].host;
  const HostId server = world_.server_host_;
  const uint64_t ways = prng_.Below(3);
  const Duration time = Draw(20ms, 4s);
  if (ways != 1) Cut(node, server, time);
  if (ways != 0) Cut(server, node, time);
}

void FaultInjector::Cut(HostId from, HostId to, Duration time) {
  const std::string what =
      Concat("cut from ", world_.network_.address(from), " to ", world_.network_.address(to));
  Note(what);
  world_.network_.Cut(from, to);
  Disturb(from == world_.server_host_ ? to : from, time);
  Last(what, time, [this, from, to] { world_.network_.Heal(from, to); });
}

void FaultInjector::ClogLink() {
  HostId from = world_.places_[DrawNode()].host;
  HostId to = world_.server_host_;
  const Duration time = Draw(10ms, 3s);
  Disturb(from, time);
  if (Coin()) std::swap(from, to);
  Note(Concat("clogged for ", Milliseconds(time), " ms: ", world_.network_.address(from), " to ",
              world_.network_.address(to)));
  world_.network_.Clog(from, to, world_.scheduler_.now() + time);
}

void FaultInjector::ResetConnection() {
  const std::string which = world_.network_.ResetOne(prng_);
  if (!which.empty()) Note(Concat("reset: ", which));
}

void FaultInjector::CrashNode(Network::Ending ending) {
  const size_t index = DrawNode();
  if (world_.places_[index].process == nullptr || world_.places_[index].ended) return;
  world_.EndNode(index, ending);
  Later(Draw(1ms, 5s), [this, index] {
    World::Place& place = world_.places_[index];
    if (place.process == nullptr && !place.ended) world_.StartNode(index);
  });
}

// Often long enough for the server to declare all of them lost and to forget their run.
void FaultInjector::Depart() {
  Note("all nodes are killed");
  const Duration empty =
      Draw(1ms, 1s) + (Coin() ? world_.plan_.run_kept : Duration(0s)) + world_.plan_.settings.grace;
  for (size_t index = 0; index < world_.places_.size(); ++index) {
    if (world_.places_[index].process == nullptr || world_.places_[index].ended) continue;
    world_.EndNode(index, Network::Ending::kNotified);
    Later(empty + Draw(0ms, 300ms), [this, index] {
      World::Place& place = world_.places_[index];
      if (place.process == nullptr && !place.ended) world_.StartNode(index);
    });
  }
}

void FaultInjector::Pause(SimProcess& process, const std::string& who, Duration time) {
  Note(Concat(who, " stands still for ", Milliseconds(time), " ms"));
  process.Pause();
  Disturb(process.host(), time);
  Last(Concat("the pause of ", who), time, [&process] { process.Resume(); });
}

void FaultInjector::PauseNode() {
  const size_t index = DrawNode();
  World::Place& place = world_.places_[index];
  if (place.process == nullptr) return;
  Pause(*place.process, Concat("node ", index, " (life ", place.lives, ")"),
        Draw(10ms, Coin() ? 1s : 9s));
}

// Once, like a cluster manager that needs its machines; or several times, like an impatient user.
void FaultInjector::SignalLauncher() {
  constexpr int kSignals[] = {15, 2, 1};
  const size_t index = DrawNode();
  const int signal = kSignals[prng_.Below(std::size(kSignals))];
  const uint64_t times = Coin() ? 1 : 1 + prng_.Below(3);
  Launcher* launcher = world_.places_[index].launcher;
  for (uint64_t i = 0; i < times; ++i) {
    Later(i * Draw(1ms, 300ms), [this, index, signal, launcher] {
      World::Place& place = world_.places_[index];
      if (place.process == nullptr || place.launcher != launcher) return;
      place.process->Do([launcher, signal] { launcher->Signal(signal); });
    });
  }
}

void FaultInjector::CrashServer() {
  if (world_.server_ == nullptr) return;
  world_.EndServer(Coin() ? Network::Ending::kNotified : Network::Ending::kSilent);
  Later(Draw(1ms, 3s), [this] {
    if (world_.server_ == nullptr) world_.StartServer();
  });
}

void FaultInjector::PauseServer() {
  SimProcess* server = world_.server_;
  if (server == nullptr) return;
  if (world_.host_ && world_.host_->loops() > 1 && prng_.Below(4) != 0) {
    // One of its threads is late, and the others continue.
    const size_t loop = prng_.Below(world_.host_->loops());
    const Duration late = Draw(1ms, 500ms);
    Note(Concat("the server's loop ", loop, " is late by ", Milliseconds(late), " ms"));
    world_.host_->BeLate(loop, world_.scheduler_.now() + late);
    Disturb(server->host(), late);
    for (int i = 0; i < 3 && world_.plan_.faults.reset; ++i) {
      Later(Draw(0ms, late), [this] {
        const std::string which = world_.network_.LoseUnread();
        if (!which.empty()) Note(Concat("lost with what was unread: ", which));
      });
    }
    return;
  }
  Pause(*server, Concat("the server (life ", world_.epoch_, ")"), Draw(10ms, 3s));
}

FaultInjector::Victim FaultInjector::DrawMachine() {
  const bool may_be_server = world_.host_ != nullptr && IsCoordinated(world_.plan_.driver);
  if (may_be_server && prng_.Below(4) == 0)
    return {world_.server_, Concat("the server (life ", world_.epoch_, ")")};
  const size_t index = DrawNode();
  const World::Place& place = world_.places_[index];
  // Named with its life: a restarted node has not stood still.
  return {place.process, Concat("node ", index, " (life ", place.lives, ")")};
}

void FaultInjector::JumpClock() {
  const Victim victim = DrawMachine();
  if (victim.process == nullptr) return;
  const Duration by = Draw(0s, 2h) - 1h;
  Note(Concat("the wall clock of ", victim.name, " jumps by ", Milliseconds(by), " ms"));
  victim.process->JumpWallClock(by);
}

// Neither the processes nor the system of the machine answer meanwhile. The clock may show that it
// took longer than all others have seen: a minute at most, because a server forgets a run without
// nodes after ten.
void FaultInjector::SuspendMachine() {
  const Victim victim = DrawMachine();
  if (victim.process == nullptr) return;
  const Duration time = Draw(10ms, Coin() ? 1s : 9s);
  const Duration leap = Coin() ? Duration(0) : Draw(0s, 60s);
  Note(Concat(victim.name, " is suspended for ", Milliseconds(time),
              " ms, and its clock moves on by ", Milliseconds(leap), " ms more"));
  victim.process->Suspend();
  Disturb(victim.process->host(), time);
  victim.process->LeapClock(leap);
  Last(Concat("the pause of ", victim.name), time,
       [process = victim.process] { process->Resume(); });
  const HostId host = victim.process->host();
  for (const World::Place& place : world_.places_) {
    if (host != place.host && host != world_.server_host_) continue;
    Cut(place.host, world_.server_host_, time);
    Cut(world_.server_host_, place.host, time);
  }
}

void FaultInjector::Elect() {
  const Duration time = Draw(50ms, Coin() ? 500ms : 3s);
  Note(Concat("etcd has no leader for ", Milliseconds(time), " ms"));
  world_.etcd_->Elect(time);
}

// Compacts all history, or what is older than some time.
void FaultInjector::Compact() {
  const int64_t kept = Coin() ? 0 : static_cast<int64_t>(prng_.Below(20));
  const int64_t revision = world_.etcd_->state().revision() - kept;
  if (revision <= world_.etcd_->state().compacted()) return;
  Note(Concat("etcd forgets what was before revision ", revision));
  world_.etcd_->Compact(revision);
}

// An operator makes a backup, or the cluster is lost and comes back with one.
void FaultInjector::RestoreEtcd() {
  EtcdOverseer& overseer = *world_.overseer_;
  if (overseer.backups() == 0 || Coin()) return overseer.BackUp();
  if (world_.server_ == nullptr) return;
  world_.EndServer(Coin() ? Network::Ending::kNotified : Network::Ending::kSilent);
  overseer.Restore(*world_.etcd_, prng_.Below(overseer.backups()));
  Later(Draw(1ms, 3s), [this] {
    if (world_.server_ == nullptr) world_.StartServer();
  });
}

void FaultInjector::Meddle() {
  const wire::EtcdKeys keys(World::kEtcdPrefix, World::kRun);
  const uint64_t die = prng_.Below(3);
  if (die == 0) {
    Note("an operator deletes the leader's key");
    return world_.etcd_->Meddle(
        {.what = EtcdTransaction{
             .then = {{.kind = EtcdOperation::Kind::kDelete, .range = {.begin = keys.Leader()}}}}});
  }
  if (die == 1) {
    Note("an operator writes into the members' keys");
    return world_.etcd_->Meddle(
        {.what = EtcdTransaction{.then = {{.kind = EtcdOperation::Kind::kPut,
                                           .range = {.begin = keys.Members() + "me"},
                                           .value = Coin() ? "{" : "{\"addr\": \"me\"}"}}}});
  }
  std::vector<int64_t> leases;
  for (const auto& [key, pair] : world_.etcd_->state().pairs()) {
    if (key.starts_with(keys.Members()) && pair.lease != 0) leases.push_back(pair.lease);
  }
  if (leases.empty()) return;
  const int64_t lease = leases[prng_.Below(leases.size())];
  Note(Concat("an operator revokes lease ", lease));
  world_.etcd_->Meddle({.what = EtcdRequest::Revoke{lease}});
}

}  // namespace muster::sim
