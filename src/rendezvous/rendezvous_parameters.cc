#include "muster/rendezvous_parameters.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "base/text.h"
#include "base/time.h"
#include "rendezvous/option_readers.h"
#include "store/throw.h"

namespace muster {

namespace {

using std::chrono::milliseconds;

// A century: internally, durations are nanoseconds in 64 bits (about 292 years), and are added up.
constexpr int64_t kSecondsMax = int64_t{100} * 365 * 24 * 3600;
static_assert(2 * std::chrono::seconds(kSecondsMax) < Duration::max());
constexpr milliseconds kLongest = std::chrono::seconds(kSecondsMax);

/// The value for a message, so that its type can be seen.
std::string Quoted(const ConfigValue& value) {
  struct Show {
    std::string operator()(std::monostate) const { return "none"; }
    std::string operator()(bool flag) const { return flag ? "true" : "false"; }
    std::string operator()(int64_t number) const { return Concat(number); }
    std::string operator()(double number) const {
      std::array<char, 32> digits;
      const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), number).ptr;
      return std::string(digits.data(), end);
    }
    std::string operator()(const std::string& text) const {
      return Concat('\'', Printable(text), '\'');
    }
  };
  return std::visit(Show{}, value);
}

[[noreturn]] void RefuseOption(std::string_view key, const ConfigValue& value,
                               std::string_view what, std::string_view allowed) {
  throw Invalid("Rendezvous option '", Printable(key), "' is not ", what, ": ", Quoted(value),
                ". Allowed: ", allowed, '.');
}

std::optional<bool> ToBool(const ConfigValue& value) {
  if (const bool* flag = std::get_if<bool>(&value)) return *flag;
  if (const std::string* text = std::get_if<std::string>(&value)) return ParseBool(*text);
  const int64_t* number = std::get_if<int64_t>(&value);
  if (number == nullptr || (*number != 0 && *number != 1)) return std::nullopt;
  return *number == 1;
}

/// Fractions are cut towards zero.
std::optional<int64_t> ToInt(const ConfigValue& value) {
  if (const bool* flag = std::get_if<bool>(&value)) return *flag ? 1 : 0;
  if (const int64_t* number = std::get_if<int64_t>(&value)) return *number;
  if (const std::string* text = std::get_if<std::string>(&value)) return ParseWholeNumber(*text);
  constexpr double kBeyond = 9223372036854775808.0;  // 2^63, the first that does not fit
  const double whole = std::trunc(std::get<double>(value));
  if (!(whole >= -kBeyond && whole < kBeyond)) return std::nullopt;  // also for NaN
  return static_cast<int64_t>(whole);
}

/// `what` it should be, and what is `allowed`, for the error message.
template <typename T>
std::optional<T> Read(const RendezvousParameters& parameters, std::string_view key,
                      std::optional<T> fallback, std::optional<T> (*convert)(const ConfigValue&),
                      std::string_view what, std::string_view allowed) {
  const auto found = parameters.config.find(key);
  if (found == parameters.config.end()) return fallback;
  if (std::holds_alternative<std::monostate>(found->second)) return std::nullopt;
  std::optional<T> value = convert(found->second);
  if (!value) RefuseOption(key, found->second, what, allowed);
  return value;
}

/// Whole seconds; without the option, the setting keeps its default.
void TakeWholeSeconds(const RendezvousParameters& parameters, std::string_view key,
                      milliseconds& setting) {
  const std::optional<int64_t> seconds = parameters.GetAsInt(key);
  if (!seconds) return;
  // Both bounds are checked, because the conversion to milliseconds could overflow. Validate()
  // refuses values that are not positive.
  if (*seconds > kSecondsMax || *seconds < -kSecondsMax) {
    throw Invalid("Rendezvous option '", key, "' is ", *seconds, " seconds. Allowed: 1 to ",
                  kSecondsMax, '.');
  }
  setting = std::chrono::seconds(*seconds);
}

/// Refuses None, which can only be a mistake here.
void MustNotBeNone(const RendezvousParameters& parameters, std::string_view key) {
  const std::optional<ConfigValue> value = parameters.Get(key);
  if (value && std::holds_alternative<std::monostate>(*value)) {
    RefuseOption(key, *value, "given", "an integer above zero, or leaving the option out");
  }
}

void MustBeDuration(std::string_view what, milliseconds duration) {
  if (duration > milliseconds::zero() && duration <= kLongest) return;
  throw Invalid("The ", what, " must be above zero",
                duration > kLongest ? " and at most 100 years" : "", ", but is ", duration.count(),
                " ms.");
}

void MustBeNodeCounts(int64_t min_nodes, int64_t max_nodes) {
  if (min_nodes < 1) {
    throw Invalid("The minimum number of rendezvous nodes must be above zero, but is ", min_nodes,
                  '.');
  }
  if (max_nodes < min_nodes) {
    throw Invalid("The maximum number of rendezvous nodes (", max_nodes,
                  ") must not be below the minimum (", min_nodes, ").");
  }
}

}  // namespace

