#include "muster/etcd_rendezvous.h"

#include <functional>
#include <utility>

#include "base/text.h"
#include "etcd/calls.h"
#include "etcd/etcd_access.h"
#include "etcd/link.h"
#include "muster/etcd_store.h"
#include "os/posix/host.h"
#include "rendezvous/new_node.h"
#include "rendezvous/option_readers.h"
#include "rendezvous/session/session_handler.h"

namespace muster {

namespace {

using std::chrono::milliseconds;

EtcdRendezvousOptions Validated(EtcdRendezvousOptions options) {
  options.Validate();
  return options;
}

std::string AddressOf(const EtcdRendezvousOptions& options) {
  if (!options.local_addr.empty()) return options.local_addr;
  return AddressTowards(AccessOf(options.etcd).endpoints.front());
}

}  // namespace

EtcdRendezvousOptions EtcdRendezvousOptions::From(const RendezvousParameters& parameters) {
  EtcdRendezvousOptions options{.etcd = EtcdOptions::From(parameters), .run_id = ""};
  TakeSeconds(parameters, "timeout", options.join_timeout);  // as torchrun's etcd calls it
  TakeRoundOptions(parameters, options);
  options.backend = parameters.backend;
  options.Validate();
  return options;
}

void EtcdRendezvousOptions::Validate() const {
  etcd.Validate();
  MustBeRoundOptions(*this);
  MustBePossible(RunSettingsOf(*this, 0s), run_id);  // a lease has a grace of its own
}

namespace {

SessionHandlerOptions HandlerOptions(const EtcdRendezvousOptions& options, System& system,
                                     std::function<LoopThread*()> thread) {
  return {.class_name = "etcd_rendezvous:EtcdRendezvousHandler",
          .server = options.etcd.ToString(),
          .hello = {.run_id = options.run_id,
                    .node = NewNode(system, AddressOf(options)),
                    .settings = RunSettingsOf(options, 0s),
                    .label = options.label},
          .join_timeout = options.join_timeout,
          .close_timeout = options.close_timeout,
          .events = options.events,
          .thread = std::move(thread)};
}

std::string PrefixOf(const EtcdRendezvousOptions& options) {
  return std::string(options.etcd.prefix.empty() ? EtcdRendezvousOptions::kDefaultPrefix
                                                 : std::string_view(options.etcd.prefix));
}

}  // namespace

struct EtcdRendezvousHandler::Impl final : SessionHandler {
  Impl(const EtcdRendezvousOptions& given, const EtcdConnector& connector, System& system)
      : SessionHandler(HandlerOptions(given, system, [this] { return SharedThread(); }), system,
                       [this, &system](LoopThread& thread, const Hello& hello, uint64_t seed,
                                       RendezvousLinkListener& listener) {
                         return std::make_unique<EtcdLink>(
                             thread.loop(),
                             EtcdLinkOptions{.connect = [this](Loop&) { return calls->Client(); },
                                             .prefix = prefix,
                                             .hello = hello,
                                             .seed = seed,
                                             .entropy = [&system] { return system.Seed(); }},
                             listener);
                       }),
        options(given),
        connect(connector),
        prefix(PrefixOf(given)) {}
  ~Impl() override { EndSession(); }

  std::string GetBackend() const override { return options.backend; }

  LoopThread* SharedThread() {
    calls = std::make_shared<EtcdCalls>(connect, system_);
    return &calls->thread();
  }

  // Join() always returns a round: with etcd there is no fallback to c10d.
  RendezvousInfo NextRendezvous() override {
    const Push round = *Join();
    return Enter(round, Recording([&] { return StoreOf(round); }));
  }

  std::shared_ptr<Store> StoreOf(const Push& assignment) {
    const wire::EtcdKeys keys(prefix, options.run_id);
    // The name of the round's plan: an etcd that is restored from older data may complete a round
    // of the same number again. Leaders of earlier versions give no name.
    const std::string round = assignment.who.empty() ? Concat(assignment.round) : assignment.who;
    return std::make_shared<EtcdStore>(calls, Concat(keys.Store(), round), options.join_timeout,
                                       static_cast<int64_t>(assignment.token));
  }

  const EtcdRendezvousOptions options;
  const EtcdConnector connect;
  const std::string prefix;
  std::shared_ptr<EtcdCalls> calls;  ///< Of the link and of the stores of all rounds.
};

EtcdRendezvousHandler::EtcdRendezvousHandler(EtcdRendezvousOptions options, Connector connect,
                                             System& around)
    : impl_(std::make_unique<Impl>(Validated(std::move(options)), connect, around)) {}

EtcdRendezvousHandler::~EtcdRendezvousHandler() = default;

std::string EtcdRendezvousHandler::node() const { return impl_->node(); }
std::string EtcdRendezvousHandler::GetBackend() const { return impl_->GetBackend(); }
std::string EtcdRendezvousHandler::GetRunId() const { return impl_->GetRunId(); }
bool EtcdRendezvousHandler::UseAgentStore() const { return impl_->UseAgentStore(); }
bool EtcdRendezvousHandler::AllowsConcurrentCalls() const { return true; }
RendezvousInfo EtcdRendezvousHandler::NextRendezvous() { return impl_->NextRendezvous(); }
bool EtcdRendezvousHandler::IsClosed() { return impl_->IsClosed(); }
int64_t EtcdRendezvousHandler::NumNodesWaiting() { return impl_->NumNodesWaiting(); }
void EtcdRendezvousHandler::SetClosed(std::string_view reason) { impl_->SetClosed(reason); }
std::optional<MembershipEvent> EtcdRendezvousHandler::AwaitEvent(milliseconds time) {
  return impl_->AwaitEvent(time);
}
bool EtcdRendezvousHandler::StopWaiting() { return impl_->StopWaiting(); }
void EtcdRendezvousHandler::Leave() { impl_->Leave(); }
bool EtcdRendezvousHandler::Shutdown() { return impl_->Shutdown(); }
WaitReport EtcdRendezvousHandler::DescribeWait() const { return impl_->DescribeWait(); }

}  // namespace muster
