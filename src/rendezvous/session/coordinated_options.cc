#include "rendezvous/session/coordinated_options.h"

#include "muster/coordinated_rendezvous.h"
#include "muster/network.h"
#include "rendezvous/core/rank_policy.h"
#include "rendezvous/option_readers.h"

namespace muster {

namespace {

constexpr int kDefaultPort = 29400;

}  // namespace

RunSettings Settings(const CoordinatedRendezvousOptions& options) {
  return {.min_nodes = options.min_nodes,
          .max_nodes = options.max_nodes,
          .last_call = options.last_call,
          .keep_alive_interval = options.keep_alive_interval,
          .keep_alive_max_attempt = options.keep_alive_max_attempt,
          .grace = options.grace,
          .policy = *ParseRankPolicy(options.rank_policy)};
}

CoordinatedRendezvousOptions CoordinatedRendezvousOptions::From(
    const RendezvousParameters& parameters) {
  const HostAndPort at = ParseRendezvousEndpoint(parameters.endpoint, kDefaultPort);
  CoordinatedRendezvousOptions options{.host = at.host,
                                       .port = static_cast<uint16_t>(at.port),
                                       .is_host = parameters.GetAsBool("is_host"),
                                       .run_id = ""};
  TakeRoundOptions(parameters, options);
  TakeSeconds(parameters, "grace", options.grace);
  options.Validate();
  return options;
}

void CoordinatedRendezvousOptions::Validate() const {
  MustBeRoundOptions(*this);
  MustBe(port != 0 || is_host == true, "port", port, "1 to 65535; 0 if this process serves");
  MustBePossible(Settings(*this), run_id);
}

}  // namespace muster
