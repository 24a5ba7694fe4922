#include "muster/tcp_store.h"

#include <cstdlib>
#include <mutex>
#include <stdexcept>
#include <utility>

#include "base/limits.h"
#include "base/text.h"
#include "os/ports/system.h"
#include "store/client/store_client.h"
#include "store/throw.h"

namespace muster {

namespace {

// torchrun sets these variables for its workers when the agent serves their store: the worker that
// is to start it finds the port taken, which is no error. Only for that endpoint: for another store
// it is an error.
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

}  // namespace

void TcpStoreOptions::Validate() const {
  if (world_size && *world_size == 0)
    throw std::invalid_argument("TCPStore world size cannot be 0");
  if (cancel_grace.count() <= 0) {
    throw std::invalid_argument(Concat("TcpStoreOptions::cancel_grace is ", cancel_grace.count(),
                                       " ms: a server needs some time to answer"));
  }
  if (!is_server && port == 0) {
    throw std::invalid_argument(
        "TcpStoreOptions::port is 0: only a server may leave it to the kernel");
  }
}

struct TcpStore::Impl {
  explicit Impl(System& system) : environment(system) {}
  static std::unique_ptr<Impl> Open(std::string host, const TcpStoreOptions& options,
                                    System& system);

  System& environment;
  std::string host{};
  TcpStoreOptions options{};
  std::shared_ptr<StoreServer> server{};  // null for a pure client
  std::unique_ptr<StoreClient> client{};
  mutable std::mutex mutex{};          // one call at a time on the client
  mutable std::mutex timeout_mutex{};  // apart: SetTimeout must not wait for a blocked Get
  milliseconds timeout{};

