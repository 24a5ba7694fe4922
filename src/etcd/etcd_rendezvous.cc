#include "muster/etcd_rendezvous.h"

#include <utility>

#include "base/text.h"
#include "etcd/calls.h"
#include "etcd/etcd_access.h"
#include "etcd/link.h"
#include "muster/etcd_store.h"
#include "muster/rendezvous_error.h"
#include "os/posix/host.h"
#include "rendezvous/bootstrap.h"
#include "rendezvous/new_node.h"
#include "rendezvous/option_readers.h"
#include "rendezvous/session/session_rendezvous.h"

namespace muster {

namespace {

using std::chrono::milliseconds;

EtcdRendezvousOptions Validated(EtcdRendezvousOptions options) {
  options.Validate();
  return options;
}

RunSettings Settings(const EtcdRendezvousOptions& options) {
  return {.min_nodes = options.min_nodes,
          .max_nodes = options.max_nodes,
          .last_call = options.last_call,
          .keep_alive_interval = options.keep_alive_interval,
          .keep_alive_max_attempt = options.keep_alive_max_attempt,
          .grace = 0s,  // a lease has its own
          .policy = *ParseRankPolicy(options.rank_policy)};
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
  MustBePossible(Settings(*this), run_id);
}

struct EtcdRendezvousHandler::Impl final : SessionRendezvous {
  Impl(EtcdRendezvousOptions given, EtcdConnector its_connector, System& its_system)
      : SessionRendezvous({.class_name = "etcd_rendezvous:EtcdRendezvousHandler",
                           .run_id = given.run_id,
                           .join_timeout = given.join_timeout,
                           .close_timeout = given.close_timeout,
                           .events = given.events},
                          its_system),
        options(Validated(std::move(given))),
        connect(std::move(its_connector)) {
    self = NewNode(around, AddressOf(options));
    prefix = options.etcd.prefix.empty() ? EtcdRendezvousOptions::kDefaultPrefix
                                         : std::string_view(options.etcd.prefix);
  }
  ~Impl() override { EndSession(); }

  SessionClientOptions ClientOptions() override {
    calls = std::make_shared<EtcdCalls>(connect, around);
    // Not the owner, which must not be destroyed on its own thread.
    EtcdCalls* const shared = calls.get();
    const EtcdLinkOptions link{.connect = [shared](Loop&) { return shared->Client(); },
                               .prefix = prefix,
                               .hello = {.run_id = options.run_id,
                                         .node = self,
                                         .settings = Settings(options),
                                         .label = options.label,
                                         .bootstrap_port = master->port()},
                               .seed = around.Seed() ^ static_cast<uint64_t>(self.local_id)};
    return {.hello = link.hello,
            .server = options.etcd.ToString(),
            .make_link =
                [link](LoopThread& thread, RendezvousLinkOwner& owner) {
                  return std::make_unique<EtcdLink>(thread.loop(), link, owner);
                },
            .thread = &calls->thread()};
  }

  std::shared_ptr<Store> StoreOf(const Push& assignment, const SessionClient&) override {
    const wire::EtcdKeys keys(prefix, options.run_id);
    // The name of the round's plan: an etcd that is restored from older data may complete a round
    // of the same number again. Leaders of earlier versions give no name.
    const std::string round = assignment.who.empty() ? Concat(assignment.round) : assignment.who;
    return std::make_shared<EtcdStore>(calls, Concat(keys.Store(), round), options.join_timeout,
                                       static_cast<int64_t>(assignment.token));
  }

  const EtcdRendezvousOptions options;
  const EtcdConnector connect;
  std::string prefix;
  std::shared_ptr<EtcdCalls> calls;  ///< Of the link and of the stores of all rounds.
};

EtcdRendezvousHandler::EtcdRendezvousHandler(EtcdRendezvousOptions options, Connector connect,
                                             System& around)
    : impl_(std::make_unique<Impl>(std::move(options), std::move(connect), around)) {}

EtcdRendezvousHandler::~EtcdRendezvousHandler() = default;

std::string EtcdRendezvousHandler::node() const { return impl_->self.ToString(); }
std::string EtcdRendezvousHandler::GetBackend() const { return impl_->options.backend; }
std::string EtcdRendezvousHandler::GetRunId() const { return impl_->options.run_id; }
bool EtcdRendezvousHandler::UseAgentStore() const { return Bootstrap::IsShared(); }

// Never empty: with etcd there is no fallback to c10d.
RendezvousInfo EtcdRendezvousHandler::NextRendezvous() { return *impl_->Next(); }

bool EtcdRendezvousHandler::IsClosed() {
  const SessionClient* session = impl_->ClientIfAny();
  return session != nullptr && session->closed();
}

int64_t EtcdRendezvousHandler::NumNodesWaiting() {
  const SessionClient* session = impl_->ClientIfAny();
  return session == nullptr ? 0 : session->nodes_waiting();
}

void EtcdRendezvousHandler::SetClosed(std::string_view reason) { impl_->Close(reason); }

std::optional<MembershipEvent> EtcdRendezvousHandler::AwaitEvent(milliseconds time) {
  return impl_->Client().AwaitEvent(After(impl_->clock.Now(), time));
}

bool EtcdRendezvousHandler::StopWaiting() {
  impl_->Client().StopWaiting();
  return true;
}

void EtcdRendezvousHandler::Leave() {
  if (SessionClient* session = impl_->ClientIfAny()) session->Leave(impl_->options.close_timeout);
}

bool EtcdRendezvousHandler::Shutdown() {
  try {
    impl_->Close("shut down");
    return true;
  } catch (const RendezvousError&) {
    return false;
  }
}

WaitReport EtcdRendezvousHandler::DescribeWait() const {
  SessionClient* session = impl_->ClientIfAny();
  return session == nullptr ? WaitReport{} : session->Describe();
}

}  // namespace muster
