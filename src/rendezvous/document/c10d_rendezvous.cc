#include "muster/c10d_rendezvous.h"

#include <algorithm>
#include <utility>

#include "base/encoding.h"
#include "base/instrumented.h"
#include "base/interruption.h"
#include "base/text.h"
#include "muster/dynamic_rendezvous.h"
#include "muster/file_store.h"
#include "muster/network.h"
#include "muster/tcp_store.h"
#include "os/ports/system.h"
#include "os/posix/file_io.h"
#include "os/posix/process.h"
#include "rendezvous/event_recorder.h"
#include "rendezvous/option_readers.h"
#include "rendezvous/reconnect.h"
#include "rendezvous/session/status_client.h"
#include "store/throw.h"

namespace muster {

namespace {

constexpr int kDefaultPort = 29400;
constexpr Duration kStatusPatience = 2s;

constexpr std::string_view kStoreCouldNot = "the store of the rendezvous could not ";

// --- The backend

// "No state yet". A key that does not exist cannot be read without blocking, so it always exists.
constexpr std::string_view kNothing = "Y2FuaW1hZGFt";

std::string Decode(std::string_view stored) {
  Result<std::string> bytes = Base64Decode(stored);
  if (bytes) return *std::move(bytes);
  throw RendezvousStateError(Concat("the state of the rendezvous is not base64 (",
                                    bytes.error().message, "): '", Printable(stored, 40), "'"));
}

class C10dBackend final : public RendezvousBackend {
 public:
  C10dBackend(std::shared_ptr<Store> store, std::string_view run_id)
      : store_(std::move(store)), key_(Concat("torch.rendezvous.", run_id)) {
    CompareSet("create the key", "", kNothing);
  }

  std::string Name() const override { return "c10d"; }

  std::optional<StoredState> GetState() override {
    std::string stored = Read();
    if (stored == kNothing) return std::nullopt;
    return StoredState{Decode(stored), std::move(stored)};
  }

  using RendezvousBackend::SetState;
  /// Tokens are std::string: the encoded state.
  std::optional<StoredState> SetState(std::string_view bytes, const std::any& token) override {
    const auto* expected = std::any_cast<std::string>(&token);
    if (token.has_value() && expected == nullptr)
      return GetState();  // a token of another backend matches nothing
    const std::string encoded = Base64Encode(bytes);
    const std::string_view fence =
        expected == nullptr || expected->empty() ? kNothing : std::string_view(*expected);
    const std::string present = Planted(Bug::kWriteUnfenced) ? Read() : std::string(fence);
    std::string stored = CompareSet("be written", present, encoded);
    if (stored == fence) {
      // If the key had held the expected bytes, it would hold the new bytes now: it was deleted,
      // unless both are the same. A restarted store is empty; this node's state should be written
      // there again.
      stored = CompareSet("create the key anew", "", kNothing);
    }
    if (stored == kNothing) return std::nullopt;
    if (stored == encoded) return StoredState{std::string(bytes), std::move(stored), true};
    return StoredState{Decode(stored), std::move(stored)};
  }

  /// News are keys next to the key of the state: a store can wait for keys.
  void Announce(std::string_view news) override {
    Try("announce", [&](Store& store) { store.Set(Concat(key_, ".", news), "1"); });
  }

  bool AwaitNews(std::string_view news, milliseconds time) override {
    Try("be waited on", [&](Store& store) {
      try {
        store.Wait({Concat(key_, ".", news)}, std::max(time, milliseconds(1)));
      } catch (const StoreTimeoutError&) {
      }
    });
    return true;
  }

 private:
  /// A lost connection fails the current call; the next call opens another.
  auto Try(std::string_view what, const auto& operation)
      -> decltype(operation(std::declval<Store&>())) {
    try {
      if (lost_) {
        store_ = Reconnected(*store_);
        store_->CompareSet(key_, "", kNothing);  // there may be another server now
        lost_ = false;
      }
      return operation(*store_);
    } catch (const InterruptedError&) {
      // The wait may have broken the connection: that must not prevent all further rounds.
      const ScopedUninterrupted once;
      try {
        lost_ = lost_ || !StillThere(*store_);
      } catch (const std::exception&) {
        lost_ = true;
      }
      throw;
    } catch (const std::exception& error) {
      if (dynamic_cast<const NetworkError*>(&error) != nullptr) lost_ = true;
      std::throw_with_nested(
          RendezvousConnectionError(Concat(kStoreCouldNot, what, ": ", error.what())));
    }
  }

  std::string Read() {
    return Try("be read", [&](Store& store) { return store.Get(key_); });
  }

  std::string CompareSet(std::string_view what, std::string_view expected,
                         std::string_view desired) {
    return Try(what, [&](Store& store) { return store.CompareSet(key_, expected, desired); });
  }

