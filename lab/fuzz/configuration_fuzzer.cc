// What a user writes: endpoints, and the options of a rendezvous. Everything is read, or refused
// with a message that names it; only std::invalid_argument is thrown. What was read can be written,
// and is read as the same again. What passes the checks is within the limits.
//
// An input is two lines: an endpoint, and options as --rdzv-conf takes them.
#include <chrono>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

#include "base/endpoint.h"
#include "base/text.h"
#include "fuzz/check.h"
#include "fuzz/input.h"
#include "muster/coordinated_rendezvous.h"
#include "muster/network.h"
#include "muster/rendezvous_parameters.h"
#include "rendezvous/option_readers.h"

namespace muster::fuzz {
namespace {

constexpr std::chrono::milliseconds kCentury = std::chrono::hours(100 * 365 * 24);

/// The result of the call; nothing, if it refuses its argument.
template <typename Call>
auto Accepted(Call call) -> std::optional<decltype(call())> {
  try {
    return call();
  } catch (const std::invalid_argument& refusal) {
    CheckMessage(refusal.what());
    return std::nullopt;
  }
}

void CheckEndpoint(std::string_view text) {
  const Result<Endpoint> endpoint = ParseHostPort(text);
  if (!endpoint) {
    FUZZ_CHECK(endpoint.error().code == Code::kInvalid);
    CheckMessage(endpoint.error().message);
  } else {
    const Result<Endpoint> again = ParseHostPort(endpoint->ToString());
    FUZZ_CHECK(again.has_value(), Printable(endpoint->ToString()));
    FUZZ_CHECK(*again == *endpoint, Printable(endpoint->ToString()));
  }
}

void CheckRendezvousEndpoint(std::string_view text) {
  constexpr int kDefault = 29400;
  const auto read = [](std::string_view written) {
    return Accepted([&] { return ParseRendezvousEndpoint(written, kDefault); });
  };
  const auto endpoint = read(text);
  if (!endpoint) return;
  FUZZ_CHECK(endpoint->port >= 0 && endpoint->port <= 65535);
  FUZZ_CHECK(!endpoint->host.empty());
  FUZZ_CHECK(Printable(endpoint->host, endpoint->host.size()) == endpoint->host);
  FUZZ_CHECK(read(Concat('[', endpoint->host, "]:", endpoint->port)) == endpoint);
  FUZZ_CHECK(read(Concat('[', endpoint->host, ']'))->host == endpoint->host);
  if (endpoint->host.find(':') == std::string::npos)
    FUZZ_CHECK(read(Concat(endpoint->host, ':', endpoint->port)) == endpoint);
}

std::string Written(const RendezvousConfig& config) {
  std::string text;
  for (const auto& [name, value] : config) {
    FUZZ_CHECK(!name.empty());
    FUZZ_CHECK(!std::get<std::string>(value).empty());
    text += Concat(text.empty() ? "" : ",", name, '=', std::get<std::string>(value));
  }
  return text;
}

/// Reads each option as a number and as a boolean.
void CheckValues(const RendezvousParameters& parameters) {
  for (const auto& option : parameters.config) {
    const auto number = Accepted([&] { return parameters.GetAsInt(option.first); });
    const auto flag = Accepted([&] { return parameters.GetAsBool(option.first); });
    const std::string& text = std::get<std::string>(option.second);
    if (flag) FUZZ_CHECK(*flag == ParseBool(text));
    // C's reader agrees on every number without underscores, which only Python allows.
    if (!number || text.find('_') != std::string::npos) continue;
    const Result<int64_t> counter = ParseCounter(text);
    FUZZ_CHECK(counter && *counter == **number, Printable(text));
  }
}

void CheckSettings(const RendezvousParameters& parameters) {
  const auto settings = Accepted([&] { return RendezvousSettings::From(parameters); });
  if (!settings) return;
  const auto silent_max = settings->keep_alive_interval * settings->keep_alive_max_attempt;
  for (const auto time : {settings->join_timeout, settings->last_call, settings->close_timeout,
                          settings->heartbeat_timeout, settings->keep_alive_interval, silent_max})
    FUZZ_CHECK(time.count() > 0 && time <= kCentury, time.count());
}

void CheckCoordinated(const RendezvousParameters& parameters) {
  const auto options = Accepted([&] { return CoordinatedRendezvousOptions::From(parameters); });
  if (!options) return;
  FUZZ_CHECK(RunSettingsOf(*options, options->grace).Impossible().empty());
  for (const auto time : {options->join_timeout, options->close_timeout})
    FUZZ_CHECK(time.count() > 0 && time <= kCentury, time.count());
  FUZZ_CHECK(options->last_call.count() >= 0 && options->last_call <= kCentury);
  FUZZ_CHECK(Printable(options->label, options->label.size()) == options->label);
}

void CheckOptions(std::string_view endpoint, std::string_view text) {
  const auto config = Accepted([&] { return ParseRendezvousConfig(text); });
  if (!config) return;
  FUZZ_CHECK(ParseRendezvousConfig(Written(*config)) == *config);
  // The first option is also used as the run's name.
  const std::string run = config->empty() ? "run" : config->begin()->first;
  const RendezvousParameters parameters("muster", std::string(endpoint), run, 1, 4, "", *config);
  CheckValues(parameters);
  CheckSettings(parameters);
  CheckCoordinated(parameters);
}

}  // namespace
}  // namespace muster::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text = muster::fuzz::Input(data, size).Rest();
  const size_t line = std::min(text.find('\n'), text.size());
  const muster::fuzz::ExactCopy endpoint(text.substr(0, line));
  const muster::fuzz::ExactCopy options(text.substr(std::min(line + 1, text.size())));
  muster::fuzz::CheckEndpoint(endpoint.view());
  muster::fuzz::CheckRendezvousEndpoint(endpoint.view());
  muster::fuzz::CheckOptions(endpoint.view(), options.view());
  return 0;
}
