#include "sim/launcher.h"

#include <utility>

#include "base/text.h"
#include "sim/agent.h"
#include "sim/sockets.h"
#include "sim/world.h"

namespace muster::sim {

namespace {

// A notified node works only until its threads have run: they are woken at once.
constexpr Duration kReactionTime = 1ms;

AgentOptions OptionsOf(const Plan& plan, size_t index) {
  const LaunchPlan& launch = plan.launch;
  const NodeRole role = plan.RoleOf(index);
  return {.rules = {.workers = static_cast<size_t>(role.workers),
                    .max_restarts = launch.max_restarts,
                    .grace = launch.grace,
                    .kill_patience = launch.kill_patience,
                    .barrier_max = launch.barrier_max,
                    .verdict_patience = launch.verdict_patience,
                    .others_patience = launch.others_patience},
          .rendezvous = {.role = role,
                         .are_identical = launch.are_identical,
                         .contact_max = launch.contact_max},
          .shutdown_max = launch.farewell_max};
}

}  // namespace

/// The real handler; its launcher observes the calls.
class Launcher::WatchedHandler final : public RendezvousHandler {
 public:
  WatchedHandler(std::unique_ptr<RendezvousHandler> handler, Launcher& launcher)
      : handler_(std::move(handler)), launcher_(launcher) {}

  std::string GetBackend() const override { return handler_->GetBackend(); }
  std::string GetRunId() const override { return handler_->GetRunId(); }
  bool IsHost() const override { return handler_->IsHost(); }
  bool UseAgentStore() const override { return handler_->UseAgentStore(); }
  RendezvousInfo NextRendezvous() override {
    launcher_.inbox_ = {};
    try {
      RendezvousInfo info = handler_->NextRendezvous();
      if (IsAlive()) launcher_.Joined(info);
      return info;
    } catch (const RendezvousClosedError&) {
      if (IsAlive()) launcher_.TurnedAway(false);
      throw;
    } catch (const RendezvousGracefulExitError&) {
      if (IsAlive()) launcher_.TurnedAway(true);
      throw;
    }
  }
  bool IsClosed() override { return handler_->IsClosed(); }
  void SetClosed(std::string_view reason) override {
    if (IsAlive()) launcher_.Closing();
    handler_->SetClosed(reason);
  }
  int64_t NumNodesWaiting() override { return handler_->NumNodesWaiting(); }
  std::optional<MembershipEvent> AwaitEvent(std::chrono::milliseconds time) override {
    launcher_.inbox_.listens = true;
    std::optional<MembershipEvent> event = handler_->AwaitEvent(time);
    launcher_.inbox_.listens = false;
    if (!IsAlive()) return event;
    if (event) launcher_.inbox_.Add(*event);
    launcher_.world_.checkers().SeeClosed(Concat("node ", launcher_.index_), handler_->IsClosed(),
                                          launcher_.knew_closed_);
    if (event) launcher_.OnEvent(*event);
    return event;
  }
  bool StopWaiting() override { return handler_->StopWaiting(); }
  void Leave() override { handler_->Leave(); }
  bool Shutdown() override { return handler_->Shutdown(); }
  WaitReport DescribeWait() const override {
    WaitReport report = handler_->DescribeWait();
    if (report.phase == WaitReport::Phase::kContact) launcher_.cut_off_in_ = launcher_.round_;
    return report;
  }

 private:
  bool IsAlive() const { return launcher_.process_.alive(); }

