// A simulated process: clocks that may be wrong, threads that are fibers, and an end that may come
// at any moment. Its code uses the same ports as in a real process.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/prng.h"
#include "os/ports/system.h"
#include "sim/fiber.h"
#include "sim/network.h"
#include "sim/scheduler.h"
#include "sim/work.h"

namespace muster::sim {

struct ClockError {
  Duration start{};        ///< The monotonic clock when the world begins.
  int64_t drift_ppm = 0;   ///< How much faster it runs.
  Duration wall_offset{};  ///< Of the wall clock; may change at any time.
};

class SimProcess final : public System {
 public:
  SimProcess(Scheduler& scheduler, Network& network, HostId host, uint32_t pid,
             const ClockError& clock, uint64_t seed);
  ~SimProcess() override;

  /// Starts a thread.
  void Start(std::function<void()> body);
  /// As SIGSTOP and SIGCONT do: events are delivered afterwards.
  void Pause();
  /// As a suspended machine, or a virtual one that its host does not run. The process stands still,
  /// its clock (CLOCK_BOOTTIME) continues, and timers keep what was left of them.
  void Suspend();
  void Resume();
  /// The monotonic clock jumps by so much, as after a suspension that was longer than the world has
  /// waited. Set timers keep their time; alarms ring when the process continues.
  void LeapClock(Duration by) { error_.start += by; }
  /// The total time of its suspensions.
  Duration suspended_for() const { return suspended_for_; }
  /// As SIGKILL does. Others do not see what the process does while it unwinds: it can reach
  /// nothing, and its waits end at once. Not from inside the process.
  void Kill(Network::Ending ending);
  bool alive() const { return !dead_; }
  bool paused() const { return paused_; }
  void JumpWallClock(Duration by) { error_.wall_offset += by; }

  /// For observers: called after everything that happens in the process.
  std::function<void()> after_event{};

  /// Used by the network: connections that this process is an end of, and some earlier ones.
  std::vector<std::weak_ptr<Connection>> connections{};

  HostId host() const { return host_; }
  Network& network() const { return network_; }
  Scheduler& scheduler() { return scheduler_; }
  Instant Now() const;
  WallTime Wall() const;

  /// An event of the process: now, or once it continues. Never, if it is dead.
  template <typename Body>
  void Do(Body&& work) {
    if (dead_) return;
    if (paused_) {
      held_.emplace_back(std::forward<Body>(work));
    } else {
      work();
      if (after_event) after_event();
    }
  }
  template <typename Body>
  void DoAt(WorldTime when, Body&& work) {
    scheduler_.At(when, [this, work = std::forward<Body>(work)]() mutable { Do(std::move(work)); });
  }
  /// The time of the world when this process's monotonic clock shows that.
  WorldTime ToWorld(Instant local) const;
  /// A timer of this process: suspensions before it delay it.
  template <typename Body>
  Scheduler::Planned RingAt(WorldTime when, Body ring) {
    return scheduler_.At(when,
                         [this, when, slept = suspended_for_, ring = std::move(ring)]() mutable {
                           Do([this, when, slept, ring = std::move(ring)]() mutable {
                             if (suspended_for_ > slept) {
                               RingAt(when + (suspended_for_ - slept), std::move(ring));
                             } else {
                               ring();
                             }
                           });
                         });
  }

  /// Rings once, when the monotonic clock shows `when`; the clock continues while the process is
  /// suspended. Its owner ends it.
  struct Alarm {
    Instant when;
    std::function<void()> ring;
  };
  void Add(const std::shared_ptr<Alarm>& alarm);

  // --- For blocking calls, inside a thread of this process.

  class Strand;
  /// The thread that runs now; null in an event.
  Strand* current() const { return current_; }
  /// Blocks until woken, or until then. Returns whether it was woken.
  bool Park(Instant until);
  void Wake(Strand& strand);
  /// In a dead process, lets the other threads finish; otherwise blocks.
  void ParkForOthers();

  // --- System
  Clock& clock() override { return *clock_; }
  Dialer& dialer() override { return *dialer_; }
  bool has_ended() const override { return dead_; }
  uint32_t process_id() const override { return pid_; }
  int64_t NextNodeId() override { return nodes_++; }
  uint64_t Seed() override { return prng_.Next(); }
  std::unique_ptr<Monitor> MakeMonitor() override;
  std::unique_ptr<Timer> CallEvery(std::string name, std::chrono::milliseconds period,
                                   std::function<void()> tick) override;
  std::unique_ptr<Thread> StartThread(std::function<void()> body) override;
  std::unique_ptr<LoopThread> StartLoop() override;
  std::unique_ptr<ReservedPort> ReservePort() override;

 private:
  void Run(Strand& strand);
  void ReapStrands();
  void Ring(const std::weak_ptr<Alarm>& alarm);

  Scheduler& scheduler_;
  Network& network_;
  const HostId host_;
  const uint32_t pid_;
  ClockError error_;
  Prng prng_;
  int64_t nodes_ = 0;
  uint16_t next_port_ = 40'000;
  bool dead_ = false;
  bool paused_ = false;
  std::optional<WorldTime> suspended_since_;
  Duration suspended_for_{};
  Instant leapt_{};  // a dead process's clock jumps, so no wait lasts
  Strand* current_ = nullptr;
  std::vector<std::unique_ptr<Strand>> strands_;
  std::vector<Work> held_;  // kept until the process continues
  std::vector<std::weak_ptr<Alarm>> alarms_;
  std::unique_ptr<Clock> clock_;
  std::unique_ptr<Dialer> dialer_;
};

/// A loop of a simulated process. All its code runs on its thread.
class SimLoop final : public Loop {
 public:
  explicit SimLoop(SimProcess& process) : process_(process) {}
  ~SimLoop() override { posted_->clear(); }

  Instant Now() const override { return process_.Now(); }
  bool IsCurrent() const override { return true; }
  void Post(std::function<void()> work) override;
  std::unique_ptr<Timer> Every(Duration period, std::function<void()> tick) override;
  std::unique_ptr<Timer> After(Duration delay, std::function<void()> work) override;
  std::unique_ptr<Timer> At(Instant when, std::function<void()> ring) override;
  /// Its thread does not run before then.
  void BeLate(WorldTime until) { late_until_ = until; }
  bool IsLate() const { return process_.scheduler().now() < late_until_; }
  WorldTime OnTime(WorldTime when) const { return std::max(when, late_until_); }
  /// Runs what was posted; not in a dead process, whose threads did not wait for it.
  void Drain() {
    if (!process_.alive()) posted_->clear();
    Drain(*posted_);
  }

 private:
  using Queue = std::vector<std::function<void()>>;
  static void Drain(Queue& queue);

  SimProcess& process_;
  WorldTime late_until_{};
  const std::shared_ptr<Queue> posted_ = std::make_shared<Queue>();
};

}  // namespace muster::sim
