#include "launch/agent.h"

#include <algorithm>
#include <csignal>
#include <utility>

#include "base/assert.h"
#include "base/text.h"

namespace muster {

Agent::Agent(const AgentOptions& options, RendezvousHandler& handler, WorkerRunner& runner,
             AgentHost& host, System& around)
    : options_(options),
      runner_(runner),
      host_(host),
      around_(around),
      clock_(around.clock()),
      machine_(options.rules),
      pids_(options.rules.workers, 0),
      monitor_(around.MakeMonitor()),
      rendezvous_(options.rendezvous, handler, around,
                  [this](AgentEvent event) { Post(std::move(event)); }) {}

int Agent::Run() {
  Step({.kind = AgentEvent::Kind::kBegin});
  while (!machine_.ended() && !around_.has_ended()) {
    const std::vector<AgentEvent> events = AwaitEvents();
    if (clock_.Now() >= machine_.due()) Step({.kind = AgentEvent::Kind::kTime});
    for (const AgentEvent& event : events) {
      if (machine_.ended())
        Post(event);  // for EndLeftovers(), which a signal ends
      else
        Handle(event);
    }
  }
  rendezvous_.Finish();
  if (may_have_left_) {
    EndLeftovers();
    host_.OnAttemptOver(machine_.failures());  // Not before: what they write is still shown.
  }
  // A join in progress cannot be cancelled, and nothing has to be sent then: the connection ends
  // with this process.
  if (!rendezvous_.state().is_joining) rendezvous_.IsDoneBy(clock_.Now() + options_.shutdown_max);
  return status_;
}

void Agent::OnWorkerEnded(size_t worker, int64_t pid, int code) {
  Post({.kind = AgentEvent::Kind::kWorkerEnded, .worker = worker, .pid = pid, .code = code});
}

void Agent::OnWorkerStuck(size_t worker, int64_t pid) {
  Post({.kind = AgentEvent::Kind::kWorkerStuck,
        .worker = worker,
        .pid = pid,
        .text = Concat("worker ", worker, " (pid ", pid, ") has been in uninterruptible sleep for ",
                       kUninterruptibleVariable, " seconds: this node leaves the job; check its ",
                       "devices and file systems before it joins again")});
}

void Agent::Post(AgentEvent event) {
  const Lock lock(*monitor_);
  events_.push_back(std::move(event));
  monitor_->NotifyAll();
}

std::vector<AgentEvent> Agent::AwaitEvents() {
  Lock lock(*monitor_);
  while (events_.empty() && clock_.Now() < machine_.due() && !around_.has_ended())
    monitor_->WaitUntil(machine_.due());
  return std::exchange(events_, {});
}

void Agent::Handle(const AgentEvent& event) {
  const bool has_ended = event.kind == AgentEvent::Kind::kWorkerEnded;
  if (has_ended || event.kind == AgentEvent::Kind::kWorkerStuck) {
    // A worker of an earlier attempt that could not be killed in time.
    if (pids_[event.worker] != event.pid) return;
    if (has_ended && event.pid != 0) host_.OnEnded(event.worker, event.pid, event.code);
  }
  Step(event);
}

void Agent::Step(const AgentEvent& event) {
  for (const AgentAction& action : machine_.Step(event, clock_.Now())) Execute(action);
}

void Agent::Execute(const AgentAction& action) {
  switch (action.kind) {
    case AgentAction::Kind::kJoin:
      host_.OnJoining();
      return rendezvous_.Join(machine_.restarts());
    case AgentAction::Kind::kStart:
      return StartWorkers(action.restarts);
    case AgentAction::Kind::kSignal:
      for (const size_t worker : action.workers) runner_.Signal(worker, action.signal);
      return;
    case AgentAction::Kind::kReportFailure:
      MUSTER_ASSERT(!machine_.failures().empty());
      if (std::string cause = host_.DescribeCause(machine_.failures()); !cause.empty())
        rendezvous_.ReportFailure(std::move(cause));
      return;
    case AgentAction::Kind::kSweep:
      runner_.Sweep();
      return host_.OnAttemptOver(machine_.failures());
    case AgentAction::Kind::kSucceeded:
      may_have_left_ = true;
      return;
    case AgentAction::Kind::kEnterBarrier:
      return rendezvous_.EnterBarrier();
    case AgentAction::Kind::kClose:
      return rendezvous_.Close(action.text);
    case AgentAction::Kind::kLeave:
      return rendezvous_.Leave();
    case AgentAction::Kind::kLog:
      return host_.Log(action.text);
    case AgentAction::Kind::kEnd:
      status_ = action.status;
      why_ = action.text;
      return;
  }
}

// Actions are executed after the step that returned them: a failure here is input for the next one.
void Agent::StartWorkers(int64_t restarts) {
  pids_.assign(options_.rules.workers, 0);
  const auto commands = host_.Prepare(rendezvous_.state().placement, restarts);
  if (!commands) return ReportStartFailure(0, commands.error().message);
  MUSTER_ASSERT(commands->size() == options_.rules.workers);
  for (size_t worker = 0; worker < commands->size(); ++worker) {
    const Result<int64_t> pid = runner_.Start(worker, (*commands)[worker]);
    if (!pid) return ReportStartFailure(worker, pid.error().message);
    pids_[worker] = *pid;
    host_.OnStarted(worker, *pid);
  }
}

void Agent::ReportStartFailure(size_t worker, const std::string& why) {
  Post({.kind = AgentEvent::Kind::kStartFailed, .text = why});
  for (size_t missing = worker; missing < options_.rules.workers; ++missing)
    Post({.kind = AgentEvent::Kind::kWorkerEnded, .worker = missing});
}

// A checkpoint upload or a syncer may end in order. No event reports the end of such processes:
// they are searched for, at growing intervals. A first signal ends a wait for them, the next one
// kills.
void Agent::EndLeftovers() {
  constexpr size_t kNamed = 8;
  constexpr Duration kUnnoticed = 200ms;  // They may be about to end, too.
  constexpr Duration kPauseMax = 500ms;
  const Instant begin = clock_.Now();
  bool waits = options_.waits_for_children && status_ == 0;
  bool was_named = false;
  Instant kill_at = Instant::Never();
  const auto terminate = [&] {
    runner_.Leftovers(SIGTERM);
    kill_at = clock_.Now() + options_.rules.grace;
  };
  for (Duration pause = 10ms; !around_.has_ended(); pause = std::min(2 * pause, kPauseMax)) {
    const std::vector<std::string> left = runner_.Leftovers();
    if (left.empty()) return;
    const Instant now = clock_.Now();
    if (now >= kill_at) {
      host_.Log(Concat("kills what the workers left: ", ListOf(left, kNamed)));
      return runner_.Sweep();
    }
    if (!was_named && now >= begin + kUnnoticed) {
      was_named = true;
      host_.Log(Concat(
          "the workers left processes: ", ListOf(left, kNamed),
          waits ? "; waits for them"
                : Concat("; they get SIGTERM and ", Milliseconds(options_.rules.grace) / 1'000,
                         " s (--wait-for-children waits for them)")));
      if (!waits) terminate();
    }
    Lock lock(*monitor_);
    if (events_.empty()) monitor_->WaitUntil(std::min(kill_at, now + pause));
    for (const AgentEvent& event : std::exchange(events_, {})) {
      if (event.kind != AgentEvent::Kind::kSignal) continue;
      if (!std::exchange(waits, false))
        kill_at = now;
      else
        terminate();
    }
  }
}

}  // namespace muster