  std::shared_ptr<Store> store_;
  const std::string key_;
  bool lost_ = false;  ///< The connection of the store.
};

// --- From parameters

std::string StoreType(const RendezvousParameters& parameters) {
  const ConfigValue given = parameters.Get("store_type", ConfigValue("tcp"));
  const auto* text = std::get_if<std::string>(&given);
  const std::string type = text == nullptr ? "" : LowerCase(Trim(*text));
  if (type == "tcp" || type == "file") return type;
  throw Invalid("store_type is '", text == nullptr ? "" : Printable(*text),
                "': only 'tcp' and 'file' are supported");
}

// How long a store may take to confirm that a wait is over: the node waits for a store that pauses
// for a while, but not much longer than the rendezvous.
milliseconds CancelGrace(const RendezvousParameters& parameters, milliseconds read_timeout) {
  const milliseconds join = RendezvousSettings::From(parameters).join_timeout;
  return std::min(read_timeout, std::max<milliseconds>(join, std::chrono::seconds(5)));
}

std::shared_ptr<TcpStore> CreateTcp(const RendezvousParameters& parameters) {
  const HostAndPort at = ParseRendezvousEndpoint(parameters.endpoint, kDefaultPort);
  const std::optional<bool> is_host = parameters.GetAsBool("is_host");
  const milliseconds timeout = ReadTimeout(parameters);
  const milliseconds grace = CancelGrace(parameters, timeout);
  TcpStoreOptions options{.port = static_cast<uint16_t>(at.port),
                          .is_server = is_host ? *is_host : MatchesThisMachine(at.host),
                          .timeout = timeout,
                          .multi_tenant = true,
                          .cancel_grace = grace};
  const auto open = [&] { return std::make_shared<TcpStore>(at.host, options); };
  const std::string where = Concat(at.host, ":", at.port);
  if (is_host || !options.is_server) {
    const std::string_view what = options.is_server ? "be served at " : "be reached at ";
    return Reaching(Concat(kStoreCouldNot, what, where), open);
  }
  try {
    return open();
  } catch (const InterruptedError&) {
    throw;
  } catch (const std::exception& error) {
    // The endpoint is on this machine, and another process has its port: probably another agent,
    // which serves the store for both.
    options.is_server = false;
    return Reaching(
        Concat(kStoreCouldNot, "be served at ", where, " (", error.what(), "), nor reached there"),
        open);
  }
}

std::shared_ptr<Store> CreateFile(const RendezvousParameters& parameters) {
  std::string path = parameters.endpoint;
  if (path.empty()) {
    Result<std::string> made = MakeTemporaryFile("muster_rendezvous_");
    if (!made) throw RendezvousError(made.error().message);
    path = std::move(*made);
  }
  return Reaching(Concat(kStoreCouldNot, "be opened as file '", path, "'"),
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

std::unique_ptr<RendezvousBackend> CreateC10dBackend(std::shared_ptr<Store> store,
                                                     const std::string& run_id) {
  if (!store) throw Invalid("C10dRendezvousBackend: store is null");
  if (run_id.empty()) {
    throw Invalid("the run id is empty: it names the rendezvous and must not be");
  }
  return std::make_unique<C10dBackend>(std::move(store), run_id);
}

std::pair<std::unique_ptr<RendezvousBackend>, std::shared_ptr<Store>> CreateC10dBackend(
    const RendezvousParameters& parameters) {
  const EventRecorder events({}, parameters.run_id);
  try {
    const bool is_file = StoreType(parameters) == "file";
    std::shared_ptr<Store> store;
    if (is_file) {
      store = CreateFile(parameters);
    } else {
      const std::shared_ptr<TcpStore> tcp = CreateTcp(parameters);
      if (tcp->is_server()) {
        events.RecordOfProcess("c10d_rendezvous_backend:_create_tcp_store", NodeState::kInit,
                               "process ", ProcessId(), " serves the rendezvous store");
      }
      store = tcp;
    }
    // A connection of its own: heartbeats must not wait for a caller that blocks on the other one.
    std::shared_ptr<Store> own = Reaching(Concat(kStoreCouldNot, "be connected to a second time"),
                                          [&] { return store->Clone(); });
    try {
      return {CreateC10dBackend(std::move(own), parameters.run_id), std::move(store)};
    } catch (const RendezvousConnectionError&) {
      if (!is_file) ThrowIfOfBackendMuster(parameters);
      throw;
    }
  } catch (const std::exception& error) {
    events.RecordFailure("c10d_rendezvous_backend:create_backend", nullptr, error.what());
    throw;
  }
}

RendezvousHandlerPtr CreateC10dHandler(const RendezvousParameters& parameters) {
  auto [backend, store] = CreateC10dBackend(parameters);
  return CreateDynamicHandler(std::move(store), std::move(backend), parameters);
}

}  // namespace muster
