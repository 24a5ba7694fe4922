// TcpStore: a client of a StoreServer, muster's or PyTorch's (tested: 2.13, 2.15),
// wire-compatible with both.
#pragma once

#include <optional>

#include "muster/backed_store.h"
#include "muster/store_server.h"

namespace muster {

struct TcpStoreOptions {
  uint16_t port = 29500;            ///< With is_server, 0 lets the kernel choose.
  std::optional<int> world_size{};  ///< Number of TcpStores that join, including this one.
  bool is_server = false;           ///< Start (or share) a StoreServer on `port` in this process.
  /// For connecting, and the store's Timeout() afterwards.
  milliseconds timeout = kDefaultStoreTimeout;
  /// With a world size: join the count of workers; the owner of the server returns only when all
  /// have joined.
  bool wait_for_workers = true;
  bool multi_tenant = false;    ///< With is_server: share the process's server on this port.
  StoreServerOptions server{};  ///< With is_server. Its port is the one above.

  /// Largest key and value that this client sends. A larger one is an error of the call; the server
  /// would close the connection. Raise them only with the server's.
  uint64_t key_bytes_max = 8 * 1024;
  uint64_t value_bytes_max = 8 * 1024 * 1024;

  /// After a Wait() or Get() has timed out, how long the server may take to confirm its
  /// cancellation. Without an answer in this time the connection is closed. The owner of a server
  /// that has waited for workers checks their number a last time within this time, too.
  milliseconds cancel_grace = milliseconds(5'000);

  /// std::invalid_argument names the option that is invalid.
  void Validate() const;
};

/// Barrier() is one request: the server counts the participants. It needs muster's server, or
/// PyTorch's from 2.12 on.
class TcpStore final : public BackedStore {
 public:
  /// Connects, and retries until the timeout while there is no answer. NetworkError if there is
  /// none until then; StoreTimeoutError if other workers do not join.
  TcpStore(std::string host, const TcpStoreOptions& options);

  /// A new connection; it does not keep the server alive.
  std::shared_ptr<Store> Clone() override;

  /// One round trip that touches no key.
  void Ping();

  const std::string& host() const;
  /// The server's port; the chosen one if 0 was given.
  uint16_t port() const;
  /// Whether the server lives in this object.
  bool is_server() const;

  /// For muster's own use.
  explicit TcpStore(std::unique_ptr<StoreBackend> connected);
};

}  // namespace muster
