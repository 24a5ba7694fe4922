// EtcdOptions: where a cluster of etcd is, and who we are to it. For all that muster keeps there.
#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "muster/network.h"
#include "muster/rendezvous_parameters.h"

namespace muster {

/// Values. Parse() and From() make valid ones; who fills them in by hand calls Validate().
struct EtcdOptions {
  static constexpr int kDefaultPort = 2379;

  std::vector<HostAndPort> endpoints{{"localhost", kDefaultPort}};  ///< Any of them will do.
  bool tls = false;
  std::string cacert{};  ///< File: who signs the servers' certificates. Empty: the system's list.
  std::string cert{};    ///< File: our certificate, where servers ask for one; with its key.
  std::string key{};     ///< File.
  std::string user{};    ///< Empty: etcd is not asked to know us.
  std::string password{};
  std::string prefix{};  ///< Of all our keys. Empty: the default of whoever uses these options.
  std::chrono::milliseconds timeout{60'000};  ///< Of what does not wait for other nodes.

  /// Reads "etcd://h1:2379,h2:2379/prefix", the same with http:// or https:// (which means TLS), or
  /// plain "h1:2379,h2". The port is 2379 where none is given, IPv6 addresses stand in brackets,
  /// "user:password@" may come first, with %XX for whatever is special there; empty: localhost.
  /// A user without a password has that of the variable MUSTER_ETCD_PASSWORD, if it is set.
  /// std::invalid_argument names the part that is wrong, and never shows the password.
  static EtcdOptions Parse(std::string_view text);

  /// From the endpoint and the options protocol (http, https), cacert, cert, key (or, as torchrun's
  /// etcd-v2 calls them, ca_cert, ssl_cert, ssl_cert_key), user, password or password_file (a file
  /// whose first line it is), etcd_prefix and read_timeout (seconds, 60). std::invalid_argument
  /// names the option.
  static EtcdOptions From(const RendezvousParameters& parameters);

  /// std::invalid_argument: no endpoints, a certificate without its key or without TLS, a password
  /// without a user, a prefix that is no text, a timeout that is not above zero.
  void Validate() const;

  /// "etcd at h1:2379,h2:2379", for messages.
  std::string ToString() const;
};

}  // namespace muster
