// The options of the backend muster, without its handler: they are fuzzed alone.
#include "muster/coordinated_rendezvous.h"
#include "muster/network.h"
#include "rendezvous/option_readers.h"

namespace muster {

CoordinatedRendezvousOptions CoordinatedRendezvousOptions::From(
    const RendezvousParameters& parameters) {
  constexpr int kDefaultPort = 29400;
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
  MustBeRoundOptions(*this, grace);
  MustBe(port != 0 || is_host == true, "port", port, "1 to 65535; 0 if this process serves");
}

}  // namespace muster