  void Connect() {
    timeout = options.timeout;
    // A remote server whose limit for values was raised has a higher limit for requests, too, which
    // is unknown here.
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

  milliseconds Timeout() const {
    const std::lock_guard lock(timeout_mutex);
    return timeout;
  }

  /// Runs `call(client, timeout)` alone on the connection and returns its value, or throws.
  template <typename Call>
  auto Run(const Call& call) {
    const milliseconds limit = Timeout();
    const auto lock = LockUnlessInterrupted(mutex, "TcpStore");
    return ValueOrThrow(call(*client, limit));
  }
};

TcpStore::TcpStore(std::string host, const TcpStoreOptions& options)
    : impl_(Impl::Open(std::move(host), options, ThisProcess())) {}

std::shared_ptr<TcpStore> OpenTcpStore(std::string host, const TcpStoreOptions& options,
                                       System& system) {
  return std::make_shared<TcpStore>(TcpStore::Impl::Open(std::move(host), options, system));
}

std::unique_ptr<TcpStore::Impl> TcpStore::Impl::Open(std::string host,
                                                     const TcpStoreOptions& options,
                                                     System& system) {
  options.Validate();
  auto impl = std::make_unique<Impl>(system);
  impl->host = std::move(host);
  impl->options = options;
  if (options.is_server) {
    impl->server = StartServer(impl->host, options);
    if (impl->server) impl->options.port = impl->server->port();
  }
  impl->Connect();
  const int world_size = options.world_size.value_or(-1);
  if (options.wait_for_workers && world_size > 0) {
    OkOrThrow(impl->client->Join(world_size, impl->server != nullptr, options.timeout));
  }
  return impl;
}

TcpStore::TcpStore(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
TcpStore::~TcpStore() = default;

void TcpStore::Set(std::string_view key, std::string_view value) {
  impl_->Run(
      [&](StoreClient& client, milliseconds limit) { return client.Set(key, value, limit); });
}

std::string TcpStore::Get(std::string_view key) {
  return impl_->Run(
      [&](StoreClient& client, milliseconds limit) { return client.Get(key, limit); });
}

int64_t TcpStore::Add(std::string_view key, int64_t delta) {
  return impl_->Run(
      [&](StoreClient& client, milliseconds limit) { return client.Add(key, delta, limit); });
}

std::string TcpStore::CompareSet(std::string_view key, std::string_view expected,
                                 std::string_view desired) {
  return impl_->Run([&](StoreClient& client, milliseconds limit) {
    return client.CompareSet(key, expected, desired, limit);
  });
}

bool TcpStore::Check(const std::vector<std::string>& keys) {
  return impl_->Run(
      [&](StoreClient& client, milliseconds limit) { return client.Check(keys, limit); });
}

void TcpStore::Wait(const std::vector<std::string>& keys, milliseconds timeout) {
  impl_->Run([&](StoreClient& client, milliseconds) { return client.Wait(keys, timeout); });
}

bool TcpStore::DeleteKey(std::string_view key) {
  return impl_->Run(
      [&](StoreClient& client, milliseconds limit) { return client.Delete(key, limit); });
}

int64_t TcpStore::GetNumKeys() {
  return impl_->Run([&](StoreClient& client, milliseconds limit) { return client.Count(limit); });
}

std::vector<std::string> TcpStore::ListKeys() {
  return impl_->Run(
      [&](StoreClient& client, milliseconds limit) { return client.ListKeys(limit); });
}

void TcpStore::Append(std::string_view key, std::string_view suffix) {
  impl_->Run(
      [&](StoreClient& client, milliseconds limit) { return client.Append(key, suffix, limit); });
}

std::vector<std::string> TcpStore::MultiGet(const std::vector<std::string>& keys) {
  return impl_->Run(
      [&](StoreClient& client, milliseconds limit) { return client.MultiGet(keys, limit); });
}

void TcpStore::MultiSet(const std::vector<std::string>& keys,
                        const std::vector<std::string>& values) {
  impl_->Run([&](StoreClient& client, milliseconds limit) {
    return client.MultiSet(keys, values, limit);
  });
}

void TcpStore::QueuePush(std::string_view key, std::string_view value) {
  impl_->Run(
      [&](StoreClient& client, milliseconds limit) { return client.Push(key, value, limit); });
}

std::string TcpStore::QueuePop(std::string_view key, PopMode mode) {
  const milliseconds limit = Timeout();
  const auto lock = LockUnlessInterrupted(impl_->mutex, "TcpStore");
  Result<std::string> element =
      mode == PopMode::kWait ? impl_->client->Pop(key, limit) : impl_->client->TryPop(key, limit);
  if (!element && element.error().code == Code::kNotFound)
    throw QueueEmptyError(element.error().message);
  return ValueOrThrow(std::move(element));
}

int64_t TcpStore::QueueLen(std::string_view key) {
  return impl_->Run(
      [&](StoreClient& client, milliseconds limit) { return client.QueueLength(key, limit); });
}

void TcpStore::Barrier(std::string_view key, int64_t world_size, milliseconds timeout) {
  impl_->Run(
      [&](StoreClient& client, milliseconds) { return client.Barrier(key, world_size, timeout); });
}

std::shared_ptr<Store> TcpStore::Clone() {
  auto impl = std::make_unique<Impl>(impl_->environment);
  impl->host = impl_->host;
  impl->options = impl_->options;
  impl->options.is_server = false;
  impl->options.timeout = Timeout();
  impl->Connect();
  return std::shared_ptr<Store>(new TcpStore(std::move(impl)));
}

milliseconds TcpStore::Timeout() const { return impl_->Timeout(); }

void TcpStore::SetTimeout(milliseconds timeout) {
  const std::lock_guard lock(impl_->timeout_mutex);
  impl_->timeout = timeout;
}

void TcpStore::Ping() {
  impl_->Run([&](StoreClient& client, milliseconds limit) { return client.Ping(limit); });
}

const std::string& TcpStore::host() const { return impl_->host; }
uint16_t TcpStore::port() const { return impl_->options.port; }
bool TcpStore::is_server() const { return impl_->server != nullptr; }

}  // namespace muster
