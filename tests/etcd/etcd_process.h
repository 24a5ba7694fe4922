// A real etcd of one member on loopback, for a test program. Gone with its object, or the program.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <random>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>

#include "support/child_process.h"
#include "support/eventually.h"
#include "support/temp_dir.h"

namespace muster::test {

/// None of the ports that the system gives to whoever asks for any: while nothing listens there,
/// another test would be given it.
inline uint16_t PortForLater() {
  constexpr int kLowest = 10'000;
  int end = 32'768;
  std::ifstream("/proc/sys/net/ipv4/ip_local_port_range") >> end;
  std::random_device random;
  while (true) {
    const auto port = static_cast<uint16_t>(
        std::uniform_int_distribution<int>(kLowest, std::max(end, kLowest + 1'000) - 1)(random));
    const int probe = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in at{.sin_family = AF_INET,
                   .sin_port = htons(port),
                   .sin_addr = {.s_addr = htonl(INADDR_LOOPBACK)},
                   .sin_zero = {}};
    const bool is_free = bind(probe, reinterpret_cast<const sockaddr*>(&at), sizeof at) == 0;
    close(probe);
    if (is_free) return port;
  }
}

class EtcdProcess {
 public:
  EtcdProcess() {
    constexpr int kTries = 5;  // somebody may be faster at one of the ports
    for (int i = 0; i < kTries; ++i) {
      port_ = PortForLater();
      peer_port_ = PortForLater();
      Start();
      if (EventuallyTrue([&] { return HasEnded() || Listens(); }) && !HasEnded()) return;
    }
    throw std::runtime_error("etcd does not start:\n" + ReadFile(folder_.File("log")));
  }
  ~EtcdProcess() {
    if (process_) kill(process_->pid(), SIGCONT);  // a stopped one is killed all the same; quicker
  }

  /// Why there is none; empty if there is one.
  static std::string Missing() {
    const char* path = std::getenv("PATH");
    std::istringstream folders(path == nullptr ? "" : path);
    for (std::string folder; std::getline(folders, folder, ':');) {
      if (access((folder + "/etcd").c_str(), X_OK) == 0) return "";
    }
    return "there is no program 'etcd' on the PATH";
  }
  static bool IsRequired() {
    const char* value = std::getenv("MUSTER_REQUIRE_ETCD");
    return value != nullptr && std::string_view(value) == "1";
  }

  /// The one of this program, started when first asked for.
  static EtcdProcess& Shared() {
    static EtcdProcess process;
    return process;
  }

  uint16_t port() const { return port_; }
  std::string endpoint() const { return "127.0.0.1:" + std::to_string(port_); }

  void Signal(int number) const { kill(process_->pid(), number); }
  /// As if the machine had failed: what it said it kept, it keeps.
  void Kill() { process_.reset(); }
  /// On the same ports, with what was there.
  void Start() {
    const std::string here = "http://" + endpoint();
    const std::string peers = "http://127.0.0.1:" + std::to_string(peer_port_);
    process_ = std::make_unique<ChildProcess>(
        ChildProcess::Run({"etcd", "--name=test", "--data-dir=" + folder_.File("data"),
                           "--listen-client-urls=" + here, "--advertise-client-urls=" + here,
                           "--listen-peer-urls=" + peers, "--initial-advertise-peer-urls=" + peers,
                           "--initial-cluster=test=" + peers, "--logger=zap", "--log-level=warn",
                           "--log-outputs=" + folder_.File("log")}));
  }

 private:
  bool HasEnded() const {
    return ReadFile("/proc/" + std::to_string(process_->pid()) + "/stat").find(") Z ") !=
           std::string::npos;
  }
  bool Listens() const {
    const int probe = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in at{.sin_family = AF_INET,
                   .sin_port = htons(port_),
                   .sin_addr = {.s_addr = htonl(INADDR_LOOPBACK)},
                   .sin_zero = {}};
    const bool listens = connect(probe, reinterpret_cast<const sockaddr*>(&at), sizeof at) == 0;
    close(probe);
    return listens;
  }

  const TempDir folder_;
  uint16_t port_ = 0;
  uint16_t peer_port_ = 0;
  std::unique_ptr<ChildProcess> process_;
};

}  // namespace muster::test
