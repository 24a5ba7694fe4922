#include "rendezvous/session/coordinated_handler.h"

#include <algorithm>
#include <memory>
#include <mutex>
#include <utility>

#include "base/text.h"
#include "muster/c10d_rendezvous.h"
#include "muster/prefix_store.h"
#include "muster/store_server.h"
#include "os/posix/host.h"
#include "os/posix/line_writer.h"
#include "os/posix/process.h"
#include "rendezvous/option_readers.h"
#include "rendezvous/reconnect.h"
#include "rendezvous/session/session_handler.h"
#include "rendezvous/session/session_link.h"
#include "store/tcp_store_on.h"

namespace muster {

namespace {

using std::chrono::milliseconds;

constexpr const char* kServeEvent = "coordinated_rendezvous:serve";
constexpr const char* kFallbackEvent = "coordinated_rendezvous:fall_back_to_c10d";

// c10d counts keep-alives in whole seconds.
int64_t WholeSeconds(milliseconds time) {
  return std::max<int64_t>(1, std::chrono::ceil<std::chrono::seconds>(time).count());
}

SessionHandlerOptions HandlerOptions(const CoordinatedRendezvousOptions& options, System& system,
                                     const Endpoint& at) {
  return {.class_name = "coordinated_rendezvous:CoordinatedRendezvousHandler",
          .server = Concat("the server at ", at.ToString()),
          .hello = {.run_id = options.run_id,
                    .node = NewNode(system, options.local_addr),
                    .settings = RunSettingsOf(options, options.grace),
                    .label = options.label},
          .join_timeout = options.join_timeout,
          .close_timeout = options.close_timeout,
          .events = options.events};
}

/// Whether this node serves: its machine is the one that the endpoint names. IsHere() may wait
/// seconds for the resolver, so it is called only if is_host is not set.
bool MayServe(const CoordinatedRendezvousOptions& options) {
  return options.is_host ? *options.is_host : IsHere(options.host);
}

// Several nodes may be on that machine: the first one serves. The others find the port in use.
std::shared_ptr<StoreServer> Serve(const CoordinatedRendezvousOptions& options) {
  try {
    return StoreServer::Shared({.port = options.port});
  } catch (const std::exception& error) {
    if (!options.is_host) return nullptr;
    throw RendezvousConnectionError(
        Concat("the rendezvous could not be served at port ", options.port, ": ", error.what()));
  }
}

class CoordinatedHandler final : public SessionHandler {
 public:
  CoordinatedHandler(CoordinatedRendezvousOptions options, System& system, bool may_serve,
                     std::shared_ptr<StoreServer> server, const Endpoint& at)
      : SessionHandler(HandlerOptions(options, system, at), system),
        coordinated_(std::move(options)),
        at_(at),
        may_serve_(may_serve),
        server_(std::move(server)) {
    if (server_) RecordThatItServes();
  }
  ~CoordinatedHandler() override { EndSession(); }

  std::string GetBackend() const override { return "muster"; }
  bool IsHost() const override {
    const std::lock_guard lock(server_mutex_);
    return server_ != nullptr;
  }

 private:
  std::unique_ptr<RendezvousLink> MakeLink(LoopThread& thread, const Hello& hello, uint64_t seed,
                                           RendezvousLinkListener& listener) override {
    return std::make_unique<SessionLink>(
        thread.loop(), thread.connector(),
        SessionLinkOptions{.server = at_,
                           .hello = hello,
                           .seed = seed,
                           .on_nobody_there = [this] { return ServeLate(); },
                           .is_here = may_serve_},
        listener);
  }

  // Whoever had the port when this handler was created does not answer there: it was another
  // program, or a node that has ended. Without a server all nodes would wait for each other.
  std::string ServeLate() {
    if (!may_serve_ || IsHost()) return "";
    try {
      auto server = StoreServer::Shared({.port = at_.port});
      const std::lock_guard lock(server_mutex_);
      server_ = std::move(server);
    } catch (const std::exception& error) {
      return Concat("; and it cannot be served here: ", error.what());
    }
    RecordThatItServes();
    return "; it is served here now";
  }

  void RecordThatItServes() const {
    events_.RecordOfProcess(kServeEvent, NodeState::kInit, "process ", ProcessId(),
                            " serves the rendezvous");
  }

  RendezvousHandlerPtr MakeReplacement() override {
    const std::string line =
        Concat("the server at ", coordinated_.host, ":", at_.port,
               " has no coordinator (PyTorch's has none): going on with the c10d backend");
    if (coordinated_.log) {
      coordinated_.log(line);
    } else {
      StandardError().Write(Concat("muster: ", line, "\n"));
    }
    events_.RecordOfProcess(kFallbackEvent, NodeState::kRunning, line);
    // Without it, c10d would look up its own name.
    const std::string local_addr =
        coordinated_.local_addr.empty() ? AddressTowards(at_) : coordinated_.local_addr;
    RendezvousConfig config{{"is_host", false},
                            {"join_timeout", WholeSeconds(coordinated_.join_timeout)},
                            {"last_call_timeout", WholeSeconds(coordinated_.last_call)},
                            {"close_timeout", WholeSeconds(coordinated_.close_timeout)}};
    return CreateC10dHandler({"c10d", at_.ToString(), coordinated_.run_id, coordinated_.min_nodes,
                              coordinated_.max_nodes, local_addr, config});
  }

  // The store's connection may have been lost with the session's.
  std::shared_ptr<Store> StoreOf(const Push& assignment) override {
    const uint64_t session = connections();
    if (!store_ || store_of_ != session || !StillThere(*store_)) {
      store_ = Reaching(
          Concat("the store of the rendezvous at ", at_.ToString(), " could not be reached"), [&] {
            return OpenTcpStore(coordinated_.host,
                                {.port = at_.port, .timeout = coordinated_.join_timeout}, system_);
          });
      store_of_ = session;
    }
    return std::make_shared<PrefixStore>(RoundPrefix(assignment.generation, assignment.round),
                                         store_);
  }

  const CoordinatedRendezvousOptions coordinated_;
  const Endpoint at_;
  const bool may_serve_;
  std::shared_ptr<Store> store_;
  uint64_t store_of_ = 0;  ///< The number of session connections when the store was created.
  mutable std::mutex server_mutex_;  ///< Guards this, which may be set late.
  std::shared_ptr<StoreServer> server_;
};

}  // namespace

RendezvousHandlerPtr CreateCoordinatedHandler(CoordinatedRendezvousOptions options,
                                              System& system) {
  options.Validate();
  const bool may_serve = MayServe(options);
  auto server = may_serve ? Serve(options) : nullptr;
  const Endpoint at{options.host, server ? server->port() : options.port};
  return std::make_unique<CoordinatedHandler>(std::move(options), system, may_serve,
                                              std::move(server), at);
}

RendezvousHandlerPtr CreateCoordinatedHandler(CoordinatedRendezvousOptions options) {
  return CreateCoordinatedHandler(std::move(options), ThisProcess());
}

RendezvousHandlerPtr CreateCoordinatedHandler(const RendezvousParameters& parameters) {
  return CreateCoordinatedHandler(CoordinatedRendezvousOptions::From(parameters));
}

}  // namespace muster
