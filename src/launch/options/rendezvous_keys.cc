#include <vector>

#include "base/parse.h"
#include "base/text.h"
#include "launch/options/launch_options.h"

namespace muster {

namespace {

/// The options that the backend knows, with a blank before each. Empty: it is not built in.
std::string KeysOf(std::string_view backend) {
  constexpr std::string_view kForming =
      " join_timeout last_call_timeout close_timeout keep_alive_interval keep_alive_max_attempt";
  constexpr std::string_view kSessions = " reform_timeout rejoin_window expected rank_policy label";
  if (backend == "muster") return Concat(kForming, kSessions, " grace is_host");
  if (backend == "c10d")
    return Concat(kForming, " heartbeat_timeout is_host store_type read_timeout");
  if (backend == "static") return " timeout rank";
  if (backend != "etcd" && backend != "etcd-v2") return "";
  return Concat(kForming, kSessions,
                " read_timeout timeout protocol cacert ca_cert cert ssl_cert key ssl_cert_key user "
                "password password_file etcd_prefix");
}

}  // namespace

std::optional<std::string> WarningOfKey(std::string_view backend, std::string_view key) {
  const std::string keys = KeysOf(backend);
  if (keys.empty()) return std::nullopt;
  const std::string all = Concat("contact_timeout", keys);  // that one is the launcher's own
  std::vector<std::string> names;
  for (const std::string_view known : Split(all, ' ')) {
    if (known == key) return std::nullopt;
    names.emplace_back(known);
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
