// A real etcd of one or more members, on loopback, for one test. It ends with its object.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/endpoint.h"
#include "contracts/need.h"
#include "muster/etcd.h"
#include "support/child_process.h"
#include "support/temp_dir.h"

namespace muster::test {

/// A free port outside the range of ephemeral ports.
uint16_t QuietPort();

/// Whether etcd and etcdctl are installed. Without them tests are skipped, unless
/// MUSTER_REQUIRE_ETCD=1.
Need EtcdNeed();

struct ClusterOptions {
  int members = 1;
  /// For a server with TLS: its certificate, and the CA of client certificates.
  std::string cert_file{};
  std::string key_file{};
  std::string client_ca_file{};
  /// More arguments of etcdctl, for its access.
  std::vector<std::string> etcdctl{};
  std::vector<std::string> more{};  ///< Flags of etcd's.
};

class EtcdCluster {
 public:
  /// Throws if it does not become healthy.
  explicit EtcdCluster(ClusterOptions options = {});
  ~EtcdCluster();
  EtcdCluster(const EtcdCluster&) = delete;
  EtcdCluster& operator=(const EtcdCluster&) = delete;

  std::vector<HostAndPort> endpoints() const;
  Endpoint endpoint(int member) const;
  /// For all members; without TLS and user.
  EtcdOptions access() const;

  void Kill(int member);
  /// Restarts it with the same ports and data.
  void Start(int member);
  /// For a killed member: keeps a copy of its data, or puts it back.
  void BackUp(int member) const;
  void Restore(int member) const;
  /// After SIGSTOP, returns when it has stopped.
  void Signal(int member, int signal);
  bool IsHealthy() const;

  /// Runs etcdctl; throws if it fails. Returns its output.
  std::string Control(const std::vector<std::string>& words) const;
  /// The logs of all members, for a test that fails.
  std::string Logs() const;

 private:
  struct Member {
    uint16_t client_port;
    uint16_t peer_port;
    std::unique_ptr<ChildProcess> process;
  };
  std::string Scheme() const { return options_.cert_file.empty() ? "http" : "https"; }
  std::string InitialCluster() const;

  const ClusterOptions options_;
  const TempDir dir_;
  std::vector<Member> members_;
};

/// Runs a command; its exit status, and what it wrote to stdout and stderr.
struct Ran {
  int status;
  std::string output;
};
Ran RunCommand(const std::vector<std::string>& command);

}  // namespace muster::test
