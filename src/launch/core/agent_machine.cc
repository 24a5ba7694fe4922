#include "launch/core/agent_machine.h"

#include <csignal>
#include <utility>

#include "base/instrumented.h"
#include "base/text.h"
#include "launch/core/signals.h"

namespace muster {

namespace {

constexpr int kSuccess = 0;
constexpr int kFailure = 1;

constexpr const char* kAllHereSucceeded = "all workers here have succeeded";

}  // namespace

AgentActions AgentMachine::Step(const AgentEvent& event, Instant now) {
  AgentActions out;
  if (stage_ != Stage::kEnded) Handle(event, now, out);
  return out;
}

void AgentMachine::Handle(const AgentEvent& event, Instant now, AgentActions& out) {
  using Kind = AgentEvent::Kind;
  switch (event.kind) {
    case Kind::kBegin:
      return Join(out);
    case Kind::kJoined:
      alone_ = event.alone;
      return stage_ == Stage::kJoining ? Start(out) : void();
    case Kind::kJoinFailed:
      return stage_ == Stage::kJoining ? End(kFailure, event.text, out) : void();
    case Kind::kNotNeeded:
      if (stage_ != Stage::kJoining) return;
      MUSTER_LAUNCH_PROBE("a spare was not needed");
      return End(kSuccess, "the job has ended without this node", out);
    case Kind::kWorkerEnded:
      return OnWorkerEnded(event, now, out);
    case Kind::kWorkerStuck:
      return OnWorkerStuck(event, now, out);
    case Kind::kStartFailed:
      // Another attempt would fail as well: the program does not exist, or is not executable.
      MUSTER_LAUNCH_PROBE("a worker could not be started");
      why_ = event.text;
      Close(out);
      return Stop(Then::kFail, SIGTERM, now, out);
    case Kind::kMembership:
      return OnMembership(event, now, out);
    case Kind::kBlame:
      return OnBlame(event, now);
    case Kind::kJobFailed:
      return OnJobFailed(event, now, out);
    case Kind::kBarrierPassed:
      if (stage_ != Stage::kBarrier) return;
      why_ = "all workers have succeeded";
      Close(out);
      return End(kSuccess, why_, out);
    case Kind::kBarrierFailed:
      if (stage_ != Stage::kBarrier) return;
      MUSTER_LAUNCH_PROBE("a node at the exit could not reach the others");
      return EndWithoutOthers(
          Concat("does not know whether all others have succeeded: ", event.text), out);
    case Kind::kNotice:
      out.push_back({.text = event.text});
      return;
    case Kind::kSignal:
      return OnSignal(event, now, out);
    case Kind::kTime:
      return OnTime(now, out);
  }
}

// ----------------------------------------------------------------------------------------------
// events

void AgentMachine::OnWorkerEnded(const AgentEvent& event, Instant now, AgentActions& out) {
  if (alive_.erase(event.worker) == 0) return;
  const bool stopping = stage_ == Stage::kStopping;
  if (event.code != 0) {
    failures_.push_back({.worker = event.worker, .code = event.code, .at = now});
    if (stopping) failures_.back().signalled_at = signalled_at_;
    if (stopping && !alone_) out.push_back({.kind = AgentAction::Kind::kReportFailure});
  }
  if (stopping) {
    if (alive_.empty()) AllGone(out);
  } else if (event.code != 0) {
    WorkersFailed(now, out);
  } else if (alive_.empty()) {
    EnterBarrier(now, out);
  }
}

// It may hold a device that another worker on this node would need: this node does not join again,
// and the others continue without it.
void AgentMachine::OnWorkerStuck(const AgentEvent& event, Instant now, AgentActions& out) {
  const bool is_final = stage_ == Stage::kStopping && then_ >= Then::kLeave;
  if (is_final || !alive_.contains(event.worker)) return;
  why_ = event.text;
  out.push_back({.text = why_});
  Stop(Then::kLeave, SIGTERM, now, out);
}

// A change of membership costs no restart: no worker here has failed by itself.
void AgentMachine::OnMembership(const AgentEvent& event, Instant now, AgentActions& out) {
  if (stage_ == Stage::kWorking || (stage_ == Stage::kStopping && then_ == Then::kUndecided)) {
    if (then_ == Then::kUndecided && stage_ == Stage::kStopping)
      MUSTER_LAUNCH_PROBE("members came or went before the verdict on a failure");
    if (Planted(Bug::kMembershipCosts)) ++restarts_;
    why_ = event.text;
    verdict_at_ = Instant::Never();
    Stop(Then::kRejoin, SIGTERM, now, out);
  } else if (stage_ == Stage::kBarrier) {
    // Other nodes restart or are lost. The workers of this node have succeeded in any case.
    MUSTER_LAUNCH_PROBE("members came or went while a node was at the exit");
    out.push_back({.text = Concat("does not wait for the others any longer: ", event.text)});
    out.push_back({.kind = AgentAction::Kind::kLeave});
    End(kSuccess, kAllHereSucceeded, out);
  }
}

void AgentMachine::OnJobFailed(const AgentEvent& event, Instant now, AgentActions& out) {
  if (stage_ == Stage::kBarrier) {
    MUSTER_LAUNCH_PROBE("the job failed while a node was at the exit");
    return EndWithoutOthers(Concat("others have failed: ", event.text), out);
  }
  if (stage_ == Stage::kJoining) return End(kFailure, event.text, out);
  if (stage_ == Stage::kStopping) MUSTER_LAUNCH_PROBE("the job failed while workers were stopped");
  why_ = event.text;
  closed_ = true;
  Stop(Then::kFail, SIGTERM, now, out);
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
  const bool had_workers = !alive_.empty();
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
       : signals_ == 2 ? SIGTERM
                       : SIGKILL,
       now, out);
}

