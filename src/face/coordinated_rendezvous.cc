#include "muster/coordinated_rendezvous.h"

#include <cstdio>
#include <mutex>
#include <utility>

#include "adapters/posix/host.h"
#include "adapters/posix/process.h"
#include "base/text.h"
#include "face/bootstrap.h"
#include "face/coordinated_options.h"
#include "face/event_recorder.h"
#include "face/reconnect.h"
#include "face/session_client.h"
#include "face/this_process.h"
#include "muster/c10d_rendezvous.h"
#include "muster/network.h"
#include "muster/prefix_store.h"
#include "muster/store_server.h"
#include "muster/tcp_store.h"

namespace muster {

namespace {

using std::chrono::milliseconds;

constexpr const char* kNext = "coordinated_rendezvous:CoordinatedRendezvousHandler.next_rendezvous";
constexpr const char* kClose = "coordinated_rendezvous:CoordinatedRendezvousHandler.set_closed";
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

struct CoordinatedRendezvousHandler::Impl {
  Impl(CoordinatedRendezvousOptions given, Surroundings& its_surroundings)
      : around(its_surroundings),
        options(Validated(std::move(given))),
        events(options.events, options.run_id,
               [] { return EventOrigin{.hostname = "localhost", .pid = ProcessId()}; }) {
    Serve();
    port = server ? server->port() : options.port;
    self = NewNode(around, options.local_addr);
  }

  // --- The server ---

