#include "sim/torch_node.h"

#include <utility>

#include "base/text.h"
#include "muster/prefix_store.h"
#include "muster/rendezvous_error.h"
#include "rendezvous/option_readers.h"
#include "rendezvous/wire/state_codec.h"

namespace muster::sim {

namespace {

constexpr Duration kLook = 1s + 100us;  // no node sleeps for exactly as long as the cache lasts
constexpr Duration kCache = 1s;
constexpr Duration kRollback = 5s;

Duration Since(WallTime then, WallTime now) {
  return std::chrono::microseconds(static_cast<int64_t>(now) - static_cast<int64_t>(then));
}

}  // namespace

TorchNode::TorchNode(const RendezvousSettings& settings, std::shared_ptr<Store> store,
                     std::unique_ptr<RendezvousBackend> backend, Node self, SimProcess& process)
    : process_(process),
      run_id_(settings.run_id),
      rules_(RunSettingsOf(settings)),
      store_(std::move(store)),
      backend_(std::move(backend)),
      self_(std::move(self)),
      mutex_(process.MakeMonitor()),
      port_(process.ReservePort()) {}

TorchNode::~TorchNode() { heartbeats_.reset(); }

std::optional<bool> TorchNode::Sync() {
  std::optional<bool> stored;
  std::optional<std::string> bytes;
  if (dirty_) {
    stored = false;
    bytes = wire::WriteState(state_);
    if (auto answer = backend_->SetState(*bytes, token_)) {
      bytes = answer->bytes;
      token_ = answer->token;
      stored = answer->was_set;
    } else {
      token_.reset();
    }
  } else {
    if (synced_at_ && process_.Now() - *synced_at_ <= kCache) return std::nullopt;
    auto found = backend_->GetState();
    token_ = found ? found->token : std::any();
    if (found) bytes = found->bytes;
  }
  if (bytes) {
    Result<RendezvousState> state = wire::ReadState(*bytes);
    if (!state) throw RendezvousStateError(state.error().message);
    state_ = std::move(*state);
  } else {
    state_ = {};
  }
  dirty_ = false;
  synced_at_ = process_.Now();
  Purge();
  return stored;
}

// Only in its own copy: others see its next write.
void TorchNode::Purge() {
  std::set<Node> dead;
  for (const auto& [node, at] : state_.last_heartbeats) {
    if (Since(at, process_.Wall()) > rules_.dead_after()) dead.insert(node);
  }
  muster::Purge(dead, rules_, &state_);
}

bool TorchNode::HeartbeatDue() const {
  const auto last = state_.last_heartbeats.find(self_);
  return last != state_.last_heartbeats.end() &&
         Since(last->second, process_.Wall()) >= rules_.keep_alive_interval;
}

Action TorchNode::DecideJoin(Instant deadline) const {
  const auto count = static_cast<int64_t>(state_.participants.size());
  const bool is_in = state_.participants.contains(self_);
  const bool waits = state_.wait_list.contains(self_);
  const Instant now = process_.Now();
  if (state_.redundancy_list.contains(self_)) {
    if (state_.closed) return Action::kErrorGraceful;
    if (count != rules_.max_nodes) return Action::kRemoveFromRedundancyList;
    return HeartbeatDue() ? Action::kKeepAlive : Action::kSync;
  }
  if (state_.closed) return Action::kErrorClosed;
  if (state_.complete && is_in) return Action::kFinish;
  if (now > deadline) {
    if (now <= deadline + kRollback && is_in) return Action::kRemoveFromParticipants;
    if (now <= deadline + kRollback && waits) return Action::kRemoveFromWaitList;
    return Action::kErrorTimeout;
  }
  if (state_.complete && !waits)
    return count < rules_.max_nodes ? Action::kAddToWaitList : Action::kAddToRedundancyList;
  if (!state_.complete && !is_in) return Action::kAddToParticipants;
  if (!state_.complete && count >= rules_.min_nodes && count <= rules_.max_nodes &&
      state_.deadline && *state_.deadline < process_.Wall()) {
    return Action::kMarkComplete;
  }
  return HeartbeatDue() ? Action::kKeepAlive : Action::kSync;
}

Action TorchNode::Decide(Operation operation, Instant deadline) const {
  const bool late = process_.Now() > deadline;
  switch (operation) {
    case Operation::kJoin:
      return DecideJoin(deadline);
    case Operation::kExit:
      if (!state_.participants.contains(self_)) return Action::kFinish;
      return late ? Action::kErrorTimeout : Action::kRemoveFromParticipants;
    case Operation::kClose:
      if (state_.closed) return Action::kFinish;
      return late ? Action::kErrorTimeout : Action::kMarkClosed;
    case Operation::kKeepAlive:
      if (!HeartbeatDue()) return Action::kFinish;
      return late ? Action::kErrorTimeout : Action::kKeepAlive;
  }
  return Action::kFinish;
}

// It does not know muster's additions to the state, and passes them on unchanged.
void TorchNode::Perform(Action action) {
  const auto completion = state_.completion;
  Apply(action, self_, rules_, process_.Wall(), &state_);
  state_.completion = completion;
  dirty_ = true;
}

void TorchNode::Run(Operation operation, Instant deadline) {
  while (true) {
    Sync();
    const Action action = Decide(operation, deadline);
    switch (action) {
      case Action::kFinish:
        return;
      case Action::kErrorClosed:
        throw RendezvousClosedError("closed");
      case Action::kErrorGraceful:
        throw RendezvousGracefulExitError("closed while a spare");
      case Action::kErrorTimeout:
        throw RendezvousTimeoutError("time is up");
      case Action::kSync:
        process_.clock().SleepUntil(process_.Now() + kLook);
        break;
      default:
        Perform(action);
        if (action == Action::kRemoveFromRedundancyList)
          deadline = process_.Now() + rules_.join_timeout;
    }
  }
}

RendezvousInfo TorchNode::NextRendezvous() {
  heartbeats_.reset();
  const Instant deadline = process_.Now() + rules_.join_timeout;
  Run(Operation::kExit, deadline);
  Run(Operation::kJoin, deadline);
  heartbeats_ = process_.CallEvery(
      "", std::chrono::duration_cast<std::chrono::milliseconds>(rules_.keep_alive_interval),
      [this] {
        const std::lock_guard lock(*mutex_);
        try {
          Run(Operation::kKeepAlive, process_.Now() + rules_.heartbeat_timeout);
        } catch (const std::exception&) {
        }
      });
  RendezvousInfo info{.store = std::make_shared<PrefixStore>(
                          Concat("torch.rendezvous.", run_id_, ".", state_.round), store_),
                      .rank = state_.participants.at(self_),
                      .world_size = static_cast<int64_t>(state_.participants.size()),
                      .round = state_.round};
  // With sharing disabled, as TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 has it: rank 0 publishes in
  // every round. (Otherwise PyTorch's nodes do not agree among themselves.)
  info.bootstrap_store_info =
      RendezvousStoreInfo::Build(info.rank, *info.store, self_.addr, port_->port());
  return info;
}

bool TorchNode::IsClosed() {
  const std::lock_guard lock(*mutex_);
  Sync();
  return state_.closed;
}

int64_t TorchNode::NumNodesWaiting() {
  const std::lock_guard lock(*mutex_);
  Sync();
  return static_cast<int64_t>(state_.wait_list.size());
}

void TorchNode::SetClosed(std::string_view) {
  const std::lock_guard lock(*mutex_);
  Run(Operation::kClose, process_.Now() + rules_.close_timeout);
}

bool TorchNode::Shutdown() {
  heartbeats_.reset();
  SetClosed("");
  return true;
}

}  // namespace muster::sim
