// The parameters of a rendezvous handler: the endpoint, the size of the job, and options by name.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

namespace muster {

/// The value of an option. std::monostate is "none": given, but as nothing.
using ConfigValue = std::variant<std::monostate, bool, int64_t, double, std::string>;
using RendezvousConfig = std::map<std::string, ConfigValue, std::less<>>;

/// Every handler is created from these. Values, checked by the constructor.
struct RendezvousParameters {
  /// std::invalid_argument if the backend is empty, min_nodes below 1 or max_nodes below min_nodes;
  /// checked in this order.
  RendezvousParameters(std::string backend, std::string endpoint, std::string run_id,
                       int64_t min_nodes, int64_t max_nodes, std::string local_addr = "",
                       RendezvousConfig config = {});

  std::string backend;
  std::string endpoint;  ///< Read by the backend: "host:port", or a path for a file.
  std::string run_id;
  int64_t min_nodes;
  int64_t max_nodes;
  /// The address at which others reach this machine; empty: its host name.
  std::string local_addr;
  RendezvousConfig config;

  /// The option, or nullopt if it was not given.
  std::optional<ConfigValue> Get(std::string_view key) const;
  ConfigValue Get(std::string_view key, ConfigValue fallback) const;

  /// nullopt if the option is missing (and there is no fallback) or none. Accepts booleans, 0 and
  /// 1, and the words 1 true t yes y / 0 false f no n in any case, unpadded. std::invalid_argument,
  /// naming the option, for anything else.
  std::optional<bool> GetAsBool(std::string_view key, std::optional<bool> fallback = {}) const;

  /// nullopt if the option is missing (and there is no fallback) or none. Accepts integers, decimal
  /// text with an optional sign and blanks around it, fractions (cut towards zero) and booleans.
  std::optional<int64_t> GetAsInt(std::string_view key, std::optional<int64_t> fallback = {}) const;
};

/// The settings that all nodes of a dynamic rendezvous must share.
struct RendezvousSettings {
  std::string run_id;
  int64_t min_nodes = 1;
  int64_t max_nodes = 1;
  std::chrono::milliseconds join_timeout{600'000};  ///< One NextRendezvous().
  /// From reaching min_nodes to completing the round.
  std::chrono::milliseconds last_call{30'000};
  std::chrono::milliseconds close_timeout{30'000};     ///< Marking the rendezvous closed.
  std::chrono::milliseconds heartbeat_timeout{5'000};  ///< One keep-alive.
  std::chrono::milliseconds keep_alive_interval{5'000};
  int64_t keep_alive_max_attempt = 3;  ///< A node silent for so many intervals is declared lost.
  /// The longest random pause after another node's write came first; longer where the number of
  /// nodes requires it.
  std::chrono::milliseconds cas_backoff_max{0};

  /// From parameters and their options join_timeout, last_call_timeout, close_timeout,
  /// heartbeat_timeout, keep_alive_interval (whole seconds), keep_alive_max_attempt and
  /// cas_backoff_max_seconds.
  static RendezvousSettings From(const RendezvousParameters& parameters);

  /// std::invalid_argument: an empty run id, min_nodes below 1, max_nodes below min_nodes, or the
  /// first time (in the order above) or keep-alive figure that is not above zero.
  void Validate() const;
  bool operator==(const RendezvousSettings&) const = default;
};

/// "k1=v1,k2=v2" as options. std::invalid_argument says which item is wrong.
RendezvousConfig ParseRendezvousConfig(std::string_view text);

}  // namespace muster
