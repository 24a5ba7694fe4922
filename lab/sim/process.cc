#include "sim/process.h"

#include <algorithm>
#include <utility>

#include "base/assert.h"
#include "sim/sockets.h"
#include "sim/store_host.h"

namespace muster::sim {

namespace {

constexpr int64_t kMillion = 1'000'000;
// The wall clock when the world begins: a day in 2026.
constexpr int64_t kFirstDay = 1'790'000'000'000'000;

class SimClock final : public Clock {
 public:
  explicit SimClock(SimProcess& process) : process_(process) {}

  Instant Now() const override { return process_.Now(); }
  WallTime Wall() const override { return process_.Wall(); }
  void SleepUntil(Instant when) override {
    while (process_.Now() < when) process_.Park(when);
  }

 private:
  SimProcess& process_;
};

}  // namespace

class SimProcess::Strand {
 public:
  explicit Strand(std::function<void()> body) : fiber(std::move(body)) {}

  Fiber fiber;
  uint64_t parked = 0;  // how often it has parked, the present time included
  bool is_parked = false;
  bool woken = false;
};

SimProcess::SimProcess(Scheduler& scheduler, Network& network, HostId host, uint32_t pid,
                       const ClockError& clock, uint64_t seed)
    : scheduler_(scheduler),
      network_(network),
      host_(host),
      pid_(pid),
      error_(clock),
      prng_(seed),
      clock_(std::make_unique<SimClock>(*this)),
      dialer_(std::make_unique<SimDialer>(*this)) {}

SimProcess::~SimProcess() {
  if (!dead_) Kill(Network::Ending::kSilent);
}

// ----------------------------------------------------------------------------------------------
// clocks

Instant SimProcess::Now() const {
  const Duration world = scheduler_.now();
  const Instant now{error_.start + world + world * error_.drift_ppm / kMillion};
  return std::max(now, leapt_);
}

WallTime SimProcess::Wall() const {
  return WallTime{kFirstDay} + (scheduler_.now() + error_.wall_offset);
}

WorldTime SimProcess::ToWorld(Instant local) const {
  const auto shown = static_cast<__int128>((local.since_start - error_.start).count());
  auto world = static_cast<int64_t>(shown * kMillion / (kMillion + error_.drift_ppm));
  // Rounding must not wake a thread too early.
  while (Duration(world) + Duration(world) * error_.drift_ppm / kMillion + error_.start <
         local.since_start) {
    ++world;
  }
  return Duration(world);
}

// ----------------------------------------------------------------------------------------------
// what happens to it

void SimProcess::Pause() { paused_ = true; }

void SimProcess::Suspend() {
  paused_ = true;
  if (!suspended_since_) suspended_since_ = scheduler_.now();
}

void SimProcess::Resume() {
  if (!std::exchange(paused_, false)) return;
  if (const auto since = std::exchange(suspended_since_, std::nullopt))
    suspended_for_ += scheduler_.now() - *since;
  // Events of the same moment that others cause come after these.
  for (Work& work : std::exchange(held_, {})) DoAt(scheduler_.now(), std::move(work));
  // After what arrived meanwhile: a system promises no order.
  for (const auto& alarm : alarms_) DoAt(scheduler_.now(), [this, alarm] { Ring(alarm); });
}

void SimProcess::Add(const std::shared_ptr<Alarm>& alarm) {
  std::erase_if(alarms_, [](const auto& each) { return each.expired(); });
  alarms_.push_back(alarm);
  DoAt(ToWorld(alarm->when), [this, weak = std::weak_ptr(alarm)] { Ring(weak); });
}

void SimProcess::Ring(const std::weak_ptr<Alarm>& alarm) {
  const auto due = alarm.lock();
  if (!due || !due->ring || Now() < due->when) return;
  std::erase_if(alarms_, [&](const auto& each) { return each.lock() == due; });
  std::exchange(due->ring, nullptr)();  // may destroy the alarm
}

void SimProcess::Kill(Network::Ending ending) {
  if (dead_) return;
  MUSTER_ASSERT(Fiber::Current() == nullptr);
  leapt_ = Now();
  dead_ = true;
  held_.clear();
  network_.EndAllOf(*this, ending);
  while (!strands_.empty()) {
    for (size_t i = 0; i < strands_.size(); ++i) Run(*strands_[i]);
    ReapStrands();
  }
}

// ----------------------------------------------------------------------------------------------
// threads

void SimProcess::Start(std::function<void()> body) {
  if (dead_) return;
  strands_.push_back(std::make_unique<Strand>(std::move(body)));
  Strand& strand = *strands_.back();
  strand.is_parked = true;
  Wake(strand);
}

void SimProcess::Run(Strand& strand) {
  if (strand.fiber.done()) return;
  strand.is_parked = false;
  current_ = &strand;
  strand.fiber.Resume();
  current_ = nullptr;
}

void SimProcess::ReapStrands() {
  std::erase_if(strands_, [](const auto& strand) { return strand->fiber.done(); });
}

bool SimProcess::Park(Instant until) {
  MUSTER_ASSERT(current_ != nullptr);
  Strand& self = *current_;
  if (!dead_) {
    self.woken = false;
    self.is_parked = true;
    const uint64_t time = ++self.parked;
    Scheduler::Planned alarm;
    if (until != Instant::Never()) {
      alarm = RingAt(ToWorld(until), [this, &self, time] {
        if (self.parked == time && self.is_parked) Run(self);
      });
    }
    Fiber::Yield();
    scheduler_.Cancel(alarm);  // it may be a minute away, and there are many woken threads
    if (!dead_) return self.woken;
  }
  leapt_ = std::max(leapt_, until == Instant::Never() ? leapt_ + 1h : until);
  return false;
}

void SimProcess::ParkForOthers() {
  if (!dead_) {
    Park(Instant::Never());
  } else {
    Fiber::Yield();
  }
}

void SimProcess::Wake(Strand& strand) {
  if (dead_ || !strand.is_parked || strand.woken) return;
  strand.woken = true;
  DoAt(scheduler_.now(), [this, &strand, time = strand.parked] {
    if (strand.parked == time && strand.is_parked) Run(strand);
  });
}

namespace {

class SimMonitor final : public Monitor {
 public:
  explicit SimMonitor(SimProcess& process) : process_(process) {}

