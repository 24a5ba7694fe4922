// EtcdServer: a throwaway etcd on this machine, for tests, experiments and jobs of one node. It
// ends with its object, and with this process, also if that is killed.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "muster/error.h"

namespace muster {

struct EtcdServerOptions {
  /// The program. Empty: what TORCHELASTIC_ETCD_BINARY_PATH names, if that exists; else `etcd` from
  /// PATH.
  std::string binary{};
  /// Folder for the data, in subfolders named by the attempt ("0", "1"...), which Stop() removes.
  /// Empty: a temporary folder.
  std::string data_dir{};
  /// Members of the cluster, 1 to 9. An even number survives no more losses than the odd one below
  /// it.
  int members = 1;
  /// Of the first member; 0: a free port. The others get free ports.
  uint16_t port = 0;
  /// More flags of etcd, for all members.
  std::vector<std::string> flags{};

  /// std::invalid_argument names an option that is out of range.
  void Validate() const;
};

/// One thread at a time.
class EtcdServer {
 public:
  /// Starts nothing.
  explicit EtcdServer(EtcdServerOptions options = {});
  /// Stops it.
  ~EtcdServer();
  EtcdServer(const EtcdServer&) = delete;
  EtcdServer& operator=(const EtcdServer&) = delete;

  /// Returns when every member is healthy, which includes that they have a leader. Each attempt may
  /// take `timeout`; after the first, there are up to `retries` more, with other ports.
  /// std::runtime_error: etcd is not installed, or ended (with its exit status and the end of its
  /// log). StoreTimeoutError: it was not healthy in time. Does nothing if it runs.
  void Start(std::chrono::milliseconds timeout = std::chrono::seconds(60), int retries = 3);
  /// Stops etcd, waits for its end, and removes its data. Does nothing if it does not run.
  void Stop();

  bool is_running() const;
  /// Of the first member; -1 when it does not run.
  int port() const;
  std::string host() const { return "localhost"; }
  /// "localhost:2379"; of the first member, and of all.
  std::string endpoint() const;
  std::vector<std::string> endpoints() const;
  /// The members' process ids.
  std::vector<int> pids() const;
  /// How each member ended, if it has: "exit status 1", "signal 9".
  std::vector<std::optional<std::string>> ends() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace muster
