#include "muster/static_rendezvous.h"

#include <algorithm>
#include <limits>
#include <mutex>
#include <utility>

#include "base/endpoint.h"
#include "base/text.h"
#include "muster/network.h"
#include "muster/prefix_store.h"
#include "muster/tcp_store.h"
#include "os/posix/posix_clock.h"
#include "store/throw.h"

namespace muster {

namespace {

struct StaticSettings {
  std::string run_id;
  Endpoint endpoint;
  int rank;
  int world_size;
  milliseconds timeout;
};

class StaticHandler final : public RendezvousHandler {
 public:
  explicit StaticHandler(StaticSettings settings) : settings_(std::move(settings)) {}

  std::string GetBackend() const override { return "static"; }
  std::string GetRunId() const override { return settings_.run_id; }
  bool UseAgentStore() const override { return true; }
  bool IsHost() const override { return settings_.rank == 0; }
  bool IsClosed() override { return false; }
  using RendezvousHandler::SetClosed;
  void SetClosed(std::string_view) override {}
  int64_t NumNodesWaiting() override { return 0; }
  bool Shutdown() override { return true; }

  RendezvousInfo NextRendezvous() override {
    if (!store_) {
      store_ = Meet();
    } else if (settings_.world_size == 1) {
      Forget();
    }
    // The port of the store: the endpoint's, or the one that the kernel chose.
    return {.store = std::make_shared<PrefixStore>(settings_.run_id, store_),
            .rank = settings_.rank,
            .world_size = settings_.world_size,
            .bootstrap_store_info = {settings_.endpoint.host, store_->port()}};
  }

  WaitReport DescribeWait() const override {
    const std::lock_guard lock(mutex_);
    WaitReport report{.phase = phase_,
                      .run_id = settings_.run_id,
                      .min_nodes = settings_.world_size,
                      .max_nodes = settings_.world_size};
    const auto rank_name = [](int rank) { return Concat("rank ", rank); };
    if (phase_ == WaitReport::Phase::kForming) {
      // The store does not show how many nodes have arrived before it returns. It is certain that
      // this node has, that rank 0 waits for the others (perhaps fewer by now), and that the others
      // wait only for rank 0.
      report.joined = {rank_name(settings_.rank)};
      report.here = 1;
      report.awaited = settings_.rank == 0 ? settings_.world_size - 1 : 1;
      if (deadline_ != Instant::Never()) {
        report.time_left =
            std::max(std::chrono::ceil<milliseconds>(deadline_ - clock_.Now()), milliseconds(0));
      }
    } else if (phase_ == WaitReport::Phase::kComplete) {
      for (int rank = 0; rank < settings_.world_size; ++rank)
        report.joined.push_back(rank_name(rank));
      report.here = settings_.world_size;
    }
    return report;
  }

 private:
  std::shared_ptr<TcpStore> Meet() {
    Enter(WaitReport::Phase::kForming, DeadlineAfter(clock_.Now(), settings_.timeout));
    try {
      auto store = Connect();
      Enter(WaitReport::Phase::kComplete);
      return store;
    } catch (...) {
      Enter(WaitReport::Phase::kIdle);
      throw;
    }
  }

  // The workers of the next round must not see keys of an earlier round. With more than one node
  // the others may still use them: nodes do not know each other's rounds.
  void Forget() {
    for (const std::string& key : store_->ListKeys()) store_->DeleteKey(key);
  }

  std::shared_ptr<TcpStore> Connect() const {
    const auto text = [this](const std::exception& error, std::string_view advice) {
      return Concat("static rendezvous '", Printable(settings_.run_id), "', rank ", settings_.rank,
                    " of ", settings_.world_size, ", store at ", settings_.endpoint.ToString(),
                    ": ", error.what(), " ", advice);
    };
    try {
      return std::make_shared<TcpStore>(settings_.endpoint.host,
                                        TcpStoreOptions{.port = settings_.endpoint.port,
                                                        .world_size = settings_.world_size,
                                                        .is_server = settings_.rank == 0,
                                                        .timeout = settings_.timeout,
                                                        .multi_tenant = true});
    } catch (const StoreTimeoutError& error) {
      throw StoreTimeoutError(text(
          error, "(see that all nodes were started with this endpoint and ranks of their own)"));
    } catch (const NetworkError& error) {
      throw NetworkError(text(
          error, settings_.rank == 0 ? "(see that the port is free, and that the endpoint is this "
                                       "machine)"
                                     : "(see that rank 0 runs there)"));
    }
  }

