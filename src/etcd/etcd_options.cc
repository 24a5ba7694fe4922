#include "muster/etcd.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <stdexcept>
#include <utility>

#include "base/encoding.h"
#include "base/endpoint.h"
#include "base/text.h"
#include "rendezvous/option_readers.h"

namespace muster {

namespace {

using std::chrono::milliseconds;

constexpr std::string_view kWriteIt =
    "write etcd://host:port,host:port/prefix, or the same with http:// or https://";

[[noreturn]] void Refuse(std::string_view what, std::string_view part, std::string_view why) {
  throw std::invalid_argument(
      Concat("etcd endpoint: ", what, " '", Printable(part), "': ", why, "; ", kWriteIt));
}

/// Decodes %XX.
std::string Unescaped(std::string_view what, std::string_view text) {
  if (auto plain = PercentDecoded(text)) return std::move(*plain);
  throw std::invalid_argument(Concat("etcd endpoint: in the ", what,
                                     ", '%' must be followed by two hex digits; write "
                                     "'%25' for the character itself"));
}

/// Removes "scheme://" from the front. Returns whether it means TLS; nullopt: unspecified.
std::optional<bool> TakeScheme(std::string_view& text) {
  const size_t end = text.find("://");
  const auto is_letter = [](char c) { return (c | 0x20) >= 'a' && (c | 0x20) <= 'z'; };
  if (end == std::string_view::npos || !std::all_of(text.begin(), text.begin() + end, is_letter))
    return std::nullopt;
  const std::string scheme = LowerCase(text.substr(0, end));
  text.remove_prefix(end + 3);
  if (scheme == "etcd") return std::nullopt;
  if (scheme != "http" && scheme != "https")
    Refuse("scheme", scheme, "must be etcd, http or https");
  return scheme == "https";
}

HostAndPort ReadEndpoint(std::string_view text) {
  if (text.empty()) Refuse("host", text, "is empty, between two commas or at an end");
  const bool in_brackets = text.front() == '[';
  if (!in_brackets && std::count(text.begin(), text.end(), ':') > 1)
    Refuse("host", text, "write an IPv6 address in brackets, [ADDRESS]:PORT");
  if (in_brackets && text.find(']') == std::string_view::npos)
    Refuse("host", text, "has '[' without ']'");
  const size_t colon = text.find(':', in_brackets ? text.find(']') : 0);
  if (colon != std::string_view::npos) {
    const std::optional<int> port = TryParsePort(text.substr(colon + 1));
    if (!port || *port < 1 || *port > 65535)
      Refuse("port", text.substr(colon + 1), "must be a number from 1 to 65535");
    if (colon == 0) Refuse("host", text, "has a port, but no name or address");
  }
  return ParseRendezvousEndpoint(text, EtcdOptions::kDefaultPort);
}

void TakeUser(std::string_view& text, EtcdOptions& options) {
  const size_t at = text.substr(0, text.find('/')).rfind('@');
  if (at == std::string_view::npos) return;
  const std::string_view who = text.substr(0, at);
  const size_t colon = who.find(':');
  options.user = Unescaped("user", who.substr(0, colon));
  if (options.user.empty()) Refuse("user", "", "is empty, but there is an '@'");
  if (colon != std::string_view::npos)
    options.password = Unescaped("password", who.substr(colon + 1));
  text.remove_prefix(at + 1);
}

std::string NormalPrefix(std::string_view prefix) {
  while (prefix.ends_with('/')) prefix.remove_suffix(1);
  return std::string(prefix);
}

/// The option as text, under one of its names; empty if it is not given.
std::string TextOption(const RendezvousParameters& parameters, std::string_view key,
                       std::string_view also = "") {
  std::string text;
  const std::optional<ConfigValue> given = parameters.Get(key);
  if (given && !std::holds_alternative<std::monostate>(*given)) TakeText(parameters, key, text);
  if (also.empty()) return text;
  const std::string other = TextOption(parameters, also);
  if (!text.empty() && !other.empty() && text != other) {
    throw std::invalid_argument(Concat("Rendezvous options '", key, "' and '", also,
                                       "' mean the same, but are '", Printable(text), "' and '",
                                       Printable(other), "': leave one out."));
  }
  return text.empty() ? other : text;
}

/// Only this user's processes can read the environment.
void TakePasswordFromEnvironment(EtcdOptions& options) {
  const char* const given = std::getenv("MUSTER_ETCD_PASSWORD");
  if (given != nullptr && options.password.empty() && !options.user.empty())
    options.password = given;
}

void TakePassword(const RendezvousParameters& parameters, EtcdOptions& options) {
  const std::string password = TextOption(parameters, "password");
  const std::string path = TextOption(parameters, "password_file");
  if (!password.empty() && !path.empty())
    throw std::invalid_argument("etcd: password and password_file are both given: leave one out");
  if (!password.empty()) options.password = password;
  if (path.empty()) return TakePasswordFromEnvironment(options);
  std::ifstream file(path);
  std::string line;
  if (!std::getline(file, line)) {
    throw std::invalid_argument(
        Concat("etcd: password_file '", Printable(path, 1024), "' cannot be read, or is empty"));
  }
  if (line.ends_with('\r')) line.pop_back();
  options.password = line;
}

void TakeProtocol(const RendezvousParameters& parameters, std::optional<bool> by_scheme,
                  EtcdOptions& options) {
  const std::string given = TextOption(parameters, "protocol");
  const std::string protocol = LowerCase(Trim(given));
  if (given.empty()) return;
  if (protocol != "http" && protocol != "https") {
    throw std::invalid_argument(
        Concat("protocol is '", Printable(given), "': it must be http or https (which means TLS)"));
  }
  options.tls = protocol == "https";
  if (by_scheme && *by_scheme != options.tls) {
    throw std::invalid_argument(
        Concat("protocol is '", protocol, "', but the endpoint begins with ",
               *by_scheme ? "https" : "http", "://; leave one of them out"));
  }
}

/// The options, and whether the scheme means TLS; nullopt: unspecified.
std::pair<EtcdOptions, std::optional<bool>> ReadUrl(std::string_view given) {
  EtcdOptions options;
  std::string_view text = Trim(given);
  std::optional<bool> tls = TakeScheme(text);
  TakeUser(text, options);
  if (const size_t extra = text.find_first_of("?#"); extra != std::string_view::npos)
    Refuse("end", text.substr(extra), "options are given elsewhere");
  if (!text.empty() && !text.starts_with('/')) {  // otherwise the default place
    options.endpoints.clear();
    while (true) {
      const std::optional<bool> again = TakeScheme(text);  // some write it before each host
      if (again && !options.endpoints.empty() && tls != again)
        Refuse("scheme", *again ? "https" : "http", "must be the same for all hosts");
      if (again) tls = again;
      const size_t end = std::min(text.find_first_of(",/"), text.size());
      options.endpoints.push_back(ReadEndpoint(Trim(text.substr(0, end))));
      text.remove_prefix(end);
      if (!text.starts_with(',')) break;
      text = Trim(text.substr(1));
    }
  }
  options.prefix = NormalPrefix(Unescaped("prefix", text));
  options.tls = tls.value_or(false);
  return {std::move(options), tls};
}

void Require(bool right, std::string_view what) {
  if (!right) throw std::invalid_argument(Concat("etcd: ", what));
}

}  // namespace

EtcdOptions EtcdOptions::Parse(std::string_view text) {
  EtcdOptions options = ReadUrl(text).first;
  TakePasswordFromEnvironment(options);
  options.Validate();
  return options;
}

EtcdOptions EtcdOptions::From(const RendezvousParameters& parameters) {
  auto [options, by_scheme] = ReadUrl(parameters.endpoint);
  TakeProtocol(parameters, by_scheme, options);
  options.cacert = TextOption(parameters, "cacert", "ca_cert");
  options.cert = TextOption(parameters, "cert", "ssl_cert");
  options.key = TextOption(parameters, "key", "ssl_cert_key");
  if (const std::string user = TextOption(parameters, "user"); !user.empty()) options.user = user;
  TakePassword(parameters, options);
  const std::string prefix = NormalPrefix(TextOption(parameters, "etcd_prefix"));
  if (!prefix.empty() && !options.prefix.empty() && prefix != options.prefix) {
    throw std::invalid_argument(Concat("etcd_prefix is '", Printable(prefix),
                                       "', but the endpoint ends in '", Printable(options.prefix),
                                       "'; leave one of them out"));
  }
  if (!prefix.empty()) options.prefix = prefix;
  options.timeout = ReadTimeout(parameters);
  options.Validate();
  return options;
}

void EtcdOptions::Validate() const {
  Require(!endpoints.empty(), "there are no endpoints; give one, such as localhost:2379");
  for (const HostAndPort& each : endpoints) {
    Require(!each.host.empty() && each.port > 0 && each.port <= 65535,
            Concat("endpoint '", Printable(each.host), ":", each.port,
                   "' must have a host, and a port from 1 to 65535"));
  }
  Require(tls || (cacert.empty() && cert.empty() && key.empty()),
          "certificates are given (cacert, cert, key), but TLS is off; write "
          "protocol=https or https://");
  Require(cert.empty() == key.empty(),
          cert.empty() ? "a key is given (key), but not its certificate (cert)"
                       : "a certificate is given (cert), but not its key (key)");
  Require(password.empty() || !user.empty(), "a password is given, but no user");
  Require(Printable(prefix, prefix.size()) == prefix,
          Concat("the prefix '", Printable(prefix), "' must be printable text"));
  Require(timeout > milliseconds::zero() && timeout <= kReadTimeoutMax,
          Concat("the timeout is ", timeout.count(), " ms; it must be above zero, at most a year"));
}

std::string EtcdOptions::ToString() const {
  std::string text;
  for (const auto& [host, port] : endpoints) {
    const Endpoint endpoint{host, static_cast<uint16_t>(port)};
    text += Concat(text.empty() ? "etcd at " : ",", endpoint.ToString());
  }
  return text;
}

}  // namespace muster
