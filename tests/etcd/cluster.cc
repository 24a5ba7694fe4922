#include "etcd/cluster.h"

#include <arpa/inet.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <stdexcept>
#include <string_view>

#include "base/text.h"
#include "support/eventually.h"

namespace muster::test {

namespace {

bool CanBind(uint16_t port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) throw std::runtime_error("no socket");
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const bool bound = bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  close(fd);
  return bound;
}

std::string Quoted(const std::string& word) { return "'" + word + "'"; }

}  // namespace

uint16_t QuietPort() {
  std::ifstream given_away("/proc/sys/net/ipv4/ip_local_port_range");
  int end = 32768;
  given_away >> end;
  static std::mt19937 random(std::random_device{}());
  std::uniform_int_distribution<int> any(10'000, end - 1);
  while (true) {
    const auto port = static_cast<uint16_t>(any(random));
    if (CanBind(port)) return port;
  }
}

Ran RunCommand(const std::vector<std::string>& command) {
  std::string line = "exec 2>&1; exec";
  for (const std::string& word : command) line += " " + Quoted(word);
  ChildProcess process = ChildProcess::Run({"sh", "-c", line});
  process.CloseInput();
  std::string output;
  while (const auto next = process.ReadLine()) output += *next + "\n";
  return {process.Wait(), output};
}

Need EtcdNeed() {
  return {.what = "etcd",
          .missing =
              [] {
                static const bool has = RunCommand({"etcd", "--version"}).status == 0 &&
                                        RunCommand({"etcdctl", "version"}).status == 0;
                return has ? "" : "there is no 'etcd' with its 'etcdctl' on the PATH";
              },
          .is_required =
              [] {
                const char* value = std::getenv("MUSTER_REQUIRE_ETCD");
                return value != nullptr && std::string_view(value) == "1";
              }};
}

EtcdCluster::EtcdCluster(ClusterOptions options) : options_(std::move(options)) {
  for (int i = 0; i < options_.members; ++i)
    members_.push_back({.client_port = QuietPort(), .peer_port = QuietPort(), .process = nullptr});
  for (int i = 0; i < options_.members; ++i) Start(i);
  if (!EventuallyTrue([this] { return IsHealthy(); }))
    throw std::runtime_error("etcd does not get healthy:\n" + Logs());
}

EtcdCluster::~EtcdCluster() = default;

Endpoint EtcdCluster::endpoint(int member) const {
  return {"127.0.0.1", members_.at(static_cast<size_t>(member)).client_port};
}

std::vector<HostAndPort> EtcdCluster::endpoints() const {
  std::vector<HostAndPort> all;
  for (int i = 0; i < options_.members; ++i) all.push_back({endpoint(i).host, endpoint(i).port});
  return all;
}

EtcdOptions EtcdCluster::access() const { return {.endpoints = endpoints()}; }

std::string EtcdCluster::InitialCluster() const {
  std::string all;
  for (size_t i = 0; i < members_.size(); ++i)
    all += Concat(all.empty() ? "" : ",", "m", i, "=http://127.0.0.1:", members_[i].peer_port);
  return all;
}

void EtcdCluster::Start(int member) {
  Member& self = members_.at(static_cast<size_t>(member));
  const std::string name = Concat("m", member);
  const std::string client = Concat(Scheme(), "://127.0.0.1:", self.client_port);
  const std::string peer = Concat("http://127.0.0.1:", self.peer_port);
  std::vector<std::string> words = {"etcd",
                                    "--name",
                                    name,
                                    "--data-dir",
                                    dir_.File(name),
                                    "--listen-client-urls",
                                    client,
                                    "--advertise-client-urls",
                                    client,
                                    "--listen-peer-urls",
                                    peer,
                                    "--initial-advertise-peer-urls",
                                    peer,
                                    "--initial-cluster",
                                    InitialCluster(),
                                    "--unsafe-no-fsync"};
  if (!options_.cert_file.empty()) {
    words.insert(words.end(), {"--cert-file", options_.cert_file, "--key-file", options_.key_file});
  }
  if (!options_.client_ca_file.empty())
    words.insert(words.end(), {"--client-cert-auth", "--trusted-ca-file", options_.client_ca_file});
  words.insert(words.end(), options_.more.begin(), options_.more.end());
  std::string line = "exec >>" + Quoted(dir_.File(name + ".log")) + " 2>&1; exec";
  for (const std::string& word : words) line += " " + Quoted(word);
  self.process = std::make_unique<ChildProcess>(ChildProcess::Run({"sh", "-c", line}));
}

void EtcdCluster::Kill(int member) { members_.at(static_cast<size_t>(member)).process.reset(); }

void EtcdCluster::BackUp(int member) const {
  const std::string data = dir_.File(Concat("m", member));
  std::filesystem::copy(data, data + ".backup", std::filesystem::copy_options::recursive);
}

void EtcdCluster::Restore(int member) const {
  const std::string data = dir_.File(Concat("m", member));
  std::filesystem::remove_all(data);
  std::filesystem::copy(data + ".backup", data, std::filesystem::copy_options::recursive);
}

void EtcdCluster::Signal(int member, int signal) {
  const pid_t pid = members_.at(static_cast<size_t>(member)).process->pid();
  if (kill(pid, signal) != 0) throw std::runtime_error("etcd cannot be signalled");
  // Its threads stop one after the other. On a busy machine this takes 20 ms, in which it can still
  // answer.
  siginfo_t stopped{};
  if (signal == SIGSTOP && waitid(P_PID, static_cast<id_t>(pid), &stopped, WSTOPPED) != 0)
    throw std::runtime_error("etcd does not stop");
}

bool EtcdCluster::IsHealthy() const {
  std::vector<std::string> words = {"etcdctl", "--endpoints", "", "--dial-timeout=2s",
                                    "--command-timeout=3s"};
  for (const auto& [host, port] : endpoints())
    words[2] += Concat(words[2].empty() ? "" : ",", Scheme(), "://", host, ":", port);
  words.insert(words.end(), options_.etcdctl.begin(), options_.etcdctl.end());
  words.insert(words.end(), {"endpoint", "health"});
  return RunCommand(words).status == 0;
}

std::string EtcdCluster::Control(const std::vector<std::string>& words) const {
  std::vector<std::string> command = {"etcdctl", "--endpoints",
                                      Concat(Scheme(), "://", endpoint(0).ToString())};
  command.insert(command.end(), options_.etcdctl.begin(), options_.etcdctl.end());
  command.insert(command.end(), words.begin(), words.end());
  const Ran ran = RunCommand(command);
  if (ran.status != 0)
    throw std::runtime_error(Concat("etcdctl ", words.front(), ": ", ran.output));
  return ran.output;
}

std::string EtcdCluster::Logs() const {
  std::string all;
  for (size_t i = 0; i < members_.size(); ++i) all += ReadFile(dir_.File(Concat("m", i, ".log")));
  return all;
}

}  // namespace muster::test
