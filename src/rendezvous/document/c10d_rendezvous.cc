#include "muster/c10d_rendezvous.h"

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "base/trim.h"
#include "muster/file_store.h"
#include "muster/network.h"
#include "muster/tcp_store.h"
#include "os/ports/system.h"
#include "os/posix/process.h"
#include "os/posix/temporary_file.h"
#include "rendezvous/document/c10d_cell.h"
#include "rendezvous/document/dynamic_handler.h"
#include "rendezvous/event_recorder.h"
#include "rendezvous/session/status_client.h"
#include "store/throw.h"

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

// What failed in the cell, as an exception; what the store threw is its cause.
template <typename T>
T OrThrow(C10dCell& cell, Result<T> result) {
  if (result) return std::move(*result);
  const Error& error = result.error();
  if (error.code == Code::kInterrupted) ThrowInterrupted(error.message);
  if (error.code == Code::kProtocol) throw RendezvousStateError(error.message);
  try {
    if (const std::exception_ptr cause = cell.TakeCause()) std::rethrow_exception(cause);
  } catch (...) {
    std::throw_with_nested(RendezvousConnectionError(error.message));
  }
  throw RendezvousConnectionError(error.message);
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

// How long a store may take to confirm that a wait is over: a store that pauses for a while is
// waited for, but not much longer than the rendezvous.
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
  const std::optional<bool> told = parameters.GetAsBool("is_host");
  const milliseconds timeout = ReadTimeout(parameters);
  const milliseconds grace = CancelGrace(parameters, timeout);
  const bool serve = told ? *told : MatchesThisMachine(at.host);
  try {
    return OpenTcpStore(at, serve, timeout, grace);
  } catch (const InterruptedError&) {
    throw;
  } catch (const std::exception& error) {
    const std::string where = Concat(at.host, ":", at.port);
    if (!serve || told) {
      std::throw_with_nested(RendezvousConnectionError(
          Concat("the store of the rendezvous could not be ", serve ? "served at " : "reached at ",
                 where, ": ", error.what())));
    }
    // The endpoint is here, and another process has its port: probably another agent on this
    // machine, which serves the store for both.
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

}  // namespace

namespace {

// The cell for users: its values become exceptions, with the store's own as their cause.
class C10dBackend final : public RendezvousBackend {
 public:
  explicit C10dBackend(std::unique_ptr<C10dCell> cell) : cell_(std::move(cell)) {}

  using RendezvousBackend::SetState;
  std::string Name() const override { return cell_->Name(); }
  std::optional<StoredState> GetState() override { return OrThrow(*cell_, cell_->Get()); }
  std::optional<StoredState> SetState(std::string_view bytes, const std::any& token) override {
    return OrThrow(*cell_, cell_->Set(bytes, token));
  }
  void Announce(std::string_view news) override { cell_->Announce(news); }
  bool AwaitNews(std::string_view news, milliseconds time) override {
    return cell_->Await(news, time);
  }

 private:
  const std::unique_ptr<C10dCell> cell_;
};

std::unique_ptr<C10dCell> OpenCell(std::shared_ptr<Store> store, const std::string& run_id) {
  if (!store) throw std::invalid_argument("C10dRendezvousBackend: store is null");
  if (run_id.empty()) {
    throw std::invalid_argument("the run id is empty: it names the rendezvous and must not be");
  }
  auto cell = std::make_unique<C10dCell>(std::move(store), run_id);
  OrThrow(*cell, cell->Open());
  return cell;
}

}  // namespace

std::unique_ptr<RendezvousBackend> CreateC10dBackend(std::shared_ptr<Store> store,
                                                     const std::string& run_id) {
  return std::make_unique<C10dBackend>(OpenCell(std::move(store), run_id));
}

namespace {

// A muster server refuses the document of a run that its coordinator has, and can only close the
// connection. The reason is found by a status request.
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

namespace {

struct Opened {
  std::unique_ptr<C10dCell> cell;
  std::shared_ptr<Store> store;
};

Opened OpenStoreAndCell(const RendezvousParameters& parameters) {
  const EventRecorder events({}, parameters.run_id, [] {
    return EventOrigin{.hostname = FullyQualifiedName(), .pid = ProcessId()};
  });
  try {
    Opened made;
    const bool is_file = StoreType(parameters) == "file";
    if (is_file) {
      made.store = CreateFile(parameters);
    } else {
      const std::shared_ptr<TcpStore> tcp = CreateTcp(parameters);
      if (tcp->is_server()) {
        events.Record(
            "c10d_rendezvous_backend:_create_tcp_store", NodeState::kInit, std::nullopt,
            [] { return Concat("process ", ProcessId(), " serves the rendezvous store"); });
      }
      made.store = tcp;
    }
    // A connection of its own: heartbeats must not wait for a caller that blocks on the other one.
    std::shared_ptr<Store> own =
        Reaching("be connected to a second time", [&] { return made.store->Clone(); });
    try {
      made.cell = OpenCell(std::move(own), parameters.run_id);
    } catch (const RendezvousConnectionError&) {
      if (!is_file) ThrowIfOfBackendMuster(parameters);
      throw;
    }
    return made;
  } catch (const std::exception& error) {
    events.RecordFailure("c10d_rendezvous_backend:create_backend", std::nullopt, error.what());
    throw;
  }
}

}  // namespace

C10dBackendAndStore CreateC10dBackend(const RendezvousParameters& parameters) {
  Opened made = OpenStoreAndCell(parameters);
  return {std::make_unique<C10dBackend>(std::move(made.cell)), std::move(made.store)};
}

RendezvousHandlerPtr CreateC10dHandler(const RendezvousParameters& parameters) {
  Opened made = OpenStoreAndCell(parameters);
  std::unique_ptr<StateBackend> cell = std::move(made.cell);
  return CreateDynamicHandler(std::move(made.store), std::move(cell), parameters);
}

}  // namespace muster
