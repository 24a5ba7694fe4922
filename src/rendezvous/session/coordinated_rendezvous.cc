#include "muster/coordinated_rendezvous.h"

#include <mutex>
#include <utility>

#include "base/text.h"
#include "muster/c10d_rendezvous.h"
#include "muster/network.h"
#include "muster/prefix_store.h"
#include "muster/store_server.h"
#include "muster/tcp_store.h"
#include "os/ports/system.h"
#include "os/posix/host.h"
#include "os/posix/line_writer.h"
#include "os/posix/process.h"
#include "rendezvous/bootstrap.h"
#include "rendezvous/new_node.h"
#include "rendezvous/reconnect.h"
#include "rendezvous/session/coordinated_options.h"
#include "rendezvous/session/session_link.h"
#include "rendezvous/session/session_rendezvous.h"

namespace muster {

namespace {

using std::chrono::milliseconds;

constexpr const char* kClass = "coordinated_rendezvous:CoordinatedRendezvousHandler";
constexpr const char* kServe = "coordinated_rendezvous:serve";
constexpr const char* kFallback = "coordinated_rendezvous:fall_back_to_c10d";

CoordinatedRendezvousOptions Validated(CoordinatedRendezvousOptions options) {
  options.Validate();
  return options;
}

// c10d counts keep-alives in whole seconds.
int64_t WholeSeconds(milliseconds time) {
  return std::max<int64_t>(1, std::chrono::ceil<std::chrono::seconds>(time).count());
}

}  // namespace

struct CoordinatedRendezvousHandler::Impl final : SessionRendezvous {
  Impl(CoordinatedRendezvousOptions given, System& its_surroundings)
      : SessionRendezvous({.class_name = kClass,
                           .run_id = given.run_id,
                           .join_timeout = given.join_timeout,
                           .close_timeout = given.close_timeout,
                           .events = given.events},
                          its_surroundings),
        options(Validated(std::move(given))) {
    Serve();
    port = server ? server->port() : options.port;
    self = NewNode(around, options.local_addr);
  }

  ~Impl() override { EndSession(); }

  // --- The server ---

  // The node that the endpoint names serves; of several on that machine, the first.
  void Serve() {
    // Whether the name is that of this machine may take the resolver seconds: only if need be.
    const bool serves = options.is_host ? *options.is_host : IsHere(options.host);
    if (!serves) return;
    try {
      server = StoreServer::Shared({.port = options.port});
      events.Record(kServe, NodeState::kInit, std::nullopt,
                    [] { return Concat("process ", ProcessId(), " serves the rendezvous"); });
    } catch (const std::exception& error) {
      if (options.is_host) {
        std::throw_with_nested(RendezvousConnectionError(Concat(
            "the rendezvous could not be served at port ", options.port, ": ", error.what())));
      }
      // Somebody else has the port: another node on this machine, or `muster serve`. If not, this
      // is why nobody answers.
      cannot_serve = error.what();
    }
  }

  SessionClientOptions ClientOptions() override {
    const SessionLinkOptions link{.server = {options.host, port},
                                  .hello = {.run_id = options.run_id,
                                            .node = self,
                                            .settings = Settings(options),
                                            .label = options.label,
                                            .bootstrap_port = master->port()},
                                  .seed = around.Seed() ^ static_cast<uint64_t>(self.local_id)};
    return {.hello = link.hello,
            .server = Concat("the server at ", link.server.ToString()),
            .make_link = [link](LoopThread& thread, RendezvousLinkOwner& owner) {
              return std::make_unique<SessionLink>(thread.loop(), thread.connector(), link, owner);
            }};
  }

  std::string WhyOutOfReach() const override {
    return cannot_serve.empty() ? ""
                                : Concat(" (and it cannot be served here: ", cannot_serve, ")");
  }

  // --- Another kind of server ---

  /// Null unless the server is a plain one.
  RendezvousHandler* Other() const {
    const std::lock_guard lock(mutex_);
    return fallback.get();
  }

  void FallBack() {
    const std::string line =
        Concat("the server at ", options.host, ":", port,
               " has no coordinator (PyTorch's has none): going on with the c10d backend");
    if (options.log) {
      options.log(line);
    } else {
      StandardError().Write(Concat("muster: ", line, "\n"));
    }
    events.Record(kFallback, NodeState::kRunning, std::nullopt, [&] { return line; });
    // c10d would look its own name up.
    const std::string local_addr =
        options.local_addr.empty() ? AddressTowards({options.host, port}) : options.local_addr;
    RendezvousConfig config{{"is_host", false},
                            {"join_timeout", WholeSeconds(options.join_timeout)},
                            {"last_call_timeout", WholeSeconds(options.last_call)},
                            {"close_timeout", WholeSeconds(options.close_timeout)}};
    RendezvousHandlerPtr made =
        CreateC10dHandler({"c10d", Endpoint{options.host, port}.ToString(), options.run_id,
                           options.min_nodes, options.max_nodes, local_addr, config});
    const std::lock_guard lock(mutex_);
    fallback = std::move(made);
  }

