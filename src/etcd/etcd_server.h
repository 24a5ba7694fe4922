// A throwaway etcd on this machine, for tests, experiments and jobs of one node. It ends with its
// object, and with this process, even if the process is killed.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/text.h"
#include "base/time.h"
#include "os/posix/kept_child.h"

namespace muster {

struct EtcdServerOptions {
  /// The program. Empty: what TORCHELASTIC_ETCD_BINARY_PATH names, if that exists; else `etcd` from
  /// PATH.
  std::string binary{};
  /// Folder for the data, in subfolders named by the attempt ("0", "1"...), which Stop() removes.
  /// Empty: a temporary folder.
  std::string data_dir{};
  /// Members of the cluster, 1 to 9. An even number tolerates no more losses than the odd number
  /// below it.
  int members = 1;
  /// Of the first member; 0: a free port. The others get free ports.
  uint16_t port = 0;
};

/// One thread at a time.
class EtcdServer {
 public:
  /// Starts nothing. std::invalid_argument: no possible number of members.
  explicit EtcdServer(EtcdServerOptions options = {});
  ~EtcdServer() { Stop(); }
  EtcdServer(EtcdServer&&) = delete;

  /// Returns when every member is healthy, which includes that they have a leader. Each attempt may
  /// take `timeout`; after the first, there are up to `retries` more, with other ports.
  /// std::runtime_error: etcd is not installed, or ended (with its exit status and the end of its
  /// log). StoreTimeoutError: it was not healthy in time. Does nothing if it runs.
  void Start(std::chrono::milliseconds timeout = std::chrono::seconds(60), int retries = 3);
  /// Stops etcd, waits for its end, and removes its data. Does nothing if it does not run.
  void Stop();

  // Of each member; nothing when it does not run.
  std::vector<std::string> endpoints() const { return Each(&Member::endpoint); }
  std::vector<int> pids() const { return Each(&Member::pid); }
  /// How each member ended, if it has: "exit status 1", "signal 9".
  std::vector<std::optional<std::string>> ends() const { return Each(&Member::end); }

 private:
  struct Member {
    uint16_t client_port = 0;
    uint16_t peer_port = 0;
    std::string log{};
    std::unique_ptr<KeptChild> process{};

    /// "localhost:2379"
    std::string endpoint() const { return Concat("localhost:", client_port); }
    int pid() const { return process->pid(); }
    std::optional<std::string> end() const { return process->end(); }
    bool IsHealthy(Instant deadline) const;
  };

  template <typename Fact>
  std::vector<Fact> Each(Fact (Member::*fact)() const) const {
    std::vector<Fact> all;
    for (const Member& member : members_) all.push_back((member.*fact)());
    return all;
  }
  void MakeRoot();
  void StartAttempt(int attempt);
  void StartMember(size_t index, const std::string& cluster);
  void AwaitHealth(std::chrono::milliseconds timeout) const;
  void EndMembers();

  const EtcdServerOptions options_;
  std::filesystem::path root_;
  bool made_root_ = false;
  std::vector<std::filesystem::path> folders_;
  std::vector<Member> members_;
};

}  // namespace muster
