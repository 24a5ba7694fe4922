#include "muster/tcp_store.h"

#include <cstdlib>
#include <mutex>
#include <utility>

#include "base/limits.h"
#include "base/text.h"
#include "os/ports/system.h"
#include "store/client/store_client.h"
#include "store/store_backend.h"
#include "store/tcp_store_on.h"
#include "store/throw.h"

namespace muster {

namespace {

// torchrun sets these variables for its workers when the agent serves their store. The worker that
// should start the store then finds the port in use, which is not an error. This holds only for
// that endpoint: for another store it is an error.
bool AgentServes(const std::string& host, uint16_t port) {
  const char* agent_serves = std::getenv("TORCHELASTIC_USE_AGENT_STORE");
  if (agent_serves == nullptr || ParseBool(agent_serves) != true) return false;
  const char* agent_port = std::getenv("MASTER_PORT");
  const char* agent_host = std::getenv("MASTER_ADDR");
  if (agent_port == nullptr || Concat(port) != agent_port) return false;
  return agent_host == nullptr || host == agent_host;
}

std::shared_ptr<StoreServer> StartServer(const std::string& host, const TcpStoreOptions& options) {
  StoreServerOptions server = options.server;
  server.port = options.port;
  try {
    return options.multi_tenant ? StoreServer::Shared(server)
                                : std::make_shared<StoreServer>(server);
  } catch (const NetworkError&) {
    if (AgentServes(host, options.port)) return nullptr;
    throw;
  }
}

struct TcpBackend final : StoreBackend {
  TcpBackend(System& system, std::string where, const TcpStoreOptions& given)
      : environment(system), host(std::move(where)), options(given) {}
  Result<Answer> Execute(const Request& request, Timeout timeout) override {
    const auto lock = LockUnlessInterrupted(mutex, "TcpStore");
    return client->Execute(request, timeout);
  }
  bool Supports(Op) const override { return true; }

  void Connect() {
    // A remote server with a raised limit for values has a higher limit for requests, too, which is
    // unknown here.
    const bool raised = !options.is_server && options.value_bytes_max > kValueBytesMax;
    const StoreClientOptions client_options{
        .key_bytes_max = options.key_bytes_max,
        .value_bytes_max = options.value_bytes_max,
        .request_bytes_max = raised ? UINT64_MAX : options.server.request_bytes_max,
        .answer_grace = options.cancel_grace,
        .nonce = environment.process_id(),
        .seed = environment.Seed()};
    client =
        ValueOrThrow(StoreClient::Connect(environment.dialer(), environment.clock(),
                                          {host, options.port}, client_options, options.timeout));
  }

  System& environment;
  const std::string host;
  TcpStoreOptions options;
  std::shared_ptr<StoreServer> server;  // null for a pure client
  std::mutex mutex;                     // one call at a time on the client
  std::unique_ptr<StoreClient> client;
};

std::unique_ptr<TcpBackend> Open(std::string host, const TcpStoreOptions& options, System& system) {
  options.Validate();
  auto store = std::make_unique<TcpBackend>(system, std::move(host), options);
  if (options.is_server) {
    store->server = StartServer(store->host, options);
    if (store->server) store->options.port = store->server->port();
  }
  store->Connect();
  const int world_size = options.world_size.value_or(-1);
  if (options.wait_for_workers && world_size > 0) {
    ValueOrThrow(store->client->Join(world_size, store->server != nullptr, options.timeout));
  }
  return store;
}

}  // namespace

void TcpStoreOptions::Validate() const {
  if (world_size && *world_size == 0) throw Invalid("TCPStore world size cannot be 0");
  if (cancel_grace.count() <= 0) {
    throw Invalid("TcpStoreOptions::cancel_grace is ", cancel_grace.count(),
                  " ms: a server needs some time to answer");
  }
  if (!is_server && port == 0) {
    throw Invalid("TcpStoreOptions::port is 0: only a server may leave it to the kernel");
  }
}

TcpStore::TcpStore(std::string host, const TcpStoreOptions& options)
    : TcpStore(Open(std::move(host), options, ThisProcess())) {}

std::shared_ptr<TcpStore> OpenTcpStore(std::string host, const TcpStoreOptions& options,
                                       System& system) {
  return std::make_shared<TcpStore>(Open(std::move(host), options, system));
}

TcpStore::TcpStore(std::unique_ptr<StoreBackend> connected) : BackedStore(std::move(connected)) {
  SetTimeout(backend<TcpBackend>().options.timeout);
}

std::shared_ptr<Store> TcpStore::Clone() {
  const auto& own = backend<TcpBackend>();
  TcpStoreOptions options = own.options;
  options.is_server = false;
  options.timeout = Timeout();
  auto clone = std::make_unique<TcpBackend>(own.environment, own.host, options);
  clone->Connect();
  return std::make_shared<TcpStore>(std::move(clone));
}

void TcpStore::Ping() {
  ValueOrThrow(backend<StoreBackend>().Execute({.op = Op::kPing}, Timeout()));
}

const std::string& TcpStore::host() const { return backend<TcpBackend>().host; }
uint16_t TcpStore::port() const { return backend<TcpBackend>().options.port; }
bool TcpStore::is_server() const { return backend<TcpBackend>().server != nullptr; }

}  // namespace muster