RendezvousParameters::RendezvousParameters(std::string backend_name, std::string endpoint_text,
                                           std::string run, int64_t nodes_min, int64_t nodes_max,
                                           std::string local, RendezvousConfig options)
    : backend(std::move(backend_name)),
      endpoint(std::move(endpoint_text)),
      run_id(std::move(run)),
      min_nodes(nodes_min),
      max_nodes(nodes_max),
      local_addr(std::move(local)),
      config(std::move(options)) {
  if (backend.empty()) {
    throw Invalid(
        "The name of the rendezvous backend is empty. Allowed: a name that is registered, such as "
        "'c10d'.");
  }
  MustBeNodeCounts(min_nodes, max_nodes);
}

std::optional<ConfigValue> RendezvousParameters::Get(std::string_view key) const {
  const auto found = config.find(key);
  if (found == config.end()) return std::nullopt;
  return found->second;
}

ConfigValue RendezvousParameters::Get(std::string_view key, ConfigValue fallback) const {
  return Get(key).value_or(std::move(fallback));
}

std::optional<bool> RendezvousParameters::GetAsBool(std::string_view key,
                                                    std::optional<bool> fallback) const {
  return Read(*this, key, fallback, &ToBool, "a boolean",
              "1, true, t, yes, y and 0, false, f, no, n, in any case");
}

std::optional<int64_t> RendezvousParameters::GetAsInt(std::string_view key,
                                                      std::optional<int64_t> fallback) const {
  return Read(*this, key, fallback, &ToInt, "an integer",
              "decimal digits with an optional sign, within 64 bits");
}

RendezvousSettings RendezvousSettings::From(const RendezvousParameters& parameters) {
  RendezvousSettings settings{.run_id = parameters.run_id,
                              .min_nodes = parameters.min_nodes,
                              .max_nodes = parameters.max_nodes};
  // The option `timeout` is deliberately not among these: launchers always fill it in, for the
  // static rendezvous.
  TakeWholeSeconds(parameters, "join_timeout", settings.join_timeout);
  TakeWholeSeconds(parameters, "last_call_timeout", settings.last_call);
  TakeWholeSeconds(parameters, "close_timeout", settings.close_timeout);
  TakeWholeSeconds(parameters, "heartbeat_timeout", settings.heartbeat_timeout);
  MustNotBeNone(parameters, "keep_alive_interval");
  MustNotBeNone(parameters, "keep_alive_max_attempt");
  TakeWholeSeconds(parameters, "keep_alive_interval", settings.keep_alive_interval);
  settings.keep_alive_max_attempt =
      *parameters.GetAsInt("keep_alive_max_attempt", settings.keep_alive_max_attempt);
  TakeSeconds(parameters, "cas_backoff_max_seconds", settings.cas_backoff_max);
  settings.Validate();
  return settings;
}

void RendezvousSettings::Validate() const {
  if (run_id.empty()) {
    throw Invalid(
        "The run id of the rendezvous is empty. Allowed: any other text, the same on all nodes.");
  }
  MustBeNodeCounts(min_nodes, max_nodes);
  MustBeDuration("rendezvous timeout 'join'", join_timeout);
  MustBeDuration("rendezvous timeout 'last_call'", last_call);
  MustBeDuration("rendezvous timeout 'close'", close_timeout);
  MustBeDuration("rendezvous timeout 'heartbeat'", heartbeat_timeout);
  // PyTorch accepts zero for these two, and then declares every node dead immediately.
  MustBeDuration("rendezvous keep_alive_interval", keep_alive_interval);
  if (keep_alive_max_attempt < 1) {
    throw Invalid("The rendezvous keep_alive_max_attempt must be above zero, but is ",
                  keep_alive_max_attempt, '.');
  }
  if (cas_backoff_max != milliseconds::zero())
    MustBeDuration("rendezvous cas_backoff_max_seconds", cas_backoff_max);
  // Their product is how long a node may be silent; it must be a duration, too.
  if (keep_alive_max_attempt > kLongest / keep_alive_interval) {
    throw Invalid("The rendezvous keep_alive_max_attempt (", keep_alive_max_attempt,
                  ") times keep_alive_interval (", keep_alive_interval.count(),
                  " ms) must be at most 100 years.");
  }
}

RendezvousConfig ParseRendezvousConfig(std::string_view text) {
  RendezvousConfig config;
  if (Trim(text).empty()) return config;
  size_t position = 1;
  for (size_t begin = 0; begin <= text.size(); ++position) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string_view item = text.substr(begin, end - begin);
    begin = end + 1;
    // Only the first '=' divides: a value may be a path with a query, or another option's text.
    const size_t equals = std::min(item.find('='), item.size());
    const std::string_view key = Trim(item.substr(0, equals));
    if (key.empty()) {
      throw Invalid("The rendezvous configuration string must be in format k1=v1,k2=v2. Item ",
                    position, " ('", Printable(item), "') has no option name in '", Printable(text),
                    "'.");
    }
    const std::string_view value = equals < item.size() ? Trim(item.substr(equals + 1)) : "";
    if (value.empty()) {
      throw Invalid("The rendezvous configuration option '", Printable(key),
                    "' must have a value specified, but item ", position,
                    " has no value. The format is k1=v1,k2=v2.");
    }
    config.insert_or_assign(std::string(key), std::string(value));
  }
  return config;
}

}  // namespace muster
