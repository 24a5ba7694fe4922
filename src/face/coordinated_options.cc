#include "face/coordinated_options.h"

#include <stdexcept>

#include "base/text.h"
#include "core/rendezvous/rank_policy.h"
#include "face/option_readers.h"
#include "muster/coordinated_rendezvous.h"
#include "muster/network.h"

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
                                       .run_id = parameters.run_id,
                                       .local_addr = parameters.local_addr,
                                       .min_nodes = parameters.min_nodes,
                                       .max_nodes = parameters.max_nodes};
  TakeSeconds(parameters, "join_timeout", options.join_timeout);
  TakeSeconds(parameters, "last_call_timeout", options.last_call);
  TakeSeconds(parameters, "close_timeout", options.close_timeout);
  TakeSeconds(parameters, "keep_alive_interval", options.keep_alive_interval);
  TakeSeconds(parameters, "grace", options.grace);
  TakeText(parameters, "rank_policy", options.rank_policy);
  TakeText(parameters, "label", options.label);
  options.keep_alive_max_attempt =
      parameters.GetAsInt("keep_alive_max_attempt").value_or(options.keep_alive_max_attempt);
  options.Validate();
  return options;
}

void CoordinatedRendezvousOptions::Validate() const {
  MustBeRunId(run_id);
  MustBePrintable(label, "label");
  MustBe(port != 0 || is_host == true, "port", port, "1 to 65535; 0 if this process serves");
  MustBe(join_timeout.count() > 0, "join_timeout in ms", join_timeout.count(), "above 0");
  MustBe(close_timeout.count() > 0, "close_timeout in ms", close_timeout.count(), "above 0");
  MustBeRankPolicy(rank_policy);
  if (const std::string why = Settings(*this).Impossible(); !why.empty())
    throw std::invalid_argument(Concat("The rendezvous '", run_id, "': ", why, "."));
}

}  // namespace muster