  void lock() override {
    while (held_) {
      // An event cannot wait; what events need must not be held by a waiting thread.
      MUSTER_ASSERT(process_.current() != nullptr);
      lockers_.push_back(process_.current());
      process_.ParkForOthers();
      std::erase(lockers_, process_.current());
    }
    held_ = true;
  }
  void unlock() override {
    held_ = false;
    if (!lockers_.empty()) process_.Wake(*lockers_.front());
  }
  void WaitUntil(Instant until) override {
    unlock();
    SimProcess::Strand* self = process_.current();
    waiters_.push_back(self);
    process_.Park(until);
    std::erase(waiters_, self);
    lock();
    if (until == Instant::Never() && !process_.alive()) throw ProcessIsDead();
  }
  void NotifyAll() override {
    for (SimProcess::Strand* waiter : waiters_) process_.Wake(*waiter);
  }

 private:
  SimProcess& process_;
  bool held_ = false;
  std::vector<SimProcess::Strand*> lockers_;
  std::vector<SimProcess::Strand*> waiters_;
};

class SimLoopThread final : public LoopThread {
 public:
  explicit SimLoopThread(SimProcess& process) : loop_(process), connector_(process) {}

  Loop& loop() override { return loop_; }
  Connector& connector() override { return connector_; }
  void RunAndWait(const std::function<void()>& work) override {
    loop_.Drain();
    work();
  }

 private:
  SimLoop loop_;
  SimConnector connector_;
};

// A thread that calls repeatedly.
class SimCaller final : public Timer {
 public:
  SimCaller(SimProcess& process, Duration period, std::function<void()> tick)
      : process_(process), state_(std::make_shared<State>()) {
    process.Start([&process, period, tick = std::move(tick), state = state_] {
      while (true) {
        state->self = process.current();
        if (!state->stopped) process.Park(process.Now() + period);
        if (state->stopped || !process.alive()) break;
        state->busy = true;
        tick();
        state->busy = false;
        if (state->joiner != nullptr) process.Wake(*state->joiner);
      }
      state->self = nullptr;
    });
  }
  ~SimCaller() override {
    state_->stopped = true;
    while (state_->busy) {
      state_->joiner = process_.current();
      process_.ParkForOthers();
    }
    if (state_->self != nullptr) process_.Wake(*state_->self);
  }

