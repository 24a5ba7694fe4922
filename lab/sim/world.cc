#include "sim/world.h"

#include <algorithm>
#include <utility>

#include "base/encoding.h"
#include "base/text.h"
#include "rendezvous/wire/state_codec.h"
#include "sim/fault_injector.h"

namespace muster::sim {

namespace {

constexpr Duration kLookAtAll = 100ms;
constexpr Duration kTurn = 10ms;
constexpr uint32_t kFirstPid = 1'000;

std::string AddressOf(size_t index) {
  return Concat("10.", 1 + index / 65'536, ".", index / 256 % 256, ".", index % 256);
}

ClockError DrawClock(const Faults& faults, Prng& prng) {
  const auto within = [&](Duration most) {
    return Duration(static_cast<int64_t>(prng.Below(2 * static_cast<uint64_t>(most.count())))) -
           most;
  };
  return {.start = 1h + within(30min),
          .drift_ppm = faults.drift ? static_cast<int64_t>(prng.Below(20'001)) - 10'000 : 0,
          .wall_offset = faults.skew ? within(1h) : Duration(0)};
}

const char* HowItDies(Network::Ending ending) {
  return ending == Network::Ending::kNotified ? "dies" : "loses its power";
}

}  // namespace

World::World(const Plan& plan)
    : plan_(plan),
      prng_(plan.seed ^ 0x5eed),
      network_(scheduler_, plan.network, prng_.Next(), trace_),
      checkers_(plan),
      job_(plan_, checkers_),
      members_(plan_, checkers_) {
  server_host_ = network_.AddHost(kServer);
  for (size_t i = 0; i < static_cast<size_t>(plan.nodes); ++i)
    places_.push_back({.host = network_.AddHost(AddressOf(i))});
  if (plan.driver == Driver::kEtcd) {
    MakeEtcd();
  } else if (IsCoordinated(plan.driver) && plan.nodes <= kFewNodes) {
    watch_.emplace([this](SimProcess& process, int64_t round) { NotifiedOut(process, round); });
  }
}

World::~World() {
  network_.on_arrival = nullptr;
  network_.before_read = nullptr;
  for (const auto& process : processes_) process->Kill(Network::Ending::kSilent);
  host_.reset();
  etcd_.reset();
}

void World::Note(size_t node, const std::string& line) {
  trace_.Note(scheduler_.now(), [&] { return Concat("node ", node, ": ", line); });
}

// ----------------------------------------------------------------------------------------------
// processes

void World::MakeEtcd() {
  const Faults& faults = plan_.faults;
  etcd_ = std::make_unique<SimEtcd>(
      network_, trace_,
      EtcdFaults{
          .slow = faults.slow_write, .lost = faults.lost_write, .watch_delay = faults.watch_delay},
      prng_.Next());
  overseer_ = std::make_unique<EtcdOverseer>(
      *etcd_, checkers_, kEtcdPrefix, kRun, [this](const std::string& line) {
        trace_.Note(scheduler_.now(), [&] { return Concat("etcd: ", line); });
      });
  etcd_->on_change = [this](const SimProcess* by, int64_t revision) {
    overseer_->OnChange(by, revision);
    epoch_ = overseer_->epoch();
    if (overseer_->was_closed() && !closed_in_) closed_in_ = 1;
  };
  etcd_->on_lease_lost = [this](const SimProcess& process, int64_t lease) {
    // Notices about an earlier life may arrive when the node has long been back.
    if (overseer_->SessionOf(process).lease == lease) NotifiedOut(process);
  };
  // A node measures its lease itself, and its clock may be slower than etcd's.
  const Duration allowed = plan_.MissedWithin() / 50 + 10ms;
  overseer_->on_expired = [this, allowed](const SimProcess& process, int64_t session) {
    scheduler_.After(allowed, [this, &process, session] {
      const auto place = std::ranges::find(places_, &process, &Place::process);
      if (place == places_.end()) return;
      // If it stands still, this runs when it continues. It may have been back since, and be out
      // again.
      place->process->Do([this, &process, session] {
        if (overseer_->SessionOf(process).created == session) NotifiedOut(process);
      });
    });
  };
}

void World::NotifiedOut(const SimProcess& process, int64_t round) {
  for (const Place& place : places_) {
    if (place.process != &process) continue;
    if (place.agent != nullptr) place.agent->NotifiedOut(round);
    if (place.launcher != nullptr) place.launcher->NotifiedOut();
  }
}

void World::StartServer() {
  trace_.Note(scheduler_.now(), [] { return std::string("the server starts"); });
  network_.PowerOn(server_host_);
  processes_.push_back(std::make_unique<SimProcess>(scheduler_, network_, server_host_, 1,
                                                    DrawClock(plan_.faults, prng_), prng_.Next()));
  server_ = processes_.back().get();
  if (etcd_) return etcd_->Serve(*server_);
  server_->after_event = [this] { LookAtState(); };
  ++epoch_;
  host_ = std::make_unique<StoreHost>(
      *server_, kPort,
      StoreHostOptions{.loops = plan_.server_loops,
                       .coordinator = {.ended_kept = plan_.run_kept,
                                       .entropy = [server = server_] { return server->Seed(); },
                                       .has_store = true}});
  if (!watch_) return;
  network_.on_arrival = [this](Connection& connection, size_t side, std::string_view bytes) {
    watch_->OnArrival(connection, side, bytes);
  };
  network_.before_read = [this](Connection& connection, size_t side) {
    if (side == Connection::kServer && connection.owner(side) == server_) NoteIfStale(connection);
  };
}

void World::EndServer(Network::Ending ending) {
  trace_.Note(scheduler_.now(), [&] { return Concat("the server ", HowItDies(ending)); });
  server_->Kill(ending);
  host_.reset();
  server_ = nullptr;
}

void World::StartNode(size_t index) {
  Place& place = places_[index];
  const uint32_t pid = kFirstPid + (plan_.faults.same_pid ? 0 : place.lives);
  ++place.lives;
  trace_.Note(scheduler_.now(), [&] { return Concat("node ", index, " starts, pid ", pid); });
  network_.PowerOn(place.host);
  processes_.push_back(std::make_unique<SimProcess>(scheduler_, network_, place.host, pid,
                                                    DrawClock(plan_.faults, prng_), prng_.Next()));
  place.process = processes_.back().get();
  if (plan_.driver == Driver::kLauncher) {
    ++job_.figures.launchers;
    launchers_.push_back(std::make_unique<Launcher>(*this, *place.process, index, prng_.Next()));
    place.launcher = launchers_.back().get();
    return place.process->Start([launcher = place.launcher] { launcher->Main(); });
  }
  const bool is_torch_node = static_cast<int64_t>(index) < plan_.torch_nodes;
  agents_.push_back(
      std::make_unique<Agent>(*this, *place.process, index, is_torch_node, prng_.Next()));
  place.agent = agents_.back().get();
  place.process->Start([agent = place.agent] { agent->Main(); });
}

void World::EndNode(size_t index, Network::Ending ending) {
  Place& place = places_[index];
  trace_.Note(scheduler_.now(), [&] { return Concat("node ", index, " ", HowItDies(ending)); });
  if (place.launcher != nullptr) place.launcher->OnKilled();
  place.process->Kill(ending);
  place.process = nullptr;
  place.agent = nullptr;
  place.launcher = nullptr;
}

// ----------------------------------------------------------------------------------------------
// what is seen

void World::NoteIfStale(const Connection& connection) {
  host_->sessions().Inspect([&](const Coordinator& coordinator) {
    if (watch_->IsStale(connection, coordinator, kRun))
      before_stale_ = PictureOf(*coordinator.Find(kRun));
  });
}

// A run that the server has forgotten, a closed one that no node is connected to, and one that a
// new server does not know, come back as other runs, with rounds and keys of their own.
void World::NoteRun(const Coordinator::Run& run) {
  const std::pair<const SimProcess*, uint64_t> which(server_, run.serial);
  if (which == run_) return;
  if (run_.first == server_) {  // a new server has its number already
    ++epoch_;
    if (connected_ > 0)
      checkers_.Violate(Concat("a run began beside one with ", connected_, " nodes"));
  }
  run_ = which;
  if (!generations_.insert(run.generation.ToString()).second)
    checkers_.Violate(Concat("the run of life ", epoch_, " has the keys of an older one"));
}

void World::LookAtState() {
  if (IsCoordinated(plan_.driver)) {
    host_->sessions().Inspect([this](const Coordinator& coordinator) {
      const Coordinator::Run* run = coordinator.Find(kRun);
      if (run == nullptr) return;
      NoteRun(*run);
      connected_ = run->by_silence.size();
      checkers_.SeeState(epoch_, run->state);
      if (run->state.closed && !closed_in_) closed_in_ = epoch_;
      if (run->state.closed) job_.SeeClosed(epoch_, run->state);
      if (before_stale_) checkers_.SeeStale(*before_stale_, PictureOf(*run));
      before_stale_.reset();
      members_.Look(epoch_, *run, scheduler_.now(), server_->clock().Now(),
                    !IsDisturbed(server_host_),
                    [this](const Coordinator::Member& member) { return InboxOf(member); });
    });
    return;
  }
  std::string stored = host_->Peek(Concat("torch.rendezvous.", kRun));
  if (stored == document_) return;
  document_ = std::move(stored);
  if (document_.empty()) return;  // a server that was just started
  const Result<std::string> bytes = Base64Decode(document_);
  if (!bytes) return checkers_.Violate("the document is not base64");
  if (*bytes == "canimadam") return;  // "nothing is stored", as PyTorch says it
  const Result<RendezvousState> state = wire::ReadState(*bytes);
  if (!state) return checkers_.Violate(Concat("the document: ", state.error().message));
  document_round_ = state->round;
  checkers_.SeeState(epoch_, *state);
  if (state->closed && !closed_in_) closed_in_ = epoch_;
}

void World::Disturb(HostId host, WorldTime until) {
  WorldTime& lasts = disturbed_[host];
  lasts = std::max(lasts, until);
}

bool World::IsDisturbed(HostId host) const {
  const auto found = disturbed_.find(host);
  return found != disturbed_.end() && found->second >= scheduler_.now();
}

std::optional<Inbox> World::InboxOf(const Coordinator::Member& member) const {
  if (IsDisturbed(server_host_) || !watch_ || !watch_->IsConnected(member)) return std::nullopt;
  for (const Place& place : places_) {
    if (place.process == nullptr || network_.address(place.host) != member.node.addr) continue;
    if (IsDisturbed(place.host) || place.process->process_id() != member.node.pid)
      return std::nullopt;
    if (place.launcher != nullptr) return place.launcher->inbox();
    return place.agent->inbox();
  }
  return std::nullopt;
}

std::optional<Epoch> World::NodeJoined(size_t index, const Node& node, int64_t round_before,
                                       const RendezvousInfo& info) {
  Note(index, Concat("is rank ", info.rank, " of ", info.world_size, " in round ", info.round));
  trace_.Note(scheduler_.now(), index, Concat("joined ", info.round, " ", info.rank));
  const std::optional<Epoch> epoch =
      checkers_.SeeJoined({.who = Concat("node ", index),
                           .node = node,
                           .is_torch_node = static_cast<int64_t>(index) < plan_.torch_nodes,
                           .known_to = epoch_,
                           .round_before = round_before,
                           .info = info});
  return epoch;
}

void World::NodeEnded(size_t index) {
  Note(index, "is not needed any more");
  trace_.Note(scheduler_.now(), index, "ended");
  places_[index].ended = true;
  CheckRefused(index);
}

void World::CheckRefused(size_t index) {
  if (!closed_in_)
    checkers_.Violate(Concat("node ", index, " was refused, and no node had closed"));
}

void World::NotifyPeers(size_t index, RoundId id) {
  for (size_t i = 0; i < places_.size(); ++i) {
    if (i != index && places_[i].launcher != nullptr) places_[i].launcher->OnPeersLost(id);
  }
}

// Its process ends with it. While there are faults it may be restarted, as by a cluster manager.
void World::LauncherEnded(size_t index, int status) {
  trace_.Note(scheduler_.now(), index, Concat("ended ", status));
  places_[index].ended = true;
  if (status == 0) ++job_.figures.succeeded;
  const bool again = status != 0 && troubled_ && plan_.launch.starts_again;
  const Duration pause(static_cast<int64_t>(prng_.Below(3'000'000'000)));
  scheduler_.After(0s, [this, index, again, pause, process = places_[index].process] {
    if (places_[index].process != process) return;  // killed at the same moment
    EndNode(index, Network::Ending::kNotified);
    if (!again || scheduler_.now() + pause >= plan_.trouble) return;
    scheduler_.After(pause, [this, index] {
      places_[index].ended = false;
      StartNode(index);
    });
  });
}

int64_t World::WorkingIn(int64_t round) const {
  return std::ranges::count_if(places_, [&](const Place& place) {
    return place.agent != nullptr && place.agent->stage() == Agent::Stage::kWorking &&
           place.agent->round() == round;
  });
}

std::optional<int64_t> World::TogetherIn() const {
  const Agent* last = nullptr;  // an agent in the latest round
  int64_t living = 0;
  for (const Place& place : places_) {
    if (place.ended) continue;
    ++living;
    if (place.agent->stage() != Agent::Stage::kWorking) continue;
    if (last == nullptr || place.agent->round() > last->round()) last = place.agent;
  }
  // Closed: all nodes were notified. If the server has died since and forgot that it was closed,
  // nodes that were not notified continue if they are enough. Otherwise: a round of all nodes, or
  // of as many as allowed.
  const bool is_forgotten = closed_in_ && *closed_in_ < epoch_;
  if (closed_in_ && (living == 0 || (is_forgotten && living < plan_.settings.min_nodes)))
    return kClosed;
  if ((closed_in_ && !is_forgotten) || last == nullptr) return std::nullopt;
  // A round that etcd does not know (any more) does not count.
  if (overseer_ && overseer_->Round() != last->round()) return std::nullopt;
  const int64_t together = WorkingIn(last->round());
  // PyTorch's nodes may have another view of the size of a round.
  if (together != std::min(living, plan_.settings.max_nodes) ||
      (plan_.torch_nodes == 0 && together != last->world_size()))
    return std::nullopt;
  return last->round();
}

void World::PassUntil(WorldTime until) {
  while (checkers_.violation().empty() && scheduler_.now() < until) {
    const WorldTime next = on_turn ? std::min(scheduler_.now() + kTurn, until) : until;
    while (checkers_.violation().empty() && scheduler_.Step(next)) {
    }
    if (!checkers_.violation().empty()) return;
    scheduler_.RunUntil(next);
    if (on_turn) on_turn();
  }
}

bool World::ComeTogether(WorldTime within) {
  std::optional<int64_t> round;
  WorldTime since = scheduler_.now();
  while (true) {
    PassUntil(scheduler_.now() + kLookAtAll);
    if (!checkers_.violation().empty()) return false;
    const std::optional<int64_t> now = TogetherIn();
    if (now != std::exchange(round, now)) since = scheduler_.now();
    if (round && (round == kClosed || scheduler_.now() - since >= plan_.RestFor())) {
      together_since_ = since;
      return true;
    }
    if (!round && scheduler_.now() >= within) return false;
    if (round && since > within) return false;
  }
}

// PyTorch's nodes do not notice that the others declared them lost and continued without them: they
// never come together again.
bool World::ATorchNodeIsLost() const {
  for (size_t i = 0; i < static_cast<size_t>(plan_.torch_nodes); ++i) {
    const Agent* agent = places_[i].agent;
    if (agent != nullptr && agent->stage() == Agent::Stage::kWorking &&
        agent->round() < document_round_)
      return true;
  }
  return false;
}

bool World::AllEnd(WorldTime within) {
  const auto all_ended = [&] {
    return std::ranges::all_of(places_, [](const Place& place) { return place.ended; });
  };
  while (checkers_.violation().empty() && !all_ended() && scheduler_.Step(within)) {
  }
  together_since_ = scheduler_.now();
  return all_ended();
}

std::string World::HowItStands() const {
  std::string text;
  for (size_t i = 0; i < std::min(places_.size(), size_t{kFewNodes}); ++i) {
    constexpr const char* kStages[] = {"starts", "joins", "works", "has ended"};
    const Place& place = places_[i];
    if (plan_.driver == Driver::kLauncher) {
      if (place.launcher == nullptr) continue;
      text += Concat(text.empty() ? "" : "; ", "node ", i, " ", place.launcher->HowItStands());
      continue;
    }
    text += Concat(
        i == 0 ? "" : "; ", "node ", i, " ",
        place.agent == nullptr ? "is dead" : kStages[static_cast<size_t>(place.agent->stage())]);
    if (place.agent != nullptr)
      text += Concat(" (round ", place.agent->round(), ", last error '", place.agent->last_error(),
                     "')");
  }
  return text;
}

// ----------------------------------------------------------------------------------------------
// the run

void World::Heal() {
  trace_.Note(scheduler_.now(), [] { return std::string("everything is healed"); });
  troubled_ = false;
  network_.set_options({});
  network_.HealAll();
  if (server_ == nullptr) StartServer();
  server_->Resume();
  if (etcd_) etcd_->Heal();
  for (size_t i = 0; i < places_.size(); ++i) {
    Place& place = places_[i];
    if (place.process == nullptr && !place.ended) StartNode(i);
    if (place.process == nullptr) continue;
    place.process->Resume();
    if (place.launcher != nullptr) place.launcher->Heal();
  }
}

RunOutcome World::Run() {
  StartServer();
  const auto spread = static_cast<uint64_t>(plan_.arrival.count()) + 1;
  for (size_t i = 0; i < places_.size(); ++i) {
    scheduler_.After(Duration(static_cast<int64_t>(prng_.Below(spread))), [this, i] {
      if (places_[i].lives == 0) StartNode(i);
    });
  }
  FaultInjector faults(*this, prng_.Next());
  faults.Begin();
  PassUntil(plan_.trouble);
  Heal();
  const WorldTime healed = scheduler_.now();
  bool exempt = false;
  if (plan_.driver == Driver::kLauncher) {
    if (!AllEnd(healed + plan_.EndBound()))
      checkers_.Violate(Concat("not all launchers have ended ",
                               Milliseconds(scheduler_.now() - healed),
                               " ms after everything was healed: ", HowItStands()));
  } else if (!ComeTogether(healed + plan_.HealBound())) {
    exempt = checkers_.violation().empty() && ATorchNodeIsLost();
    if (!exempt)
      checkers_.Violate(Concat("not together, or not for long, ",
                               Milliseconds(scheduler_.now() - healed),
                               " ms after everything was healed: ", HowItStands()));
  }
  return {.violation = checkers_.violation(),
          .hash = trace_.hash(),
          .virtual_time = scheduler_.now(),
          .healed_in = together_since_ - healed,
          .closed = closed_in_.has_value(),
          .exempt = exempt,
          .steps = scheduler_.steps(),
          .messages = network_.messages(),
          .bytes = network_.bytes(),
          .rounds = checkers_.rounds(),
          .jobs = job_.figures};
}

}  // namespace muster::sim
