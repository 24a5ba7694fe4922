#include "rendezvous/rules_from.h"

namespace muster {

RendezvousRules RulesFrom(const RendezvousSettings& settings) {
  settings.Validate();
  return {.run_id = settings.run_id,
          .min_nodes = settings.min_nodes,
          .max_nodes = settings.max_nodes,
          .timeout = {.join = settings.timeout.join,
                      .last_call = settings.timeout.last_call,
                      .close = settings.timeout.close,
                      .heartbeat = settings.timeout.heartbeat},
          .keep_alive_interval = settings.keep_alive_interval,
          .keep_alive_max_attempt = settings.keep_alive_max_attempt};
}

}  // namespace muster
