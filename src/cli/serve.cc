// `muster serve`: runs a server until SIGINT or SIGTERM.
#include <memory>
#include <stdexcept>
#include <string>

#include "base/endpoint.h"
#include "base/limits.h"
#include "base/text.h"
#include "cli/commands.h"
#include "cli/process.h"
#include "muster/store_server.h"
#include "os/posix/memory.h"

namespace muster::cli {
namespace {

struct ServeFlags {
  std::string listen = "127.0.0.1:29500";
  std::string port_file;
  bool json = false;
  bool verbose = false;
  bool quiet = false;
  double handshake_seconds = 30;
  double stall_seconds = 60;
  double run_kept_seconds = 600;
  StoreServerOptions options;
};

// The limits of StoreServerOptions::Validate(): flags are refused first, with messages of their
// own.
constexpr uint64_t kFrame = 4ull << 30;
constexpr double kClientSecondsMax = 4294967;

int Serve(ServeFlags& flags) {
  const Result<Endpoint> endpoint = ParseHostPort(flags.listen);
  if (!endpoint) throw std::invalid_argument("--listen " + endpoint.error().message);
  flags.options.host = endpoint->host;
  flags.options.port = endpoint->port;
  flags.options.handshake_max = ToMilliseconds(flags.handshake_seconds);
  flags.options.stall_max = ToMilliseconds(flags.stall_seconds);
  flags.options.run_kept_max = ToMilliseconds(flags.run_kept_seconds);
  if (!flags.quiet) {
    flags.options.log = [verbose = flags.verbose](bool warning, std::string_view line) {
      if (warning || verbose) LogToStderr(warning, line);
    };
  }
  GiveMemoryBack();
  const StopSignals signals;
  RaiseDescriptorLimit();
  std::unique_ptr<StoreServer> server;
  try {
    server = std::make_unique<StoreServer>(flags.options);
  } catch (const NetworkError& error) {
    throw std::runtime_error(error.what());  // status 1: not a failure of another server
  }
  const PortFile port_file(flags.port_file, server->port());
  PrintResult(flags.json, {{"address", server->address()}, {"port", server->port()}},
              Concat("muster: serving on ", server->address()));
  while (!signals.AwaitFor(std::chrono::hours(1))) continue;
  return kOk;
}

void AddLimits(CLI::App& serve, ServeFlags& flags) {
  StoreServerOptions& options = flags.options;
  const auto count = [&](const char* name, uint64_t& value, uint64_t most, const char* help) {
    AddWhole(serve, name, value, 1, most, help);
  };
  count("--key-bytes-max", options.key_bytes_max, kFrame - 1, "Largest key");
  count("--value-bytes-max", options.value_bytes_max, kFrame - 1, "Largest value");
  count("--keys-per-request-max", options.keys_per_request_max, kFrame - 1,
        "Most keys in one request");
  count("--request-bytes-max", options.request_bytes_max, 64 * kFrame,
        "Largest request as a whole");
  count("--reply-bytes-max", options.reply_bytes_max, kFrame / 2, "Largest reply, and grown value");
  count("--queued-reply-bytes-max", options.queued_reply_bytes_max, kFrame / 4,
        "Replies that may wait for a slow reader");
  serve
      .add_option(
          "--store-bytes-max", options.store_bytes_max,
          "Memory for all clients together, such as 256MiB; 0: a quarter of the machine's or the\n"
          "control group's memory")
      ->transform(Bytes(kStoreBytesLeast))
      ->capture_default_str();
  count("--runs-max", options.runs_max, kFrame, "Runs at a time");
  count("--nodes-per-run-max", options.nodes_per_run_max, kFrame, "Nodes in one run");
  const auto seconds = [&](const char* name, double& value, const char* help) {
    AddSeconds(serve, name, value, 0.001, kClientSecondsMax, help);
  };
  seconds("--handshake-seconds", flags.handshake_seconds, "Time for the first message of a client");
  seconds("--run-kept-seconds", flags.run_kept_seconds, "Time to keep a run without nodes");
  seconds("--stall-seconds", flags.stall_seconds,
          "Time a client may take its replies, or send a request, at less than 16 KiB a second");
}

}  // namespace

void AddServe(CLI::App& app, Run* run) {
  constexpr const char* kAbout =
      R"(Run a server: the coordinator of any number of rendezvous, and a store that muster's and
PyTorch's clients can use, on one port.

Prints one line with its real address once it accepts connections, and runs until SIGINT or SIGTERM,
which end it with status 0. Every client that reaches the address can use the store: listen on a
trusted network only.

  muster serve --listen :29500                          all interfaces, IPv6 and IPv4
  muster serve --listen 127.0.0.1:0 --port-file port    a free port, written to a file)";
  auto [serve, flags] = AddCommand(app, run, "serve", kAbout, Serve);
  AddText(serve, "--listen", flags.listen,
          "HOST:PORT; no HOST: all interfaces; PORT 0: a free one");
  AddWhole(serve, "--threads", flags.options.threads, 0, 1024,
           "Loop threads; 0: half of the usable cores, at least one");
  serve.add_option("--port-file", flags.port_file,
                   "Write the real port to this file; removed at the end");
  AddLimits(serve, flags);
  serve.add_flag("--json", flags.json, "Print the address as JSON");
  serve.add_flag("-v,--verbose", flags.verbose, "Log closed connections, too");
  serve.add_flag("-q,--quiet", flags.quiet, "Log nothing");
}

}  // namespace muster::cli
