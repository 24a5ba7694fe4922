// `muster serve`: a store server until it is told to stop.
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>

#include "base/endpoint.h"
#include "cli/commands.h"
#include "cli/process.h"
#include "muster/store_server.h"

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
  StoreServerOptions options;
};

std::chrono::milliseconds Seconds(double seconds) {
  return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000));
}

int Serve(ServeFlags& flags) {
  const Result<Endpoint> endpoint = ParseHostPort(flags.listen);
  if (!endpoint) throw std::invalid_argument("--listen " + endpoint.error().message);
  flags.options.host = endpoint->host;
  flags.options.port = endpoint->port;
  flags.options.handshake_max = Seconds(flags.handshake_seconds);
  flags.options.stall_max = Seconds(flags.stall_seconds);
  if (!flags.quiet) {
    flags.options.log = [verbose = flags.verbose](bool warning, std::string_view line) {
      if (warning || verbose) LogToStderr(warning, line);
    };
  }
  const StopSignals signals;
  RaiseDescriptorLimit();
  std::unique_ptr<StoreServer> server;
  try {
    server = std::make_unique<StoreServer>(flags.options);
  } catch (const NetworkError& error) {
    throw std::runtime_error(error.what());  // status 1: it is we who cannot serve
  }
  const PortFile port_file(flags.port_file, server->port());
  if (flags.json) {
    const nlohmann::json line = {{"address", server->address()}, {"port", server->port()}};
    std::printf("%s\n", line.dump().c_str());
  } else {
    std::printf("muster: serving on %s\n", server->address().c_str());
  }
  std::fflush(stdout);
  signals.Await();
  return kOk;
}

}  // namespace

void AddServe(CLI::App& app, Run* run) {
  auto flags = std::make_shared<ServeFlags>();
  CLI::App* serve = app.add_subcommand(
      "serve",
      "Run a store server that muster's and PyTorch's clients can use.\n"
      "\n"
      "Prints one line with its real address once it accepts connections, and runs until SIGINT or "
      "SIGTERM,\n"
      "which end it with status 0. Whoever can reach the address can use the store: listen on the "
      "network you\n"
      "trust, and no other.\n"
      "\n"
      "  muster serve --listen :29500                          all interfaces, IPv6 and IPv4\n"
      "  muster serve --listen 127.0.0.1:0 --port-file port    a free port, told through a file");
  serve
      ->add_option("--listen", flags->listen,
                   "HOST:PORT; no HOST: all interfaces; PORT 0: a free one")
      ->capture_default_str();
  serve->add_option("--threads", flags->options.threads, "Loop threads; 0: one for each core")
      ->capture_default_str();
  serve->add_option("--port-file", flags->port_file,
                    "Write the real port to this file; removed at the end");
  serve->add_option("--key-bytes-max", flags->options.key_bytes_max, "Largest key")
      ->capture_default_str();
  serve->add_option("--value-bytes-max", flags->options.value_bytes_max, "Largest value")
      ->capture_default_str();
  serve
      ->add_option("--keys-per-request-max", flags->options.keys_per_request_max,
                   "Most keys in one request")
      ->capture_default_str();
  serve
      ->add_option("--request-bytes-max", flags->options.request_bytes_max,
                   "Largest request as a whole")
      ->capture_default_str();
  serve
      ->add_option("--reply-bytes-max", flags->options.reply_bytes_max,
                   "Largest reply, and grown value")
      ->capture_default_str();
  serve
      ->add_option("--queued-reply-bytes-max", flags->options.queued_reply_bytes_max,
                   "Replies that may wait for a slow reader")
      ->capture_default_str();
  serve
      ->add_option("--handshake-seconds", flags->handshake_seconds,
                   "Time a client has for its first message")
      ->capture_default_str();
  serve
      ->add_option("--stall-seconds", flags->stall_seconds,
                   "Time a client may leave its replies untaken")
      ->capture_default_str();
  serve->add_flag("--json", flags->json, "Print the address as JSON");
  serve->add_flag("-v,--verbose", flags->verbose, "Log clients that vanish, too");
  serve->add_flag("-q,--quiet", flags->quiet, "Log nothing");
  serve->callback([flags, run] { *run = [flags] { return Serve(*flags); }; });
}

}  // namespace muster::cli
