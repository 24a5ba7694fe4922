// Reads options of a rendezvous for handlers: std::invalid_argument says what is wrong.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/limits.h"
#include "muster/rendezvous_parameters.h"
#include "os/ports/system.h"
#include "rendezvous/core/node.h"
#include "rendezvous/core/run_settings.h"

namespace muster {

/// Seconds, also fractions.
void TakeSeconds(const RendezvousParameters& parameters, std::string_view key,
                 std::chrono::milliseconds& setting);
void TakeText(const RendezvousParameters& parameters, std::string_view key, std::string& setting);

inline constexpr std::chrono::seconds kReadTimeoutMax{365 * 24 * 3600};
/// The option read_timeout: how long a store may take to answer.
std::chrono::milliseconds ReadTimeout(const RendezvousParameters& parameters);

void MustBe(bool right, std::string_view what, int64_t found, std::string_view allowed);
/// Checks a run id or a label.
void MustBePrintable(const std::string& text, std::string_view what, size_t bytes_max);
/// Checks that the run id is not empty, and printable.
void MustBeRunId(const std::string& run_id);
RankPolicy RankPolicyOf(const std::string& word);

/// Options that the backends "muster" and "etcd" have in common.
void TakeRoundOptions(const RendezvousParameters& parameters, auto& options) {
  options.run_id = parameters.run_id;
  options.local_addr = parameters.local_addr;
  options.min_nodes = parameters.min_nodes;
  options.max_nodes = parameters.max_nodes;
  TakeSeconds(parameters, "join_timeout", options.join_timeout);
  TakeSeconds(parameters, "last_call_timeout", options.last_call);
  TakeSeconds(parameters, "reform_timeout", options.reform_timeout);
  TakeSeconds(parameters, "rejoin_window", options.rejoin_window);
  options.expected = parameters.GetAsInt("expected").value_or(options.expected);
  TakeSeconds(parameters, "close_timeout", options.close_timeout);
  TakeSeconds(parameters, "keep_alive_interval", options.keep_alive_interval);
  TakeText(parameters, "rank_policy", options.rank_policy);
  TakeText(parameters, "label", options.label);
  options.keep_alive_max_attempt =
      parameters.GetAsInt("keep_alive_max_attempt").value_or(options.keep_alive_max_attempt);
}

/// The settings for the rendezvous machine.
RunSettings RunSettingsOf(const auto& options, Duration grace) {
  return {.min_nodes = options.min_nodes,
          .max_nodes = options.max_nodes,
          .last_call = options.last_call,
          .keep_alive_interval = options.keep_alive_interval,
          .keep_alive_max_attempt = options.keep_alive_max_attempt,
          .grace = grace,
          .policy = RankPolicyOf(options.rank_policy),
          .forming = Forming{.reform_timeout = options.reform_timeout,
                             .rejoin_window = options.rejoin_window,
                             .expected = options.expected}};
}
RunSettings RunSettingsOf(const RendezvousSettings& settings);

void MustBePossible(const RunSettings& settings, const std::string& run_id);
void MustBeRoundOptions(const auto& options, Duration grace) {
  MustBeRunId(options.run_id);
  MustBePrintable(options.label, "label", kNodeNameBytesMax);
  MustBe(options.join_timeout.count() > 0, "join_timeout in ms", options.join_timeout.count(),
         "above 0");
  MustBe(options.close_timeout.count() > 0, "close_timeout in ms", options.close_timeout.count(),
         "above 0");
  MustBePossible(RunSettingsOf(options, grace), options.run_id);
}

/// A new node of the process: address, process id and a number that no other node of the process
/// has. Refuses an address that others could not read.
Node NewNode(System& system, const std::string& addr);

}  // namespace muster
