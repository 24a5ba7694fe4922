#include "face/coordinated_options.h"

#include <charconv>
#include <cmath>
#include <stdexcept>

#include "base/text.h"
#include "base/trim.h"
#include "core/rendezvous/rank_policy.h"
#include "muster/coordinated_rendezvous.h"
#include "muster/network.h"

namespace muster {

namespace {

using std::chrono::milliseconds;

constexpr int kDefaultPort = 29400;
constexpr double kSecondsMax = 100.0 * 365 * 24 * 3600;
constexpr size_t kLabelBytesMax = 1024;

std::optional<double> ToNumber(const ConfigValue& value) {
  if (const auto* number = std::get_if<int64_t>(&value)) return static_cast<double>(*number);
  if (const auto* number = std::get_if<double>(&value)) return *number;
  const auto* text = std::get_if<std::string>(&value);
  if (text == nullptr) return std::nullopt;
  const std::string_view digits = Trim(*text);
  double number = 0;
  const auto [end, failure] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (failure != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
  return number;
}

void TakeSeconds(const RendezvousParameters& parameters, std::string_view key,
                 milliseconds& setting) {
  const auto given = parameters.Get(key);
  if (!given) return;
  const std::optional<double> seconds = ToNumber(*given);
  if (!seconds || !(*seconds >= 0 && *seconds <= kSecondsMax)) {
    throw std::invalid_argument(Concat("Rendezvous option '", key,
                                       "' is not a time. Allowed: seconds, also fractions, from 0 "
                                       "to a hundred years."));
  }
  setting = milliseconds(std::llround(*seconds * 1000));
}

void TakeText(const RendezvousParameters& parameters, std::string_view key, std::string& setting) {
  const auto given = parameters.Get(key);
  if (!given) return;
  if (const auto* text = std::get_if<std::string>(&*given)) {
    setting = *text;
  } else if (const auto* number = std::get_if<int64_t>(&*given)) {
    setting = Concat(*number);
  } else {
    throw std::invalid_argument(Concat("Rendezvous option '", key, "' is not a text."));
  }
}

void MustBe(bool right, std::string_view what, int64_t found, std::string_view allowed) {
  if (right) return;
  throw std::invalid_argument(
      Concat("The rendezvous ", what, " is ", found, ". Allowed: ", allowed, "."));
}

void MustBePrintable(const std::string& text, size_t most, std::string_view what) {
  if (text.size() <= most && Printable(text, text.size()) == text) return;
  throw std::invalid_argument(Concat("the ", what, " '", Printable(text, 64),
                                     "' must be printable UTF-8 of at most ", HumanBytes(most)));
}

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
  if (run_id.empty()) {
    throw std::invalid_argument(
        "The run id of the rendezvous is empty. Allowed: any other text, the same on all nodes.");
  }
  MustBePrintable(run_id, kLabelBytesMax, "run id");
  MustBePrintable(label, kLabelBytesMax, "label");
  MustBe(port != 0 || is_host == true, "port", port, "1 to 65535; 0 if this process serves");
  MustBe(join_timeout.count() > 0, "join_timeout in ms", join_timeout.count(), "above 0");
  MustBe(close_timeout.count() > 0, "close_timeout in ms", close_timeout.count(), "above 0");
  if (!ParseRankPolicy(rank_policy)) {
    throw std::invalid_argument(Concat("The rank policy '", Printable(rank_policy),
                                       "' does not exist. Allowed: natural, text, stable, label."));
  }
  if (const std::string why = Settings(*this).Impossible(); !why.empty())
    throw std::invalid_argument(Concat("The rendezvous '", run_id, "': ", why, "."));
}

}  // namespace muster