void AgentMachine::OnTime(Instant now, AgentActions& out) {
  if (now >= verdict_at_) Judge(out);
  if (now < due_ || stage_ == Stage::kEnded) return;
  due_ = Instant::Never();
  if (stage_ == Stage::kBarrier) {
    MUSTER_LAUNCH_PROBE("a node waited at the exit for too long");
    return EndWithoutOthers(Concat("does not know after ", Milliseconds(rules_.barrier_max) / 1'000,
                                   " s whether all others have succeeded"),
                            out);
  }
  if (stage_ != Stage::kStopping) return;
  if (!killed_) {
    MUSTER_LAUNCH_PROBE("workers were killed after their grace");
    if (Planted(Bug::kNeverKilled)) return;
    return SignalAll(SIGKILL, now, out);
  }
  for (const size_t worker : alive_)
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
  for (size_t worker = 0; worker < rules_.workers; ++worker) alive_.insert(worker);
  failures_.clear();
  killed_ = false;
  out.push_back({.kind = AgentAction::Kind::kStart, .restarts = restarts_});
}

void AgentMachine::WorkersFailed(Instant now, AgentActions& out) {
  const WorkerFailure& first = failures_.front();
  why_ = Concat("worker ", first.worker,
                first.code < 0 ? Concat(" died by signal ", -first.code)
                               : Concat(" ended with status ", first.code));
  if (!alone_) {
    out.push_back({.kind = AgentAction::Kind::kReportFailure});
    verdict_at_ = now + rules_.verdict_patience;
  }
  Stop(Then::kUndecided, SIGTERM, now, out);
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
  if (alive_.empty()) AllGone(out);
}

void AgentMachine::Stop(Then then, int signal, Instant now, AgentActions& out) {
  const bool stopping = std::exchange(stage_, Stage::kStopping) == Stage::kStopping;
  if (!stopping) signalled_at_ = now;
  then_ = stopping ? std::max(then_, then) : then;
  if (alive_.empty() || Planted(Bug::kLastUnended)) return AllGone(out);
  // Workers that have been signalled are signalled again only for a signal to the agent.
  if (!stopping || then == Then::kSignalled) SignalAll(signal, now, out);
}

void AgentMachine::SignalAll(int signal, Instant now, AgentActions& out) {
  killed_ = signal == SIGKILL;
  due_ = now + (killed_ ? rules_.kill_patience : rules_.grace);
  out.push_back({.kind = AgentAction::Kind::kSignal,
                 .workers = {alive_.begin(), alive_.end()},
                 .signal = signal});
}

void AgentMachine::AllGone(AgentActions& out) {
  due_ = Instant::Never();
  if (then_ == Then::kUndecided) return;  // until the verdict
  verdict_at_ = Instant::Never();
  alive_.clear();
  if (!Planted(Bug::kLastUnswept)) out.push_back({.kind = AgentAction::Kind::kSweep});
  if (then_ == Then::kRejoin || then_ == Then::kRestart) {
    out.push_back({.text = Concat("begins again: ", why_)});
    return Join(out);
  }
  // Not closed: the others may continue, and this node may come back.
  if (then_ != Then::kFail) out.push_back({.kind = AgentAction::Kind::kLeave});
  End(kFailure, why_, out);
}

// Immediately: the workers here may be slow to stop, and those of other nodes wait for them.
void AgentMachine::Close(AgentActions& out) {
  if (std::exchange(closed_, true)) return;
  out.push_back({.kind = AgentAction::Kind::kClose, .text = why_});
}

void AgentMachine::EnterBarrier(Instant now, AgentActions& out) {
  stage_ = Stage::kBarrier;
  due_ = now + rules_.barrier_max;
  out.push_back({.kind = AgentAction::Kind::kSucceeded});
  out.push_back({.kind = AgentAction::Kind::kEnterBarrier});
}

void AgentMachine::EndWithoutOthers(std::string note, AgentActions& out) {
  out.push_back({.text = std::move(note)});
  End(kSuccess, kAllHereSucceeded, out);
}

void AgentMachine::End(int status, std::string why, AgentActions& out) {
  stage_ = Stage::kEnded;
  due_ = verdict_at_ = Instant::Never();
  out.push_back({.kind = AgentAction::Kind::kEnd, .status = status, .text = std::move(why)});
}

}  // namespace muster
