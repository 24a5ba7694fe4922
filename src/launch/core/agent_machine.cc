#include "launch/core/agent_machine.h"

#include <algorithm>
#include <utility>

#include "base/planted.h"
#include "base/probe.h"
#include "base/text.h"
#include "launch/core/signals.h"

namespace muster {

namespace {

// By number, because the core includes no system headers. These never change on Linux.
constexpr int kTerminate = 15;
constexpr int kKill = 9;

constexpr int kSuccess = 0;
constexpr int kFailure = 1;

std::string HowItEnded(ExitCode code) {
  return code < 0 ? Concat("died by signal ", -code) : Concat("ended with status ", code);
}

}  // namespace

AgentMachine::AgentMachine(const AgentRules& rules) : rules_(rules) {}

AgentActions AgentMachine::Step(const AgentEvent& event, Instant now) {
  using Kind = AgentEvent::Kind;
  AgentActions out;
  if (stage_ == Stage::kEnded) return out;
  switch (event.kind) {
    case Kind::kBegin:
      Join(out);
      break;
    case Kind::kJoined:
      alone_ = event.alone;
      if (stage_ == Stage::kJoining) Start(out);
      break;
    case Kind::kJoinFailed:
      if (stage_ == Stage::kJoining) End(kFailure, event.text, out);
      break;
    case Kind::kNotNeeded:
      if (stage_ != Stage::kJoining) break;
      MUSTER_LAUNCH_PROBE("a spare was not needed");
      End(kSuccess, "the job has ended without this node", out);
      break;
    case Kind::kWorkerEnded:
      OnWorkerEnded(event, now, out);
      break;
    case Kind::kStartFailed:
      // Another attempt would fail as well: the program does not exist, or is not executable.
      MUSTER_LAUNCH_PROBE("a worker could not be started");
      why_ = event.text;
      Close(out);
      Stop(Then::kFail, kTerminate, now, out);
      break;
    case Kind::kMembership:
      OnMembership(event, now, out);
      break;
    case Kind::kBlame:
      OnBlame(event, now);
      break;
    case Kind::kJobFailed:
      OnJobFailed(event, now, out);
      break;
    case Kind::kBarrierPassed:
      if (stage_ != Stage::kBarrier) break;
      why_ = "all workers have succeeded";
      Close(out);
      End(kSuccess, why_, out);
      break;
    case Kind::kBarrierFailed:
      if (stage_ != Stage::kBarrier) break;
      MUSTER_LAUNCH_PROBE("a node at the exit could not reach the others");
      out.push_back(
          {.text = Concat("does not know whether all others have succeeded: ", event.text)});
      End(kSuccess, "all workers here have succeeded", out);
      break;
    case Kind::kNotice:
      out.push_back({.text = event.text});
      break;
    case Kind::kSignal:
      OnSignal(event, now, out);
      break;
    case Kind::kTime:
      OnTime(now, out);
      break;
  }
  return out;
}

// ----------------------------------------------------------------------------------------------
// events

void AgentMachine::OnWorkerEnded(const AgentEvent& event, Instant now, AgentActions& out) {
  if (event.worker >= alive_.size() || !alive_[event.worker]) return;
  alive_[event.worker] = false;
  const bool stopping = stage_ == Stage::kStopping;
  if (event.code != 0) {
    failures_.push_back({.worker = event.worker, .code = event.code, .at = now});
    if (stopping) failures_.back().signalled_at = signalled_at_;
    if (stopping && !alone_) out.push_back({.kind = AgentAction::Kind::kReportFailure});
  }
  const bool gone = std::ranges::none_of(alive_, [](bool lives) { return lives; });
  if (stopping) {
    if (gone) AllGone(out);
  } else if (event.code != 0) {
    WorkersFailed(now, out);
  } else if (gone) {
    EnterBarrier(now, out);
  }
}

// A change of membership costs no restart: no worker here has failed by itself.
void AgentMachine::OnMembership(const AgentEvent& event, Instant now, AgentActions& out) {
  if (stage_ == Stage::kWorking || (stage_ == Stage::kStopping && then_ == Then::kUndecided)) {
    if (then_ == Then::kUndecided && stage_ == Stage::kStopping)
      MUSTER_LAUNCH_PROBE("members came or went before the verdict on a failure");
    if (Planted(Bug::kMembershipCosts)) ++restarts_;
    why_ = event.text;
    verdict_at_ = Instant::Never();
    Stop(Then::kRejoin, kTerminate, now, out);
  } else if (stage_ == Stage::kBarrier) {
    // Other nodes restart or are lost. The workers of this node have succeeded in any case.
    MUSTER_LAUNCH_PROBE("members came or went while a node was at the exit");
    out.push_back({.text = Concat("does not wait for the others any longer: ", event.text)});
    out.push_back({.kind = AgentAction::Kind::kLeave});
    End(kSuccess, "all workers here have succeeded", out);
  }
}

void AgentMachine::OnJobFailed(const AgentEvent& event, Instant now, AgentActions& out) {
  if (stage_ == Stage::kBarrier) {
    MUSTER_LAUNCH_PROBE("the job failed while a node was at the exit");
    out.push_back({.text = Concat("others have failed: ", event.text)});
    return End(kSuccess, "all workers here have succeeded", out);
  }
  if (stage_ == Stage::kJoining) return End(kFailure, event.text, out);
  if (stage_ == Stage::kStopping) MUSTER_LAUNCH_PROBE("the job failed while workers were stopped");
  why_ = event.text;
  closed_ = true;
  Stop(Then::kFail, kTerminate, now, out);
}

// The first signal is forwarded. The second one sends SIGTERM and begins another grace, for workers
// that ignored the first. The third one kills.
void AgentMachine::OnSignal(const AgentEvent& event, Instant now, AgentActions& out) {
  if (++signals_ == 1) signal_ = event.signal;
  why_ = Concat(SignalName(event.signal), " came");
  if (signals_ > 2) MUSTER_LAUNCH_PROBE("a launcher was sent a third signal");
  if (stage_ != Stage::kWorking && stage_ != Stage::kStopping) {
    MUSTER_LAUNCH_PROBE("a launcher without workers was sent a signal");
    out.push_back({.kind = AgentAction::Kind::kLeave});
    return End(kFailure, why_, out);
  }
  const bool had_workers = !Alive().empty();
  const std::string left =
      Concat("those that are left are killed in ", Milliseconds(rules_.grace) / 1'000, " s");
  if (had_workers && signals_ == 1) {
    out.push_back({.text = Concat(why_, ": the workers receive it; ", left,
                                  " (a second signal sends SIGTERM, a third one kills them)")});
  } else if (had_workers) {
    out.push_back({.text = Concat(why_, " again: the workers ",
                                  signals_ == 2 ? Concat("receive SIGTERM; ", left,
                                                         " (another signal kills them)")
                                                : "are killed")});
  }
  Stop(Then::kSignalled,
       signals_ == 1   ? event.signal
       : signals_ == 2 ? kTerminate
                       : kKill,
       now, out);
}

void AgentMachine::OnTime(Instant now, AgentActions& out) {
  if (now >= verdict_at_) Judge(out);
  if (now < due_ || stage_ == Stage::kEnded) return;
  due_ = Instant::Never();
  if (stage_ == Stage::kBarrier) {
    MUSTER_LAUNCH_PROBE("a node waited at the exit for too long");
    out.push_back({.text = Concat("does not know after ", Milliseconds(rules_.barrier_max) / 1'000,
                                  " s whether all others have succeeded")});
    return End(kSuccess, "all workers here have succeeded", out);
  }
  if (stage_ != Stage::kStopping) return;
  if (!killed_) {
    MUSTER_LAUNCH_PROBE("workers were killed after their grace");
    if (Planted(Bug::kNeverKilled)) return;
    return SignalAll(kKill, now, out);
  }
  for (const size_t worker : Alive())
    out.push_back({.text = Concat("worker ", worker, " cannot be killed, and is left behind")});
  AllGone(out);
}

// ----------------------------------------------------------------------------------------------
// reactions

void AgentMachine::Join(AgentActions& out) {
  stage_ = Stage::kJoining;
  due_ = Instant::Never();
  out.push_back({.kind = AgentAction::Kind::kJoin});
}

void AgentMachine::Start(AgentActions& out) {
  stage_ = Stage::kWorking;
  alive_.assign(rules_.workers, true);
  failures_.clear();
  killed_ = false;
  out.push_back({.kind = AgentAction::Kind::kStart, .restarts = restarts_});
}

void AgentMachine::WorkersFailed(Instant now, AgentActions& out) {
  const WorkerFailure& first = failures_.front();
  why_ = Concat("worker ", first.worker, " ", HowItEnded(first.code));
  if (!alone_) {
    out.push_back({.kind = AgentAction::Kind::kReportFailure});
    verdict_at_ = now + rules_.verdict_patience;
  }
  Stop(Then::kUndecided, kTerminate, now, out);
  if (alone_) Judge(out);
}

void AgentMachine::OnBlame(const AgentEvent& event, Instant now) {
  if (stage_ != Stage::kStopping || then_ != Then::kUndecided || event.text.empty()) return;
  // The node that failed first joins again or ends the job: both notify this agent.
  MUSTER_LAUNCH_PROBE("workers of another node had failed before");
  if (Planted(Bug::kBlameIgnored)) return;
  why_ = event.text;
  verdict_at_ = now + rules_.grace + rules_.others_patience;
}

// The failure is this node's: it costs a restart, or ends the job.
void AgentMachine::Judge(AgentActions& out) {
  verdict_at_ = Instant::Never();
  if (stage_ != Stage::kStopping || then_ != Then::kUndecided) return;
  if (restarts_ < rules_.max_restarts) {
    if (!Planted(Bug::kFailureUncounted)) ++restarts_;
    then_ = Then::kRestart;
  } else {
    then_ = Then::kFail;
    Close(out);
  }
  if (Alive().empty()) AllGone(out);
}

void AgentMachine::Stop(Then then, int signal, Instant now, AgentActions& out) {
  const bool stopping = std::exchange(stage_, Stage::kStopping) == Stage::kStopping;
  if (!stopping) signalled_at_ = now;
  then_ = stopping ? std::max(then_, then) : then;
  if (Alive().empty() || Planted(Bug::kLastUnended)) return AllGone(out);
  // Workers that have been signalled are signalled again only for a signal to the agent.
  if (!stopping || then == Then::kSignalled) SignalAll(signal, now, out);
}

void AgentMachine::SignalAll(int signal, Instant now, AgentActions& out) {
  killed_ = signal == kKill;
  due_ = now + (killed_ ? rules_.kill_patience : rules_.grace);
  out.push_back({.kind = AgentAction::Kind::kSignal, .workers = Alive(), .signal = signal});
}

void AgentMachine::AllGone(AgentActions& out) {
  due_ = Instant::Never();
  if (then_ == Then::kUndecided) return;  // until the verdict
  verdict_at_ = Instant::Never();
  alive_.assign(rules_.workers, false);
  if (!Planted(Bug::kLastUnswept)) out.push_back({.kind = AgentAction::Kind::kSweep});
  switch (then_) {
    case Then::kUndecided:
    case Then::kRejoin:
    case Then::kRestart:
      out.push_back({.text = Concat("begins again: ", why_)});
      return Join(out);
    case Then::kFail:
      return End(kFailure, why_, out);
    case Then::kSignalled:
      // Not closed: the others may continue, and this node may come back.
      out.push_back({.kind = AgentAction::Kind::kLeave});
      return End(kFailure, why_, out);
  }
}

// Immediately: the workers here may be slow to stop, and those of other nodes wait for them.
void AgentMachine::Close(AgentActions& out) {
  if (std::exchange(closed_, true)) return;
  out.push_back({.kind = AgentAction::Kind::kClose, .text = why_});
}

void AgentMachine::EnterBarrier(Instant now, AgentActions& out) {
  stage_ = Stage::kBarrier;
  due_ = now + rules_.barrier_max;
  out.push_back({.kind = AgentAction::Kind::kSweep});
  out.push_back({.kind = AgentAction::Kind::kEnterBarrier});
}

void AgentMachine::End(int status, std::string why, AgentActions& out) {
  stage_ = Stage::kEnded;
  due_ = verdict_at_ = Instant::Never();
  out.push_back({.kind = AgentAction::Kind::kEnd, .status = status, .text = std::move(why)});
}

std::vector<size_t> AgentMachine::Alive() const {
  std::vector<size_t> workers;
  for (size_t i = 0; i < alive_.size(); ++i) {
    if (alive_[i]) workers.push_back(i);
  }
  return workers;
}

}  // namespace muster
