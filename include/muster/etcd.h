// EtcdOptions: the endpoints of a cluster of etcd and the credentials for it.
#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "muster/network.h"
#include "muster/rendezvous_parameters.h"

namespace muster {

/// Parse() and From() return valid options; call Validate() on others.
struct EtcdOptions {
  static constexpr int kDefaultPort = 2379;

  std::vector<HostAndPort> endpoints{{"localhost", kDefaultPort}};  ///< Any of them is sufficient.
  bool tls = false;
  std::string cacert{};  ///< File: the CA of the servers' certificates. Empty: the system's list.
  std::string cert{};    ///< File: a client certificate, if servers ask for one; with its key.
  std::string key{};     ///< File.
  std::string user{};    ///< Empty: without authentication.
  std::string password{};
  std::string prefix{};  ///< Of all keys. Empty: the default of the class that uses the options.
  std::chrono::milliseconds timeout{60'000};  ///< Of calls that do not wait for other nodes.

  /// Reads "etcd://h1:2379,h2:2379/prefix", the same with http:// or https:// (which means TLS), or
  /// plain "h1:2379,h2"; empty: localhost. The default port is 2379. IPv6 addresses are in
  /// brackets. "user:password@" may come first, with %XX for special characters. A user without a
  /// password gets that in the variable MUSTER_ETCD_PASSWORD, if it is set. std::invalid_argument
  /// names the part that is wrong, and never shows the password.
  static EtcdOptions Parse(std::string_view text);

  /// From the endpoint and the options protocol (http, https), cacert, cert, key (or ca_cert,
  /// ssl_cert, ssl_cert_key, their names in torchrun's etcd-v2), user, password or password_file (a
  /// file with the password in its first line), etcd_prefix and read_timeout (seconds, 60).
  /// std::invalid_argument names the option.
  static EtcdOptions From(const RendezvousParameters& parameters);

  /// std::invalid_argument: no endpoints, a certificate without its key or without TLS, a password
  /// without a user, a prefix that is not printable, a timeout that is not above zero.
  void Validate() const;

  /// "etcd at h1:2379,h2:2379", for messages.
  std::string ToString() const;
};

}  // namespace muster