  const std::unique_ptr<RendezvousHandler> handler_;
  Launcher& launcher_;
};

Launcher::Launcher(World& world, SimProcess& process, size_t index, uint64_t seed)
    : world_(world),
      process_(process),
      index_(index),
      prng_(seed),
      workers_(world, process, index, static_cast<size_t>(world.plan().RoleOf(index).workers),
               prng_.Next()) {
  workers_.on_end = [this](const SimWorkers::End& end) { OnWorkerEnd(end); };
  workers_.on_end_noticed = [this](const SimWorkers::End& end) {
    if (agent_ != nullptr) agent_->OnWorkerEnded(end.worker, end.pid, end.code);
  };
}

void Launcher::Main() {
  try {
    WatchedHandler handler(MakeCoordinatedHandler(world_.plan(), index_, process_), *this);
    muster::Agent agent(OptionsOf(world_.plan(), index_), handler, workers_, *this, process_);
    agent_ = &agent;
    handler_ = &handler;
    const int status = agent.Run();
    agent_ = nullptr;
    handler_ = nullptr;
    if (process_.alive()) Ended(status, agent.why());
  } catch (const ProcessIsDead&) {
  }
  agent_ = nullptr;
  handler_ = nullptr;
}

Inbox Launcher::inbox() const {
  Inbox inbox = inbox_;
  if (handler_ != nullptr) inbox.waiting = handler_->NumNodesWaiting();
  return inbox;
}

void Launcher::Violate(const std::string& what) {
  world_.checkers().Violate(Concat("node ", index_, ": ", what));
}

// ----------------------------------------------------------------------------------------------
// what happens to it

void Launcher::Signal(int signal) {
  if (agent_ == nullptr) return;
  was_signalled_ = true;
  world_.Note(index_, Concat("its launcher is sent signal ", signal));
  agent_->OnSignal(signal);
}

void Launcher::OnKilled() {
  const bool had_workers = workers_.living() > 0;
  workers_.EndAll();
  if (!attempt_) return;
  world_.job().SeeNodeLost(attempt_->id, Now());
  if (had_workers) world_.NotifyPeers(index_, attempt_->id);
}

void Launcher::OnPeersLost(RoundId id) {
  if (attempt_ && attempt_->id == id) workers_.NoticeLoss();
}

void Launcher::NotifiedOut() { ExpectStop("it is out of it"); }

void Launcher::ExpectStop(const std::string& why) {
  process_.scheduler().After(kReactionTime, [this, id = round_, why] {
    if (!process_.alive() || process_.paused() || !attempt_ || attempt_->id != id) return;
    if (workers_.living() > 0 && !workers_.was_notified())
      Violate(
          Concat("its workers continue in round ", id.round, " although it was notified: ", why));
  });
}

void Launcher::OnWorkerEnd(const SimWorkers::End& end) {
  if (!attempt_) return;
  if (workers_.AllSucceeded()) world_.job().SeeSuccess(index_, attempt_->id);
  if (end.code == 0) return;
  if (!end.was_notified && !attempt_->failed_at) attempt_->failed_at = Now();
  world_.NotifyPeers(index_, attempt_->id);
}

// ----------------------------------------------------------------------------------------------
// what its agent does

// Why it joins again: because of others, or because its own workers have failed and no other node
// is to blame. Only the second reason counts a restart, and it counts once.
void Launcher::OnJoining() {
  if (!process_.alive()) return;
  is_joining_ = true;
  if (!attempt_) return;
  const int64_t restarts = agent_->machine().restarts();
  const int64_t more = restarts - attempt_->restarts;
  if (more < 0 || more > 1)
    Violate(Concat("after ", attempt_->restarts, " restarts there are ", restarts));
  if (more == 1 && !attempt_->failed_at)
    Violate("it has counted a restart, and no worker of its own had failed by itself");
  if (more == 0 && notified_of_ != attempt_->id && cut_off_in_ != attempt_->id)
    Violate("it joins again without a reason of the others, and has not counted it");
  if (restarts > world_.plan().launch.max_restarts)
    Violate(Concat("that is restart ", restarts, "; max_restarts is ",
                   world_.plan().launch.max_restarts));
  if (more == 1 && attempt_->failed_at)
    world_.job().SeePaid(index_, attempt_->id, *attempt_->failed_at);
  restarts_ = restarts;
  attempt_.reset();
}

Result<std::vector<WorkerCommand>> Launcher::Prepare(const Placement& place, int64_t restarts) {
  if (!process_.alive()) return Error{Code::kUnavailable, "the process is dead"};
  is_joining_ = false;
  if (workers_.living() > 0 || workers_.left_behind() > 0)
    Violate(Concat("it starts workers for round ", place.round, ", and ", workers_.living(),
                   " of the last attempt live, and ", workers_.left_behind(),
                   " processes that they left"));
  if (restarts != restarts_)
    Violate(Concat("it gives its workers ", restarts, " restarts, after ", restarts_));
  if (place.round != round_.round)
    Violate(Concat("it came into round ", round_.round, ", and starts workers for ", place.round));
  attempt_ = {.id = round_, .restarts = restarts};
  world_.job().SeeStart(index_, round_, place);
  const LaunchPlan& launch = world_.plan().launch;
  // The same for all nodes of the round.
  Prng of_round(world_.plan().seed ^ (static_cast<uint64_t>(round_.round) << 20) ^ round_.epoch);
  const auto half = static_cast<uint64_t>(launch.work_max.count()) / 2;
  workers_.BeginAttempt(Duration(static_cast<int64_t>(half + of_round.Below(half))));
  return std::vector<WorkerCommand>(static_cast<size_t>(world_.plan().RoleOf(index_).workers));
}

void Launcher::OnStarted(size_t, int64_t) {}
void Launcher::OnEnded(size_t, int64_t, ExitCode) {}

std::string Launcher::DescribeCause(const std::vector<WorkerFailure>& failures) {
  const WorkerFailure& failure = failures.front();
  if (failure.signalled_at) return "";
  return Concat("worker ", failure.worker, " of node ", index_, ", pid ", process_.process_id(),
                ", code ", failure.code, " at ", failure.at.since_start.count());
}

void Launcher::OnAttemptOver(const std::vector<WorkerFailure>& failures) {
  if (!process_.alive()) return;
  if (workers_.living() > 0) Violate("an attempt is over, and not all of its workers are gone");
  Log(Concat("the attempt is over, with ", failures.size(), " failures"));
}

void Launcher::Log(const std::string& line) {
  if (!process_.alive()) return;
  last_words_ = line;
  world_.Note(index_, Concat("its launcher: ", line));
}

void Launcher::Ended(int status, const std::string& why) {
  Log(Concat("ends with ", status, ": ", why));
  if (workers_.living() > 0 || workers_.left_behind() > 0)
    Violate(Concat("its launcher has ended; ", workers_.living(), " of its workers live, and ",
                   workers_.left_behind(), " processes that they left"));
  const bool all_succeeded = attempt_ && workers_.AllSucceeded();
  if (status == 0 && !all_succeeded && !was_spare_)
    Violate(Concat("its launcher ends with 0 (", why, "), and its workers have not succeeded"));
  if (status != 0 && all_succeeded && !workers_.was_notified() && !was_signalled_)
    Violate(Concat("its launcher ends with ", status, " (", why,
                   "), and all of its workers have succeeded"));
  if (status == 0 && attempt_ && why == "all workers have succeeded")
    world_.job().SeeAllSucceeded(index_, attempt_->id);
  attempt_.reset();
  world_.LauncherEnded(index_, status);
}

// ----------------------------------------------------------------------------------------------
// what it sees of the handler

void Launcher::Joined(const RendezvousInfo& info) {
  world_.checkers().SeePlace(Concat("node ", index_), info.round, knew_closed_);
  const Node node{process_.network().address(process_.host()), process_.process_id(), 0};
  const std::optional<Epoch> epoch = world_.NodeJoined(index_, node, round_.round, info);
  round_ = {epoch.value_or(0), info.round};
  inbox_ = {.round = info.round};
}

void Launcher::TurnedAway(bool is_spare) {
  was_spare_ = is_spare;
  world_.CheckRefused(index_);
}

void Launcher::OnEvent(const MembershipEvent& event) {
  world_.Note(index_, event.ToString());
  ExpectStop(event.ToString());
  if (event.kind == MembershipEvent::Kind::kClosed) return;
  if (event.round != round_.round)
    Violate(Concat("in round ", round_.round, " it is notified of round ", event.round));
  notified_of_ = round_;
}

// For all nodes, permanently: all workers are done, or no restart is left.
void Launcher::Closing() {
  if (!attempt_ || workers_.AllSucceeded() || workers_.has_refused()) return;
  const int64_t most = world_.plan().launch.max_restarts;
  if (!attempt_->failed_at) return Violate("it ends the job, and none of its workers had failed");
  if (attempt_->restarts != most)
    Violate(Concat("it ends the job after ", attempt_->restarts, " of ", most, " restarts"));
  world_.job().SeePaid(index_, attempt_->id, *attempt_->failed_at);
}

std::string Launcher::HowItStands() const {
  return Concat(is_joining_ ? "joins after"
                : attempt_  ? "is in"
                            : "starts; was in",
                " round ", round_.round, " with ", workers_.living(), " workers (last words '",
                last_words_, "')");
}

}  // namespace muster::sim