  void Enter(WaitReport::Phase phase, Instant deadline = Instant::Never()) {
    const std::lock_guard lock(mutex_);
    phase_ = phase;
    deadline_ = deadline;
  }

  const StaticSettings settings_;
  PosixClock clock_;
  std::shared_ptr<TcpStore> store_;  // the caller's thread only

  mutable std::mutex mutex_;  // guards what DescribeWait() reads
  WaitReport::Phase phase_ = WaitReport::Phase::kIdle;
  Instant deadline_ = Instant::Never();
};

// --- From parameters ----------------------------------------------------------------------------

int64_t ReadRank(const RendezvousParameters& parameters) {
  const std::optional<ConfigValue> value = parameters.Get("rank");
  if (!value || std::holds_alternative<std::monostate>(*value)) {
    throw Invalid(
        "static rendezvous: the option 'rank' is missing; say which node this is (--node-rank)");
  }
  // Other readers would round or convert these types; a rank must not be guessed.
  if (std::holds_alternative<double>(*value) || std::holds_alternative<bool>(*value)) {
    throw Invalid(
        "static rendezvous: the option 'rank' must be an integer, not a fraction or a boolean");
  }
  return *parameters.GetAsInt("rank");
}

Endpoint ReadEndpoint(const RendezvousParameters& parameters) {
  if (Trim(parameters.endpoint).empty()) {
    throw Invalid(
        "static rendezvous: the endpoint is empty; give rank 0's address and port "
        "(--master-addr and --master-port)");
  }
  constexpr int kNone = -1;
  const HostAndPort parsed = ParseRendezvousEndpoint(parameters.endpoint, kNone);
  if (parsed.port == kNone) {
    throw Invalid("static rendezvous: the endpoint '", Printable(parameters.endpoint),
                  "' has no port; write host:port");
  }
  return {.host = parsed.host, .port = static_cast<uint16_t>(parsed.port)};
}

int ReadWorldSize(const RendezvousParameters& parameters) {
  constexpr int kMax = std::numeric_limits<int>::max();
  if (parameters.max_nodes > kMax) {
    throw Invalid("static rendezvous: ", parameters.max_nodes, " nodes, allowed: 1 to ", kMax);
  }
  return static_cast<int>(parameters.max_nodes);
}

milliseconds ReadTimeout(const RendezvousParameters& parameters) {
  // A limit of centuries would not fit in milliseconds.
  constexpr int64_t kSecondsMax = 1'000'000'000;
  const int64_t seconds = parameters.GetAsInt("timeout", 600).value_or(600);
  return std::chrono::seconds(std::clamp<int64_t>(seconds, 0, kSecondsMax));
}

}  // namespace

RendezvousHandlerPtr CreateStaticHandler(const RendezvousParameters& parameters) {
  const int64_t rank = ReadRank(parameters);
  Endpoint endpoint = ReadEndpoint(parameters);
  const int world_size = ReadWorldSize(parameters);
  if (rank < 0 || rank >= world_size) {
    throw Invalid("static rendezvous: rank ", rank, " among ", world_size, " nodes, allowed: 0 to ",
                  world_size - 1);
  }
  if (endpoint.port == 0 && world_size > 1) {
    throw Invalid("static rendezvous: port 0 in the endpoint '", Printable(parameters.endpoint),
                  "' of ", world_size, " nodes: the others could not know the real one; give one");
  }
  return std::make_unique<StaticHandler>(StaticSettings{.run_id = parameters.run_id,
                                                        .endpoint = std::move(endpoint),
                                                        .rank = static_cast<int>(rank),
                                                        .world_size = world_size,
                                                        .timeout = ReadTimeout(parameters)});
}

}  // namespace muster
