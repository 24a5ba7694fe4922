#include "muster/c10d_rendezvous.h"

#include <algorithm>
#include <utility>

#include "base/base64.h"
#include "base/interruption.h"
#include "base/planted.h"
#include "base/text.h"
#include "base/trim.h"
#include "muster/dynamic_rendezvous.h"
#include "muster/file_store.h"
#include "muster/network.h"
#include "muster/tcp_store.h"
#include "os/ports/system.h"
#include "os/posix/process.h"
#include "os/posix/temporary_file.h"
#include "rendezvous/event_recorder.h"
#include "rendezvous/reconnect.h"
#include "rendezvous/session/status_client.h"

namespace muster {

namespace {

constexpr int kDefaultPort = 29400;
constexpr Duration kStatusPatience = 2s;

// "No state yet". A key that does not exist cannot be read without blocking, so it always exists.
constexpr std::string_view kNothing = "Y2FuaW1hZGFt";

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

std::string Decode(std::string_view stored) {
  Result<std::string> bytes = Base64Decode(stored);
  if (bytes) return std::move(*bytes);
  throw RendezvousStateError(Concat("the state of the rendezvous is not base64 (",
                                    bytes.error().message, "): '", Printable(stored, 40), "'"));
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

// How long a store may leave open that a wait is over: one that stands still for a while is waited
// for, but not much longer than the rendezvous.
milliseconds CancelGrace(const RendezvousParameters& parameters, milliseconds read_timeout) {
  const milliseconds join = RendezvousSettings::From(parameters).timeout.join;
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
    // The endpoint is here, and somebody else has its port: probably another agent on this machine,
    // who serves the store for both of us.
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

template <typename Operation>
auto C10dRendezvousBackend::Reach(std::string_view what, Operation operation) {
  return Reaching(what, [&] {
    if (lost_) {
      store_ = Reconnected(*store_);
      store_->CompareSet(key_, "", kNothing);  // another server may be there now
      lost_ = false;
    }
    try {
      return operation();
    } catch (const NetworkError&) {
      lost_ = true;
      throw;
    } catch (const InterruptedError&) {
      // The connection may have been given up: that must not be the end of all rounds.
      const ScopedUninterrupted once;
      lost_ = !StillThere(*store_);
      throw;
    }
  });
}

C10dRendezvousBackend::C10dRendezvousBackend(std::shared_ptr<Store> store,
                                             const std::string& run_id)
    : store_(std::move(store)), key_(Concat("torch.rendezvous.", run_id)) {
  if (!store_) throw std::invalid_argument("C10dRendezvousBackend: store is null");
  if (run_id.empty()) {
    throw std::invalid_argument("the run id is empty: it names the rendezvous and must not be");
  }
  Reach("create the key", [&] { return store_->CompareSet(key_, "", kNothing); });
}

std::optional<StoredState> C10dRendezvousBackend::GetState() {
  std::string stored = Reach("be read", [&] { return store_->Get(key_); });
  if (stored == kNothing) return std::nullopt;
  std::string bytes = Decode(stored);
  return StoredState{std::move(bytes), std::move(stored)};
}

std::optional<SetStateResult> C10dRendezvousBackend::SetState(std::string_view bytes,
                                                              const std::any& token) {
  const auto* expected = std::any_cast<std::string>(&token);
  if (token.has_value() && expected == nullptr) {  // not one of ours: it fences nothing
    std::optional<StoredState> stored = GetState();
    if (!stored) return std::nullopt;
    return SetStateResult{std::move(stored->bytes), std::move(stored->token), false};
  }
  const std::string encoded = Base64Encode(bytes);
  const std::string_view fence =
      expected == nullptr || expected->empty() ? kNothing : std::string_view(*expected);
  const std::string present = Planted(Bug::kWriteUnfenced) ? store_->Get(key_) : "";
  std::string stored = Reach("be written", [&] {
    return store_->CompareSet(key_, present.empty() ? fence : present, encoded);
  });
  if (stored == fence) {
    // Had the key held what we expected, it would hold our bytes now: it is gone, unless those are
    // the same. A store that was started anew has forgotten everything; what we know is worth
    // writing there again.
    stored = Reach("create the key anew", [&] { return store_->CompareSet(key_, "", kNothing); });
  }
  if (stored == kNothing) return std::nullopt;
  const bool was_set = stored == encoded;
  std::string now_stored = was_set ? std::string(bytes) : Decode(stored);
  return SetStateResult{std::move(now_stored), std::move(stored), was_set};
}

void C10dRendezvousBackend::Announce(std::string_view news) {
  Reach("announce", [&] { store_->Set(Concat(key_, ".", news), "1"); });
}

bool C10dRendezvousBackend::AwaitNews(std::string_view news, std::chrono::milliseconds time) {
  Reach("be waited on", [&] {
    try {
      store_->Wait({Concat(key_, ".", news)}, std::max(time, std::chrono::milliseconds(1)));
    } catch (const StoreTimeoutError&) {
    }
  });
  return true;
}

namespace {

// A muster server refuses the document of a run that its coordinator has, and can only hang up to
// say so. What it has against us is learnt by asking how the run stands.
void ThrowIfOfBackendMuster(const RendezvousParameters& parameters) {
  const HostAndPort at = ParseRendezvousEndpoint(parameters.endpoint, kDefaultPort);
  System& around = ThisProcess();
  const Instant deadline = around.clock().Now() + kStatusPatience;
  Result<StatusClient> server =
      StatusClient::Connect(around.dialer(), {at.host, static_cast<uint16_t>(at.port)}, deadline);
  if (!server) return;
  const Result<std::vector<RunReport>> runs = server->Ask(parameters.run_id, deadline);
  if (!runs || runs->empty()) return;
  const std::vector<MemberReport>& members = runs->front().members;
  throw RendezvousError(Concat(
      "run '", parameters.run_id, "' at ", at.host, ":", at.port, " is one of backend muster",
      members.empty() ? "" : Concat(" (node '", members.front().node.ToString(), "')"),
      ", and this node was given backend c10d: give all nodes the same backend, or this job "
      "another id"));
}

}  // namespace

C10dRendezvous CreateC10dBackend(const RendezvousParameters& parameters) {
  const EventRecorder events({}, parameters.run_id, [] {
    return EventOrigin{.hostname = FullyQualifiedName(), .pid = ProcessId()};
  });
  try {
    C10dRendezvous made;
    if (StoreType(parameters) == "file") {
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
    // A connection of its own: whoever blocks on the other one must not hold heartbeats up.
    std::shared_ptr<Store> own =
        Reaching("be connected to a second time", [&] { return made.store->Clone(); });
    try {
      made.backend = std::make_unique<C10dRendezvousBackend>(std::move(own), parameters.run_id);
    } catch (const RendezvousConnectionError&) {
      if (StoreType(parameters) != "file") ThrowIfOfBackendMuster(parameters);
      throw;
    }
    return made;
  } catch (const std::exception& error) {
    const auto what = [&] { return std::string(error.what()); };
    events.RecordFailure("c10d_rendezvous_backend:create_backend", std::nullopt, what, what);
    throw;
  }
}

RendezvousHandlerPtr CreateC10dHandler(const RendezvousParameters& parameters) {
  C10dRendezvous made = CreateC10dBackend(parameters);
  return CreateDynamicHandler(std::move(made.store), std::move(made.backend), parameters);
}

}  // namespace muster
