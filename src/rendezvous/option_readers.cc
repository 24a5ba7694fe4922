#include "rendezvous/option_readers.h"

#include <cmath>
#include <optional>

#include "base/text.h"
#include "store/throw.h"

namespace muster {

namespace {

using std::chrono::milliseconds;

constexpr double kSecondsMax = 100.0 * 365 * 24 * 3600;
constexpr size_t kRunIdBytesMax = 1024;

std::optional<double> ToNumber(const ConfigValue& value) {
  if (const auto* number = std::get_if<int64_t>(&value)) return static_cast<double>(*number);
  if (const auto* number = std::get_if<double>(&value)) return *number;
  const auto* text = std::get_if<std::string>(&value);
  return text == nullptr ? std::nullopt : ParseAll<double>(Trim(*text));
}

}  // namespace

void TakeSeconds(const RendezvousParameters& parameters, std::string_view key,
                 milliseconds& setting) {
  const auto given = parameters.Get(key);
  if (!given) return;
  const std::optional<double> seconds = ToNumber(*given);
  if (!seconds || !(*seconds >= 0 && *seconds <= kSecondsMax)) {
    throw Invalid("Rendezvous option '", key,
                  "' is not a time. Allowed: seconds, also fractions, from 0 to a hundred years.");
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
    throw Invalid("Rendezvous option '", key, "' is not a text.");
  }
}

milliseconds ReadTimeout(const RendezvousParameters& parameters) {
  const int64_t seconds = parameters.GetAsInt("read_timeout", 60).value_or(60);
  if (seconds > 0 && seconds <= kReadTimeoutMax.count()) return std::chrono::seconds(seconds);
  throw Invalid("read_timeout is ", seconds,
                ": it must be a positive number of seconds, at most a year");
}

void MustBe(bool right, std::string_view what, int64_t found, std::string_view allowed) {
  if (right) return;
  throw Invalid("The rendezvous ", what, " is ", found, ". Allowed: ", allowed, ".");
}

void MustBePrintable(const std::string& text, std::string_view what, size_t bytes_max) {
  if (text.size() <= bytes_max && Printable(text, text.size()) == text) return;
  throw Invalid("the ", what, " '", Printable(text, 64), "' must be printable UTF-8 of at most ",
                HumanBytes(bytes_max));
}

void MustBeRunId(const std::string& run_id) {
  if (run_id.empty()) {
    throw Invalid(
        "The run id of the rendezvous is empty. Allowed: any other text, the same on all nodes.");
  }
  MustBePrintable(run_id, "run id", kRunIdBytesMax);
}

RankPolicy RankPolicyOf(const std::string& word) {
  if (const auto policy = ParseRankPolicy(word)) return *policy;
  throw Invalid("The rank policy '", Printable(word),
                "' does not exist. Allowed: natural, text, stable, label.");
}

RunSettings RunSettingsOf(const RendezvousSettings& settings) {
  settings.Validate();
  return {.min_nodes = settings.min_nodes,
          .max_nodes = settings.max_nodes,
          .last_call = settings.last_call,
          .keep_alive_interval = settings.keep_alive_interval,
          .keep_alive_max_attempt = settings.keep_alive_max_attempt,
          .join_timeout = settings.join_timeout,
          .close_timeout = settings.close_timeout,
          .heartbeat_timeout = settings.heartbeat_timeout,
          .cas_backoff_max = settings.cas_backoff_max};
}

void MustBePossible(const RunSettings& settings, const std::string& run_id) {
  const std::string why = settings.Impossible();
  if (!why.empty()) throw Invalid("The rendezvous '", run_id, "': ", why, ".");
}

Node NewNode(System& system, const std::string& addr) {
  // Others read it as the address of the master, in environments and logs.
  MustBePrintable(addr, "local address", kNodeNameBytesMax);
  return {.addr = addr,
          .pid = static_cast<int64_t>(system.process_id()),
          .local_id = system.NextNodeId()};
}

}  // namespace muster
