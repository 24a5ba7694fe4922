#include "sim/agent.h"

#include <utility>

#include "base/text.h"
#include "etcd/on_connection.h"
#include "muster/c10d_rendezvous.h"
#include "muster/rendezvous_error.h"
#include "rendezvous/core/rank_policy.h"
#include "rendezvous/document/dynamic_handler.h"
#include "rendezvous/session/coordinated_handler.h"
#include "sim/faulty_backend.h"
#include "sim/sockets.h"
#include "sim/torch_node.h"
#include "sim/world.h"
#include "store/tcp_store_on.h"

namespace muster::sim {

namespace {

using std::chrono::milliseconds;

constexpr milliseconds kWorkStep{250};
// With many nodes, without periodic work and without observers, a node rests until it is notified.
constexpr milliseconds kLongWorkStep{10'000};
constexpr Duration kWorkersPatience = 3s;

milliseconds Ms(Duration time) { return std::chrono::duration_cast<milliseconds>(time); }

}  // namespace

std::unique_ptr<RendezvousHandler> MakeCoordinatedHandler(const Plan& plan, size_t index,
                                                          SimProcess& process) {
  const RunSettings& settings = plan.settings;
  return CreateCoordinatedHandler(
      CoordinatedRendezvousOptions{.host = World::kServer,
                                   .port = World::kPort,
                                   .is_host = false,
                                   .run_id = World::kRun,
                                   .min_nodes = settings.min_nodes,
                                   .max_nodes = settings.max_nodes,
                                   .last_call = Ms(settings.last_call),
                                   .reform_timeout = Ms(settings.forming->reform_timeout),
                                   .rejoin_window = Ms(settings.forming->rejoin_window),
                                   .expected = settings.forming->expected,
                                   .keep_alive_interval = Ms(settings.keep_alive_interval),
                                   .keep_alive_max_attempt = settings.keep_alive_max_attempt,
                                   .grace = Ms(settings.grace),
                                   .rank_policy = std::string(Name(settings.policy)),
                                   .label = Concat("rack", index % 3),
                                   .join_timeout = Ms(plan.join_timeout),
                                   .close_timeout = milliseconds(5'000)},
      process);
}

std::unique_ptr<RendezvousHandler> MakeEtcdHandler(World& world, size_t index,
                                                   SimProcess& process) {
  const Plan& plan = world.plan();
  const RunSettings& settings = plan.settings;
  const Endpoint etcd = world.etcd().endpoint();
  return CreateEtcdHandler(
      EtcdRendezvousOptions{
          .etcd = {.endpoints = {{etcd.host, etcd.port}}, .prefix = World::kEtcdPrefix},
          .run_id = World::kRun,
          .local_addr = process.network().address(process.host()),
          .min_nodes = settings.min_nodes,
          .max_nodes = settings.max_nodes,
          .last_call = Ms(settings.last_call),
          .reform_timeout = Ms(settings.forming->reform_timeout),
          .rejoin_window = Ms(settings.forming->rejoin_window),
          .expected = settings.forming->expected,
          .keep_alive_interval = Ms(settings.keep_alive_interval),
          .keep_alive_max_attempt = settings.keep_alive_max_attempt,
          .rank_policy = std::string(Name(settings.policy)),
          .label = Concat("rack", index % 3),
          .join_timeout = Ms(plan.join_timeout),
          .close_timeout = milliseconds(5'000)},
      world.etcd().ConnectorOf(process), process);
}

Agent::Agent(World& world, SimProcess& process, size_t index, bool is_torch_node, uint64_t seed)
    : world_(world), process_(process), index_(index), is_torch_node_(is_torch_node), prng_(seed) {}

void Agent::Main() {
  try {
    while (process_.alive() && stage_ != Stage::kEnded) {
      lost_ = false;
      std::unique_ptr<RendezvousHandler> handler;
      while (process_.alive() && !handler) handler = MakeHandler();
      while (process_.alive() && !lost_ && Join(*handler)) Work(*handler);
    }
  } catch (const ProcessIsDead&) {
  }
}

void Agent::Rest(Duration longest) {
  const auto most = static_cast<uint64_t>(longest.count());
  process_.clock().SleepUntil(process_.Now() + Duration(static_cast<int64_t>(prng_.Below(most))));
}

// PyTorch's agents never reconnect: a lost connection ends them, and they are restarted.
void Agent::Trouble(const std::exception& error) {
  last_error_ = error.what();
  world_.Note(index_, last_error_);
  Rest(200ms);
  lost_ = is_torch_node_ && dynamic_cast<const RendezvousTimeoutError*>(&error) == nullptr;
}

std::unique_ptr<RendezvousHandler> Agent::MakeHandler() {
  const Plan& plan = world_.plan();
  const RunSettings& settings = plan.settings;
  const std::string& addr = process_.network().address(process_.host());
  if (IsCoordinated(plan.driver)) {
    node_ = {addr, process_.process_id(), 0};
    if (plan.driver == Driver::kEtcd) return MakeEtcdHandler(world_, index_, process_);
    return MakeCoordinatedHandler(plan, index_, process_);
  }
  const RendezvousSettings c10d_settings{.run_id = World::kRun,
                                         .min_nodes = settings.min_nodes,
                                         .max_nodes = settings.max_nodes,
                                         .join_timeout = Ms(plan.join_timeout),
                                         .last_call = Ms(settings.last_call),
                                         .close_timeout = milliseconds(5'000),
                                         .heartbeat_timeout = milliseconds(2'000),
                                         .keep_alive_interval = Ms(settings.keep_alive_interval),
                                         .keep_alive_max_attempt = settings.keep_alive_max_attempt};
  try {
    const auto store = OpenTcpStore(World::kServer,
                                    TcpStoreOptions{.port = World::kPort,
                                                    .timeout = World::kStoreTimeout,
                                                    .cancel_grace = milliseconds(2'000)},
                                    process_);
    auto backend = std::make_unique<FaultyBackend>(CreateC10dBackend(store->Clone(), World::kRun),
                                                   world_, process_, prng_.Next());
    if (is_torch_node_) {
      node_ = {addr, process_.process_id(), process_.NextNodeId()};
      return std::make_unique<TorchNode>(c10d_settings, store, std::move(backend), node_, process_);
    }
    node_ = {addr, process_.process_id(), 0};
    return CreateDynamicHandler(c10d_settings, store, std::move(backend), addr,
                                RendezvousEventSink(), process_);
  } catch (const std::exception& error) {
    last_error_ = error.what();
    Rest(200ms);
    return nullptr;
  }
}

bool Agent::Join(RendezvousHandler& handler) {
  while (process_.alive()) {
    stage_ = Stage::kJoining;
    inbox_ = {};
    out_since_.reset();
    try {
      const RendezvousInfo info = handler.NextRendezvous();
      if (!process_.alive()) return false;
      // Its place and the end of its place were sent together: the next event must report the end.
      out_since_.reset();
      if (info.round == out_of_) out_since_ = process_.scheduler().now();
      world_.checkers().SeePlace(Concat("node ", index_), info.round, knew_closed_);
      world_.NodeJoined(index_, node_, round_, info);
      incomplete_since_.reset();
      round_ = info.round;
      world_size_ = info.world_size;
      stage_ = Stage::kWorking;
      inbox_ = {.round = info.round};
      looks_at_ = process_.scheduler().now() + world_.plan().looks_every;
      return true;
    } catch (const RendezvousClosedError&) {
      stage_ = Stage::kEnded;
    } catch (const RendezvousGracefulExitError&) {
      stage_ = Stage::kEnded;
    } catch (const std::exception& error) {
      if (!process_.alive()) return false;
      Trouble(error);
      if (lost_) return false;
    }
    if (stage_ == Stage::kEnded) {
      if (process_.alive()) world_.NodeEnded(index_);
      return false;
    }
  }
  return false;
}

void Agent::Work(RendezvousHandler& handler) {
  handler_ = &handler;
  while (process_.alive()) {
    try {
      if (Await(handler) || ActOnItsOwn(handler)) break;
    } catch (const std::exception& error) {
      Trouble(error);  // out of reach for now: the workers continue
      if (lost_) break;
    }
  }
  handler_ = nullptr;
}

bool Agent::Await(RendezvousHandler& handler) {
  if (IsCoordinated(world_.plan().driver)) {
    const bool one_of_many =
        world_.plan().driver == Driver::kCoordinator && world_.plan().nodes > kFewNodes;
    inbox_.listens = true;
    const std::optional<MembershipEvent> event =
        handler.AwaitEvent(one_of_many ? kLongWorkStep : kWorkStep);
    inbox_.listens = false;
    if (!process_.alive()) return true;
    if (event) inbox_.Add(*event);
    world_.checkers().SeeClosed(Concat("node ", index_), handler.IsClosed(), knew_closed_);
    if (event && event->kind != MembershipEvent::Kind::kClosed && event->round != round_)
      world_.checkers().Violate(
          Concat("node ", index_, " in round ", round_, " is notified of round ", event->round));
    if (event) world_.Note(index_, event->ToString());
    if (!event && out_since_) {
      // Its handler reports no event.
      world_.checkers().SeeWork(Concat("node ", index_), round_,
                                process_.scheduler().now() - *out_since_);
    }
    return world_.plan().looks_every > 0s ? HasLooked(handler) : event.has_value();
  }
  bool waited_for = false;
  if (is_torch_node_) {
    process_.clock().SleepUntil(process_.Now() + kWorkStep * 2);
    waited_for = process_.alive() && handler.NumNodesWaiting() > 0;
  } else {
    waited_for = handler.AwaitEvent(kWorkStep * 2).has_value();
  }
  if (!process_.alive()) return true;
  const bool closed = handler.IsClosed();
  world_.checkers().SeeClosed(Concat("node ", index_), closed, knew_closed_);
  return closed || waited_for || WorkersFail();
}

// Nodes of a shared document are not notified of lost members. Their workers wait in vain for the
// lost node's workers, and fail.
bool Agent::WorkersFail() {
  const WorldTime now = process_.scheduler().now();
  const bool complete = world_.WorkingIn(round_) >= world_size_;
  if (complete) incomplete_since_.reset();
  if (!complete && !incomplete_since_) incomplete_since_ = now;
  return incomplete_since_ && now - *incomplete_since_ > kWorkersPatience;
}

bool Agent::HasLooked(RendezvousHandler& handler) {
  if (inbox_.knows_end) return true;
  if (world_.is_troubled() && process_.scheduler().now() < looks_at_) return false;
  looks_at_ = process_.scheduler().now() + world_.plan().looks_every;
  return !inbox_.lost.empty() || handler.NumNodesWaiting() > 0;
}

Inbox Agent::inbox() const {
  Inbox inbox = inbox_;
  if (handler_ != nullptr) inbox.waiting = handler_->NumNodesWaiting();
  return inbox;
}

bool Agent::ActOnItsOwn(RendezvousHandler& handler) {
  if (!world_.is_troubled()) return false;
  const Faults& faults = world_.plan().faults;
  if (faults.close && OneIn(100)) {
    world_.Note(index_, "closes");
    handler.SetClosed("the work is done");
    return true;
  }
  if (faults.leave && OneIn(5)) {
    world_.Note(index_, "leaves");
    try {
      handler.Leave();
    } catch (const std::exception& error) {
      Trouble(error);  // its place is left in any case
    }
    Rest(OneIn(2) ? 100ms : 2s);
    return true;
  }
  if (faults.restart && OneIn(8)) {
    world_.Note(index_, "comes again by itself");
    return true;
  }
  return false;
}

void Agent::NotifiedOut(int64_t round) {
  out_of_ = round;
  if (stage_ == Stage::kWorking && !out_since_) out_since_ = process_.scheduler().now();
}

}  // namespace muster::sim