 private:
  struct State {
    bool stopped = false;
    bool busy = false;
    SimProcess::Strand* self = nullptr;
    SimProcess::Strand* joiner = nullptr;
  };
  SimProcess& process_;
  std::shared_ptr<State> state_;
};

class SimThread final : public Thread {
 public:
  SimThread(SimProcess& process, std::function<void()> body)
      : process_(process), state_(std::make_shared<State>()) {
    state_->done = !process.alive();  // nothing starts in a dead process
    process.Start([&process, body = std::move(body), state = state_] {
      try {
        body();
      } catch (const ProcessIsDead&) {
      }
      state->done = true;
      if (state->joiner != nullptr) process.Wake(*state->joiner);
    });
  }
  ~SimThread() override {
    while (!state_->done) {
      state_->joiner = process_.current();
      process_.ParkForOthers();
    }
  }

 private:
  struct State {
    bool done = false;
    SimProcess::Strand* joiner = nullptr;
  };
  SimProcess& process_;
  std::shared_ptr<State> state_;
};

class SimPort final : public ReservedPort {
 public:
  SimPort(SimProcess& process, uint16_t port) : process_(process), port_(port) {}

  uint16_t port() const override { return port_; }
  void Serve() override {
    store_.reset();
    store_ = std::make_unique<StoreHost>(process_, port_, StoreHostOptions{});
  }
  void Free() override {}

 private:
  SimProcess& process_;
  const uint16_t port_;
  std::unique_ptr<StoreHost> store_;
};

struct LoopTimer final : public Timer {
  explicit LoopTimer(std::shared_ptr<std::function<void()>> its_tick) : tick(std::move(its_tick)) {}
  ~LoopTimer() override { *tick = nullptr; }
  std::shared_ptr<std::function<void()>> tick;
};

struct LoopAlarm final : public Timer {
  explicit LoopAlarm(std::shared_ptr<SimProcess::Alarm> its) : alarm(std::move(its)) {}
  ~LoopAlarm() override { alarm->ring = nullptr; }
  std::shared_ptr<SimProcess::Alarm> alarm;
};

void TickLater(SimProcess& process, Duration period,
               const std::shared_ptr<std::function<void()>>& tick) {
  process.RingAt(process.ToWorld(process.Now() + period), [&process, period, tick] {
    if (!*tick) return;
    const auto work = *tick;  // which may destroy the timer
    work();
    if (*tick) TickLater(process, period, tick);
  });
}

}  // namespace

std::unique_ptr<Monitor> SimProcess::MakeMonitor() { return std::make_unique<SimMonitor>(*this); }

std::unique_ptr<Timer> SimProcess::CallEvery(std::string, std::chrono::milliseconds period,
                                             std::function<void()> tick) {
  return std::make_unique<SimCaller>(*this, period, std::move(tick));
}

std::unique_ptr<Thread> SimProcess::StartThread(std::function<void()> body) {
  return std::make_unique<SimThread>(*this, std::move(body));
}

std::unique_ptr<LoopThread> SimProcess::StartLoop() {
  return std::make_unique<SimLoopThread>(*this);
}

std::unique_ptr<ReservedPort> SimProcess::ReservePort() {
  return std::make_unique<SimPort>(*this, next_port_++);
}

void SimLoop::Post(std::function<void()> work) {
  posted_->push_back(std::move(work));
  process_.DoAt(OnTime(process_.scheduler().now()), [queue = posted_] { Drain(*queue); });
}

void SimLoop::Drain(Queue& queue) {
  while (!queue.empty()) {
    const auto work = std::move(queue.front());
    queue.erase(queue.begin());
    work();
  }
}

std::unique_ptr<Timer> SimLoop::Every(Duration period, std::function<void()> tick) {
  auto shared = std::make_shared<std::function<void()>>(std::move(tick));
  TickLater(process_, period, shared);
  return std::make_unique<LoopTimer>(shared);
}

std::unique_ptr<Timer> SimLoop::After(Duration delay, std::function<void()> work) {
  auto shared = std::make_shared<std::function<void()>>(std::move(work));
  process_.RingAt(process_.ToWorld(process_.Now() + delay), [shared] {
    if (auto due = std::exchange(*shared, nullptr)) due();
  });
  return std::make_unique<LoopTimer>(shared);
}

std::unique_ptr<Timer> SimLoop::At(Instant when, std::function<void()> ring) {
  auto alarm = std::make_shared<SimProcess::Alarm>(SimProcess::Alarm{when, std::move(ring)});
  process_.Add(alarm);
  return std::make_unique<LoopAlarm>(std::move(alarm));
}

}  // namespace muster::sim
