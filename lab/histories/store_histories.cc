// store_histories: records the calls of concurrent clients of a store, and their results, on real
// sockets, with and without faults. It checks that some order of the calls explains them.
//
// Status 0: every history is linearizable, and no call failed without a reason. 1: not so, and the
// contradiction is printed. 2: it could not run.
#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "base/endpoint.h"
#include "base/text.h"
#include "histories/campaign.h"
#include "histories/lying_server.h"
#include "muster/store_server.h"
#include "support/child_process.h"
#include "support/place.h"

namespace muster::test {
namespace {

struct Flags {
  CampaignOptions campaign{.seed = 0};
  std::string server;
  std::string torch;
  std::string lie;
  int threads = 3;
  uint64_t shown = 3;
  bool no_queues = false;
  bool no_pipelining = false;
  bool json = false;
};

/// The server under test: one of these, or one that is already running.
struct Server {
  std::string name;
  uint16_t port = 0;
  std::unique_ptr<StoreServer> muster;
  std::unique_ptr<LyingServer> liar;
  std::unique_ptr<ChildProcess> torch;
};

Server StartTorch(const std::string& backend) {
  const char* python = std::getenv("MUSTER_TORCH_PYTHON");
  if (python == nullptr) {
    throw std::runtime_error("MUSTER_TORCH_PYTHON does not name a Python that can import torch");
  }
  // It looks up the name of every client that connects; where no name server answers, that takes 5
  // s for each. It also logs much about clients that leave. Neither matters here.
  setenv("RES_OPTIONS", "attempts:1 timeout:1", 0);
  setenv("TORCH_CPP_LOG_LEVEL", "ERROR", 0);
  std::vector<std::string> command{python, TestsFolder() + "/compat/torch_server.py"};
  if (backend == "plain") command.push_back("legacy");
  Server server;
  server.name = Concat("PyTorch's, ", backend);
  server.torch = std::make_unique<ChildProcess>(ChildProcess::Run(command));
  constexpr milliseconds kStartMax{180'000};  // The first import of torch reads many files.
  while (const auto line = server.torch->ReadLine(kStartMax)) {
    if (!line->starts_with("PORT=")) continue;
    server.port = static_cast<uint16_t>(std::stoi(line->substr(5)));
    return server;
  }
  throw std::runtime_error(Concat("the server of ", python, " did not start"));
}

Server Reach(const Flags& flags) {
  if (!flags.torch.empty()) return StartTorch(flags.torch);
  Server server;
  if (!flags.server.empty()) {
    const Result<Endpoint> endpoint = ParseHostPort(flags.server);
    if (!endpoint) throw std::runtime_error(endpoint.error().message);
    if (endpoint->host != "127.0.0.1") throw std::runtime_error("--server must be 127.0.0.1:PORT");
    server.name = endpoint->ToString();
    server.port = endpoint->port;
  } else if (!flags.lie.empty()) {
    const std::optional<Lie> lie = LieNamed(flags.lie);
    if (!lie) throw std::runtime_error(Concat("--lie: there is no lie ", flags.lie));
    server.name = Concat("a liar's, ", Name(*lie));
    server.liar = std::make_unique<LyingServer>(*lie, flags.campaign.seed);
    server.port = server.liar->port();
  } else {
    server.name = Concat("muster's, ", flags.threads, " threads");
    server.muster = std::make_unique<StoreServer>(
        StoreServerOptions{.host = "127.0.0.1", .threads = flags.threads});
    server.port = server.muster->port();
  }
  return server;
}

/// Findings of the same kind have the same operations: "compareSet wait".
std::string Signature(const Finding& finding) {
  if (finding.violation.empty()) return "failed without a reason";
  if (finding.undecided) return "undecided";
  std::set<std::string_view> names;
  for (const Operation& operation : finding.violation) names.insert(Name(operation.kind));
  std::string signature;
  for (const std::string_view name : names) signature += Concat(signature.empty() ? "" : " ", name);
  return signature;
}

void PrintSummary(const Flags& flags, const std::string& server, const CampaignResult& result,
                  double seconds) {
  std::map<std::string, uint64_t> findings;
  for (const Finding& finding : result.findings) ++findings[Signature(finding)];
  if (flags.json) {
    const nlohmann::ordered_json summary{{"server", server},
                                         {"seed", flags.campaign.seed},
                                         {"histories", result.histories},
                                         {"faulty_histories", result.faulty_histories},
                                         {"operations", result.operations},
                                         {"unknown", result.unknown},
                                         {"outcomes", result.outcomes},
                                         {"checker_steps", result.visited},
                                         {"findings", findings},
                                         {"seconds", seconds}};
    std::printf("%s\n", summary.dump().c_str());
    return;
  }
  std::printf(
      "%llu histories (%llu with faults), %llu operations (%llu with an unknown outcome), "
      "%llu steps of the checker, %.1f s\n",
      static_cast<unsigned long long>(result.histories),
      static_cast<unsigned long long>(result.faulty_histories),
      static_cast<unsigned long long>(result.operations),
      static_cast<unsigned long long>(result.unknown),
      static_cast<unsigned long long>(result.visited), seconds);
  for (const auto& [signature, count] : findings) {
    std::printf("  %llu: %s\n", static_cast<unsigned long long>(count), signature.c_str());
  }
  std::printf("%s\n", findings.empty() ? "OK: all histories are linearizable"
                                       : "FAILED: not all histories are linearizable");
}

int Run(Flags& flags) {
  if (flags.torch == "plain") flags.no_queues = flags.no_pipelining = true;
  flags.campaign.plan.queues = !flags.no_queues;
  flags.campaign.plan.pipelined = !flags.no_pipelining;
  const Server server = Reach(flags);
  flags.campaign.port = server.port;
  if (!flags.json) {
    std::printf(
        "store_histories: seed=%llu histories=%llu faults=%llu%% lanes=%d load=%d server=%s\n",
        static_cast<unsigned long long>(flags.campaign.seed),
        static_cast<unsigned long long>(flags.campaign.histories),
        static_cast<unsigned long long>(flags.campaign.plan.fault_percent), flags.campaign.lanes,
        flags.campaign.load, server.name.c_str());
    std::fflush(stdout);
  }
  const auto start = std::chrono::steady_clock::now();
  uint64_t shown = 0;
  const CampaignResult result = RunCampaign(flags.campaign, [&](const Finding& finding) {
    if (shown++ >= flags.shown) return;
    std::fprintf(flags.json ? stderr : stdout, "%s\n", Describe(finding).c_str());
    std::fflush(stdout);
  });
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  PrintSummary(flags, server.name, result, took.count());
  return result.findings.empty() ? 0 : 1;
}

int Main(int argc, char** argv) {
  Flags flags;
  CampaignOptions& campaign = flags.campaign;
  CLI::App app{"Checks that what concurrent clients of a store see is linearizable."};
  app.add_option("--server", flags.server, "127.0.0.1:PORT of a running server; default: its own");
  app.add_option("--torch", flags.torch, "Ask PyTorch's server (MUSTER_TORCH_PYTHON): its backend")
      ->check(CLI::IsMember({"libuv", "plain"}));
  app.add_option("--lie", flags.lie, "Ask a server that lies: stale-read, lost-add, ...");
  app.add_option("--threads", flags.threads, "Loop threads of muster's server")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  app.add_option("--histories", campaign.histories, "How many")->capture_default_str();
  app.add_option("--seed", campaign.seed, "What they are drawn from; default: MUSTER_SEED or 1")
      ->envname("MUSTER_SEED")
      ->default_val(1);
  app.add_option("--replay", campaign.replay,
                 "The seed of one history, as it was printed: repeat that one");
  app.add_option("--faults", campaign.plan.fault_percent, "Histories with faults, in percent")
      ->check(CLI::Range(0, 100))
      ->capture_default_str();
  app.add_option("--lanes", campaign.lanes, "Histories at a time")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  app.add_option("--load", campaign.load, "Further connections that keep the server busy")
      ->check(CLI::Range(0, 64))
      ->capture_default_str();
  app.add_option("--show", flags.shown, "Findings that are printed")->capture_default_str();
  app.add_option("--stop-after", campaign.findings_max, "Findings that are enough; 0: go on");
  app.add_flag("--no-queues", flags.no_queues, "The server has no queues");
  app.add_flag("--no-pipelining", flags.no_pipelining, "No clients that send before they read");
  app.add_flag("--json", flags.json, "Print one object; findings go to the error output");
  CLI11_PARSE(app, argc, argv);
  try {
    return Run(flags);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "store_histories: %s\n", error.what());
    return 2;
  }
}

}  // namespace
}  // namespace muster::test

int main(int argc, char** argv) { return muster::test::Main(argc, argv); }