  // --- What the handler does ---

  RendezvousInfo NextRound() {
    if (RendezvousHandler* other = Other()) return other->NextRendezvous();
    if (auto info = Next()) return std::move(*info);
    FallBack();
    return Other()->NextRendezvous();
  }

  void CloseAll(std::string_view reason) {
    if (RendezvousHandler* other = Other()) return other->SetClosed(reason);
    if (Close(reason)) return;
    FallBack();
    Other()->SetClosed(reason);
  }

  std::shared_ptr<Store> StoreOf(const Push& assignment, const SessionClient& session) override {
    ConnectStore(session);
    return std::make_shared<PrefixStore>(RoundPrefix(assignment.generation, assignment.round),
                                         store);
  }

  // One of before a break may be out of order.
  void ConnectStore(const SessionClient& session) {
    if (store && store_of == session.connections() && StillThere(*store)) return;
    store_of = session.connections();
    try {
      store = std::make_shared<TcpStore>(
          options.host, TcpStoreOptions{.port = port, .timeout = options.join_timeout}, around);
    } catch (const InterruptedError&) {
      store.reset();
      throw;
    } catch (const std::exception& error) {
      std::throw_with_nested(RendezvousConnectionError(
          Concat("the store of the rendezvous at ", Endpoint{options.host, port}.ToString(),
                 " could not be reached: ", error.what())));
    }
  }

  const CoordinatedRendezvousOptions options;
  std::shared_ptr<StoreServer> server;
  std::string cannot_serve;
  uint16_t port = 0;
  std::shared_ptr<Store> store;
  uint64_t store_of = 0;          ///< The connection of the session at whose time it was made.
  RendezvousHandlerPtr fallback;  ///< Guarded by mutex_ until it is there.
};

CoordinatedRendezvousHandler::CoordinatedRendezvousHandler(CoordinatedRendezvousOptions options)
    : CoordinatedRendezvousHandler(std::move(options), ThisProcess()) {}

CoordinatedRendezvousHandler::CoordinatedRendezvousHandler(CoordinatedRendezvousOptions options,
                                                           System& around)
    : impl_(std::make_unique<Impl>(std::move(options), around)) {}

CoordinatedRendezvousHandler::~CoordinatedRendezvousHandler() = default;

std::string CoordinatedRendezvousHandler::node() const {
  const SessionClient* session = impl_->ClientIfAny();
  return (session == nullptr ? impl_->self : session->node()).ToString();
}

bool CoordinatedRendezvousHandler::IsHost() const { return impl_->server != nullptr; }
std::string CoordinatedRendezvousHandler::GetRunId() const { return impl_->options.run_id; }
bool CoordinatedRendezvousHandler::UseAgentStore() const { return Bootstrap::IsShared(); }

RendezvousInfo CoordinatedRendezvousHandler::NextRendezvous() { return impl_->NextRound(); }

bool CoordinatedRendezvousHandler::IsClosed() {
  if (RendezvousHandler* other = impl_->Other()) return other->IsClosed();
  const SessionClient* session = impl_->ClientIfAny();
  return session != nullptr && session->closed();
}

int64_t CoordinatedRendezvousHandler::NumNodesWaiting() {
  if (RendezvousHandler* other = impl_->Other()) return other->NumNodesWaiting();
  const SessionClient* session = impl_->ClientIfAny();
  return session == nullptr ? 0 : session->nodes_waiting();
}

void CoordinatedRendezvousHandler::SetClosed(std::string_view reason) { impl_->CloseAll(reason); }

std::optional<MembershipEvent> CoordinatedRendezvousHandler::AwaitEvent(milliseconds time) {
  if (RendezvousHandler* other = impl_->Other()) return other->AwaitEvent(time);
  return impl_->Client().AwaitEvent(After(impl_->clock.Now(), time));
}

bool CoordinatedRendezvousHandler::StopWaiting() {
  if (RendezvousHandler* other = impl_->Other()) return other->StopWaiting();
  impl_->Client().StopWaiting();
  return true;
}

void CoordinatedRendezvousHandler::Leave() {
  if (RendezvousHandler* other = impl_->Other()) return other->Leave();
  if (SessionClient* session = impl_->ClientIfAny()) session->Leave(impl_->options.close_timeout);
}

bool CoordinatedRendezvousHandler::Shutdown() {
  try {
    impl_->CloseAll("shut down");
    return true;
  } catch (const RendezvousError&) {
    return false;
  }
}

WaitReport CoordinatedRendezvousHandler::DescribeWait() const {
  if (const RendezvousHandler* other = impl_->Other()) return other->DescribeWait();
  SessionClient* session = impl_->ClientIfAny();
  return session == nullptr ? WaitReport{} : session->Describe();
}

RendezvousHandlerPtr CreateCoordinatedHandler(const RendezvousParameters& parameters) {
  return std::make_unique<CoordinatedRendezvousHandler>(
      CoordinatedRendezvousOptions::From(parameters));
}

}  // namespace muster
