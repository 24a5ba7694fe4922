#include "muster/c10d_rendezvous.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "base/text.h"
#include "base/trim.h"
#include "muster/dynamic_rendezvous.h"
#include "muster/file_store.h"
#include "muster/network.h"
#include "muster/tcp_store.h"
#include "os/ports/system.h"
#include "os/posix/file_io.h"
#include "os/posix/process.h"
#include "rendezvous/event_recorder.h"
#include "rendezvous/session/status_client.h"

namespace muster {

namespace {

constexpr int kDefaultPort = 29400;
constexpr Duration kStatusPatience = 2s;

// Runs a store operation; its failures mean that the backend is out of reach.
template <typename Operation>
auto Reaching(std::string_view what, Operation operation) {
  try {
    return operation();
  } catch (const InterruptedError&) {
    throw;
  } catch (const std::exception& error) {
    std::throw_with_nested(RendezvousConnectionError(
        Concat("the store of the rendezvous could not ", what, ": ", error.what())));
  }
}

std::string StoreType(const RendezvousParameters& parameters) {
  const ConfigValue given = parameters.Get("store_type", ConfigValue("tcp"));
  const auto* text = std::get_if<std::string>(&given);
  const std::string type = text == nullptr ? "" : LowerCase(Trim(*text));
  if (type == "tcp" || type == "file") return type;
  throw std::invalid_argument(Concat("store_type is '", text == nullptr ? "" : Printable(*text),
                                     "': only 'tcp' and 'file' are supported"));
}

milliseconds ReadTimeout(const RendezvousParameters& parameters) {
  const int64_t seconds = parameters.GetAsInt("read_timeout", 60).value_or(60);
  if (seconds > 0 && seconds <= 365 * 24 * 3600) return std::chrono::seconds(seconds);
  throw std::invalid_argument(Concat("read_timeout is ", seconds,
                                     ": it must be a positive number of seconds, at most a year"));
}

// How long a store may take to confirm that a wait is over: the node waits for a store that pauses
// for a while, but not much longer than the rendezvous.
milliseconds CancelGrace(const RendezvousParameters& parameters, milliseconds read_timeout) {
  const milliseconds join = RendezvousSettings::From(parameters).join_timeout;
  return std::min(read_timeout, std::max<milliseconds>(join, std::chrono::seconds(5)));
}

std::shared_ptr<TcpStore> OpenTcpStore(const HostAndPort& at, bool serve, milliseconds timeout,
                                       milliseconds grace) {
  return std::make_shared<TcpStore>(at.host, TcpStoreOptions{.port = static_cast<uint16_t>(at.port),
                                                             .is_server = serve,
                                                             .timeout = timeout,
                                                             .multi_tenant = true,
                                                             .cancel_grace = grace});
}

std::shared_ptr<TcpStore> CreateTcp(const RendezvousParameters& parameters) {
  const HostAndPort at = ParseRendezvousEndpoint(parameters.endpoint, kDefaultPort);
  const std::optional<bool> is_host = parameters.GetAsBool("is_host");
  const milliseconds timeout = ReadTimeout(parameters);
  const milliseconds grace = CancelGrace(parameters, timeout);
  const bool serve = is_host ? *is_host : MatchesThisMachine(at.host);
  try {
    return OpenTcpStore(at, serve, timeout, grace);
  } catch (const InterruptedError&) {
    throw;
  } catch (const std::exception& error) {
    const std::string where = Concat(at.host, ":", at.port);
    if (!serve || is_host) {
      std::throw_with_nested(RendezvousConnectionError(
          Concat("the store of the rendezvous could not be ", serve ? "served at " : "reached at ",
                 where, ": ", error.what())));
    }
    // The endpoint is on this machine, and another process has its port: probably another agent,
    // which serves the store for both.
    return Reaching(Concat("be served at ", where, " (", error.what(), "), nor reached there"),
                    [&] { return OpenTcpStore(at, false, timeout, grace); });
  }
}

std::shared_ptr<Store> CreateFile(const RendezvousParameters& parameters) {
  std::string path = parameters.endpoint;
  if (path.empty()) {
    Result<std::string> made = MakeTemporaryFile("muster_rendezvous_");
    if (!made) throw RendezvousError(made.error().message);
    path = std::move(*made);
  }
  return Reaching(Concat("be opened as file '", path, "'"),
                  [&] { return std::make_shared<FileStore>(path); });
}

// A muster server refuses the document of a run that its coordinator has; it can only close the
// connection. A status request finds the reason.
void ThrowIfOfBackendMuster(const RendezvousParameters& parameters) {
  const HostAndPort at = ParseRendezvousEndpoint(parameters.endpoint, kDefaultPort);
  System& around = ThisProcess();
  const Instant deadline = around.clock().Now() + kStatusPatience;
  Result<StatusClient> server =
      StatusClient::Connect(around.dialer(), {at.host, static_cast<uint16_t>(at.port)}, deadline);
  if (!server) return;
  const Result<std::vector<RunReport>> runs = server->Request(parameters.run_id, deadline);
  if (!runs || runs->empty()) return;
  const std::vector<MemberReport>& members = runs->front().members;
  throw RendezvousError(Concat(
      "run '", parameters.run_id, "' at ", at.host, ":", at.port, " is one of backend muster",
      members.empty() ? "" : Concat(" (node '", members.front().node.ToString(), "')"),
      ", and this node was given backend c10d: give all nodes the same backend, or this job "
      "another id"));
}

}  // namespace

std::pair<std::unique_ptr<RendezvousBackend>, std::shared_ptr<Store>> CreateC10dBackend(
    const RendezvousParameters& parameters) {
  const EventRecorder events({}, parameters.run_id, [] {
    return EventOrigin{.hostname = FullyQualifiedName(), .pid = ProcessId()};
  });
  try {
    const bool is_file = StoreType(parameters) == "file";
    std::shared_ptr<Store> store;
    if (is_file) {
      store = CreateFile(parameters);
    } else {
      const std::shared_ptr<TcpStore> tcp = CreateTcp(parameters);
      if (tcp->is_server()) {
        events.Record(
            "c10d_rendezvous_backend:_create_tcp_store", NodeState::kInit, std::nullopt,
            [] { return Concat("process ", ProcessId(), " serves the rendezvous store"); });
      }
      store = tcp;
    }
    // A connection of its own: heartbeats must not wait for a caller that blocks on the other one.
    std::shared_ptr<Store> own =
        Reaching("be connected to a second time", [&] { return store->Clone(); });
    try {
      return {CreateC10dBackend(std::move(own), parameters.run_id), std::move(store)};
    } catch (const RendezvousConnectionError&) {
      if (!is_file) ThrowIfOfBackendMuster(parameters);
      throw;
    }
  } catch (const std::exception& error) {
    events.RecordFailure("c10d_rendezvous_backend:create_backend", std::nullopt, error.what());
    throw;
  }
}

RendezvousHandlerPtr CreateC10dHandler(const RendezvousParameters& parameters) {
  auto [backend, store] = CreateC10dBackend(parameters);
  return CreateDynamicHandler(std::move(store), std::move(backend), parameters);
}

}  // namespace muster
