#include "launch/options/rendezvous_keys.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "base/text.h"
#include "launch/options/nearest.h"

namespace muster {

namespace {

// The backends that know a key: one bit for each.
enum Backends : unsigned {
  kMuster = 1,
  kC10d = 2,
  kStatic = 4,
  kEtcd = 8,
  kSessions = kMuster | kEtcd,
  kAll = kMuster | kC10d | kStatic | kEtcd,
};

constexpr std::array kNames = {
    std::pair{std::string_view("muster"), kMuster}, std::pair{std::string_view("c10d"), kC10d},
    std::pair{std::string_view("static"), kStatic}, std::pair{std::string_view("etcd"), kEtcd},
    std::pair{std::string_view("etcd-v2"), kEtcd}};

struct Key {
  std::string_view name;
  unsigned known_to;
};
constexpr std::array kKeys = {
    Key{"contact_timeout", kAll},  // the launcher's own
    Key{"join_timeout", kSessions | kC10d},
    Key{"last_call_timeout", kSessions | kC10d},
    Key{"reform_timeout", kSessions},
    Key{"rejoin_window", kSessions},
    Key{"expected", kSessions},
    Key{"close_timeout", kSessions | kC10d},
    Key{"keep_alive_interval", kSessions | kC10d},
    Key{"keep_alive_max_attempt", kSessions | kC10d},
    Key{"heartbeat_timeout", kC10d},
    Key{"rank_policy", kSessions},
    Key{"label", kSessions},
    Key{"grace", kMuster},
    Key{"is_host", kMuster | kC10d},
    Key{"store_type", kC10d},
    Key{"read_timeout", kC10d | kEtcd},
    Key{"timeout", kStatic | kEtcd},
    Key{"rank", kStatic},
    Key{"protocol", kEtcd},
    Key{"cacert", kEtcd},
    Key{"ca_cert", kEtcd},
    Key{"cert", kEtcd},
    Key{"ssl_cert", kEtcd},
    Key{"key", kEtcd},
    Key{"ssl_cert_key", kEtcd},
    Key{"user", kEtcd},
    Key{"password", kEtcd},
    Key{"password_file", kEtcd},
    Key{"etcd_prefix", kEtcd},
};

}  // namespace

std::optional<std::string> WarningOfKey(std::string_view backend, std::string_view key) {
  const auto wanted = std::ranges::find(kNames, backend, &decltype(kNames)::value_type::first);
  if (wanted == kNames.end()) return std::nullopt;
  std::vector<std::string> names;
  for (const Key& known : kKeys) {
    if ((known.known_to & wanted->second) == 0) continue;
    if (known.name == key) return std::nullopt;
    names.emplace_back(known.name);
  }
  return Concat("the rendezvous backend '", backend, "' does not know the option '", Printable(key),
                "', which has no effect", DidYouMean(key, names));
}

bool ShowsPassword(std::string_view endpoint) {
  if (const size_t scheme = endpoint.find("://"); scheme != endpoint.npos)
    endpoint.remove_prefix(scheme + 3);
  endpoint = endpoint.substr(0, endpoint.find('/'));
  const size_t at = endpoint.rfind('@');
  return at != endpoint.npos && endpoint.substr(0, at).find(':') != endpoint.npos;
}

}  // namespace muster
