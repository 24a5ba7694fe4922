// StoreServer: the server that TcpStores (muster's and PyTorch's) connect to.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "muster/error.h"

namespace muster {

struct StoreServerOptions {
  std::string host{};  ///< Address to listen on; empty: all interfaces, IPv6 and IPv4.
  uint16_t port = 0;   ///< 0 lets the kernel choose; see StoreServer::port().
  /// A bound TCP socket to use instead; `port`, unless 0, must be its port. The server closes it.
  int listen_fd = -1;
  int threads = 0;  ///< Loop threads; 0: half of the usable cores, at least one.
  /// Descriptors in reserve for sessions, and for addresses other than the one with most
  /// connections, when the process runs out of them. 0: a sixteenth of all, at most 64.
  uint64_t descriptor_reserve = 0;

  /// Limits; a client that exceeds one is disconnected. The first three are PyTorch's own.
  uint64_t key_bytes_max = 8 * 1024;
  uint64_t value_bytes_max = 8 * 1024 * 1024;
  uint64_t keys_per_request_max = 128 * 1024;
  uint64_t request_bytes_max = 256ull * 1024 * 1024;  ///< One whole request.
  /// One reply; also what APPEND may grow a value to.
  uint64_t reply_bytes_max = 256ull * 1024 * 1024;
  uint64_t queued_reply_bytes_max = 1024 * 1024;  ///< Queued replies of a slow reader.
  /// All that is allocated for clients together: keys, values, queues, waits, unfinished requests
  /// and replies that have not been read. A request that would exceed it is refused; others are
  /// still served. The last eighth is for small requests. 0: a quarter of the memory of the
  /// machine, or of the control group, if that has less.
  uint64_t store_bytes_max = 0;
  std::chrono::milliseconds handshake_max{30'000};  ///< Time to send VALIDATE.
  /// A client that for this long reads its replies, or sends the rest of a request of more than 64
  /// KiB, more slowly than 16 KiB per second is disconnected.
  std::chrono::milliseconds stall_max{60'000};

  /// Runs of rendezvous, and nodes in each; further ones are refused.
  uint64_t runs_max = 10'000;
  uint64_t nodes_per_run_max = 128 * 1024;
  /// How long a run without nodes is remembered, while there is room.
  std::chrono::milliseconds run_kept_max{600'000};

  /// Warnings (true) and details (false), one line each, from the server's threads. Null: none.
  std::function<void(bool warning, std::string_view line)> log{};

  /// std::invalid_argument names the option that is invalid.
  void Validate() const;
};

/// Serves from construction to destruction, which closes every connection, on its own threads.
class StoreServer {
 public:
  /// NetworkError if it cannot listen.
  explicit StoreServer(const StoreServerOptions& options = {});
  ~StoreServer();

  /// The server of this process on `options.port`: the running one, whatever its options, or a new
  /// one that later callers with the same port share. It ends with its last owner. Port 0 always
  /// starts a new one.
  static std::shared_ptr<StoreServer> Shared(const StoreServerOptions& options);

  uint16_t port() const;
  /// The address on which it listens, "[::]:29500".
  std::string address() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace muster