  // The node that the endpoint names serves; of several on that machine, the first.
  void Serve() {
    const bool serves = options.is_host.value_or(IsHere(options.host));
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

  SessionClient& Client() {
    const std::lock_guard lock(mutex);
    if (!client) {
      client = std::make_unique<SessionClient>(
          SessionLinkOptions{.server = {options.host, port},
                             .hello = {.run_id = options.run_id,
                                       .node = self,
                                       .settings = Settings(options),
                                       .label = options.label,
                                       .bootstrap_port = master->port()},
                             .seed = around.Seed() ^ static_cast<uint64_t>(self.local_id)},
          around);
    }
    return *client;
  }

  /// Null before the first call that needs the server.
  SessionClient* ClientIfAny() const {
    const std::lock_guard lock(mutex);
    return client.get();
  }

  /// Null unless the server is a plain one.
  RendezvousHandler* Other() const {
    const std::lock_guard lock(mutex);
    return fallback.get();
  }

  void FallBack() {
    const std::string line =
        Concat("the server at ", options.host, ":", port,
               " has no coordinator (PyTorch's has none): going on with the c10d backend");
    if (options.log) {
      options.log(line);
    } else {
      std::fprintf(stderr, "muster: %s\n", line.c_str());
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
    const std::lock_guard lock(mutex);
    fallback = std::move(made);
  }

  // --- The next round ---

  RendezvousInfo Next() {
    if (RendezvousHandler* other = Other()) return other->NextRendezvous();
    SessionClient& session = Client();
    events.Record(kNext, NodeState::kRunning, session.node(), [&] {
      return Concat("node '", session.node().ToString(),
                    "' wants to join the next round of rendezvous '", options.run_id, "'");
    });
    const SessionClient::Outcome outcome = session.Join(options.join_timeout);
    if (outcome.kind == SessionClient::Outcome::Kind::kPlain) {
      FallBack();
      return Other()->NextRendezvous();
    }
    try {
      if (outcome.kind != SessionClient::Outcome::Kind::kComplete) Throw(outcome, session);
      return Enter(outcome.assignment, session);
    } catch (const std::exception& error) {
      const auto what = [&] { return std::string(error.what()); };
      events.RecordFailure(kNext, session.node(), what, what);
      throw;
    }
  }

  RendezvousInfo Enter(const Push& assignment, SessionClient& session) {
    RendezvousInfo info{.store = nullptr,
                        .rank = assignment.rank,
                        .world_size = assignment.world_size,
                        .round = assignment.round,
                        .bootstrap_store_info = {assignment.addr, assignment.port}};
    if (info.rank == 0) ServeWorkers();
    ConnectStore(session);
    info.store = std::make_shared<PrefixStore>(
        Concat("torch.rendezvous.", options.run_id, ".", info.round), store);
    events.RecordJoined(kNext, session.node(), info.rank, [&] {
      return Concat("node '", session.node().ToString(), "' is rank ", info.rank, " of ",
                    info.world_size, " in round ", info.round, " of rendezvous '", options.run_id,
                    "'");
    });
    return info;
  }

  // One of before a break may be out of order.
  void ConnectStore(const SessionClient& session) {
    if (store && store_of == session.connections() && StillThere(*store)) return;
    store_of = session.connections();
    try {
      store = std::make_shared<TcpStore>(
          options.host, TcpStoreOptions{.port = port, .timeout = options.join_timeout}, around);
    } catch (const std::exception& error) {
      std::throw_with_nested(RendezvousConnectionError(
          Concat("the store of the rendezvous at ", Endpoint{options.host, port}.ToString(),
                 " could not be reached: ", error.what())));
    }
  }

  // Every node has had a port of its own from the start, so that the server could tell everybody
  // where rank 0 will be without asking it.
  void ServeWorkers() {
    if (Bootstrap::IsShared()) return master->Serve();
    master->Free();  // worker 0 will serve there
  }

  [[noreturn]] void Throw(const SessionClient::Outcome& outcome, SessionClient& session) const {
    using Kind = SessionClient::Outcome::Kind;
    const Node node = session.node();
    const std::string who =
        node.addr.empty() ? "this node" : Concat("node '", node.ToString(), "'");
    const std::string run = Concat("rendezvous '", options.run_id, "'");
    switch (outcome.kind) {
      case Kind::kClosed:
        throw RendezvousClosedError(
            Concat(run, " is closed", outcome.why.empty() ? "" : " by " + outcome.why));
      case Kind::kGraceful:
        throw RendezvousGracefulExitError(Concat(run, " was closed",
                                                 outcome.why.empty() ? "" : " by " + outcome.why,
                                                 " while ", who, " was a spare"));
      case Kind::kTimedOut:
        throw RendezvousTimeoutError(Concat(who, " could not join ", run, " within ",
                                            options.join_timeout.count(), " ms: ", outcome.why));
      case Kind::kUnreachable:
        throw RendezvousConnectionError(Concat(
            who, " could not join ", run, " within ", options.join_timeout.count(),
            " ms: the server at ", Endpoint{options.host, port}.ToString(),
            " is out of reach: ", outcome.why,
            cannot_serve.empty() ? ""
                                 : Concat(" (and it cannot be served here: ", cannot_serve, ")")));
      default:
        throw RendezvousError(Concat(who, " may not join ", run, ": ", outcome.why));
    }
  }

  // --- The end ---

  void Close(std::string_view reason) {
    if (RendezvousHandler* other = Other()) return other->SetClosed(reason);
    SessionClient& session = Client();
    const bool closed = session.Close(std::string(reason), options.close_timeout);
    if (!closed && session.plain()) {
      FallBack();
      return Other()->SetClosed(reason);
    }
    if (!closed) {
      throw RendezvousTimeoutError(
          Concat("rendezvous '", options.run_id, "' could not be closed within ",
                 options.close_timeout.count(), " ms: the server at ",
                 Endpoint{options.host, port}.ToString(), " did not confirm it"));
    }
    events.Record(kClose, NodeState::kSucceeded, session.node(), [&] {
      return Concat("node '", session.node().ToString(), "' has closed rendezvous '",
                    options.run_id, "'");
    });
  }

  Surroundings& around;
  const CoordinatedRendezvousOptions options;
  Clock& clock = around.clock();
  EventRecorder events;
  std::shared_ptr<StoreServer> server;
  std::string cannot_serve;
  uint16_t port = 0;
  Node self;
  /// Where this node serves the workers of the rounds whose rank 0 it is.
  const std::unique_ptr<ReservedPort> master = around.ReservePort();
  std::shared_ptr<Store> store;
  uint64_t store_of = 0;  ///< The connection of the session at whose time it was made.
  mutable std::mutex mutex;
  std::unique_ptr<SessionClient> client;  ///< Guarded by mutex until it is there, as the next one.
  RendezvousHandlerPtr fallback;
};

CoordinatedRendezvousHandler::CoordinatedRendezvousHandler(CoordinatedRendezvousOptions options)
    : CoordinatedRendezvousHandler(std::move(options), ThisProcess()) {}

CoordinatedRendezvousHandler::CoordinatedRendezvousHandler(CoordinatedRendezvousOptions options,
                                                           Surroundings& around)
    : impl_(std::make_unique<Impl>(std::move(options), around)) {}

CoordinatedRendezvousHandler::~CoordinatedRendezvousHandler() = default;

std::string CoordinatedRendezvousHandler::node() const {
  const SessionClient* session = impl_->ClientIfAny();
  return (session == nullptr ? impl_->self : session->node()).ToString();
}

bool CoordinatedRendezvousHandler::IsHost() const { return impl_->server != nullptr; }
std::string CoordinatedRendezvousHandler::GetRunId() const { return impl_->options.run_id; }
bool CoordinatedRendezvousHandler::UseAgentStore() const { return Bootstrap::IsShared(); }

RendezvousInfo CoordinatedRendezvousHandler::NextRendezvous() { return impl_->Next(); }

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

void CoordinatedRendezvousHandler::SetClosed(std::string_view reason) { impl_->Close(reason); }

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
    impl_->Close("shut down");
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
