// What a failure of gRPC or an error of etcd means for the request.
#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "base/text.h"
#include "etcd/grpc/client.h"

namespace muster::etcd {

namespace {

bool Has(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

/// Parts of OpenSSL's messages, of which it has two spellings ("UNKNOWN_CA", "unknown ca"), and
/// what they mean. The first match counts.
constexpr std::string_view kUnaccepted =
    "its certificate is not accepted: made by a CA other than the given one, expired, or for "
    "another host name";
constexpr std::array<std::pair<std::string_view, std::string_view>, 10> kTlsTroubles = {{
    {"certificate has expired", "its certificate has expired"},
    {"certificate verify failed", kUnaccepted},
    {"certificate required", "it wants a client certificate, and none was given"},
    {"certificate expired", "it reports that our certificate has expired"},
    {"unknown ca", "it does not know the CA of our certificate"},
    {"bad certificate", "it does not accept our certificate, or wants one and none was given"},
    {"hostname verification check failed", "its certificate is for another host name"},
    {"peer name", "its certificate is for another host name"},
    {"wrong version number", "it does not speak TLS"},
    {"ssl error ssl", "the TLS handshake failed"},
}};

/// Empty: the problem is not TLS.
std::string_view TlsTrouble(std::string_view message) {
  std::string plain = LowerCase(message);
  std::ranges::replace(plain, '_', ' ');
  for (const auto& [sign, meaning] : kTlsTroubles) {
    if (Has(plain, sign)) return meaning;
  }
  return "";
}

/// The reason, without gRPC's text around it.
std::string_view Reason(std::string_view message) {
  constexpr std::string_view kFrame = "last error: ";
  if (const size_t at = message.find(kFrame); at != std::string_view::npos)
    message.remove_prefix(at + kFrame.size());
  return message;
}

Failure Failed(Outcome outcome, std::string message) {
  const bool open = outcome == Outcome::kUnknown;
  const bool again = outcome == Outcome::kNothing || outcome == Outcome::kBusy;
  const Code code = open ? Code::kTimeout : again ? Code::kUnavailable : Code::kInvalid;
  return {outcome, {code, std::move(message)}};
}

/// One side does not accept the other's certificate.
Failure Distrusted(std::string message, size_t distrust) {
  return {Outcome::kNothing, {Code::kInvalid, std::move(message)}, distrust};
}

Failure Unreached(std::string_view message, const std::string& who, const EtcdOptions& access) {
  const bool is_cut_off = Has(message, "Endpoint read failed");
  // After a complete TLS handshake it is the server itself that ends the connection...
  if (access.tls && is_cut_off) {
    const std::string why = access.cert.empty()
                                ? "it wants a client certificate, and none was given"
                                : Concat("it does not accept our certificate ", access.cert,
                                         " (another CA than it knows, or expired)");
    return Distrusted(
        Concat(who, ": it ends every connection right after the TLS handshake: ", why), 1);
  }
  // ...otherwise it may be a proxy whose server is not up yet.
  if (is_cut_off || Has(message, "Socket closed") || Has(message, "Connection reset")) {
    return Failed(Outcome::kNothing,
                  Concat(who, ": it ends connections before they have begun (",
                         access.tls ? "does it speak TLS?" : "does it want TLS?", ")"));
  }
  return Failed(Outcome::kNothing, Concat(who, " cannot be reached: ", Reason(message)));
}

Failure Unavailable(std::string_view message, bool reached, const std::string& who,
                    const EtcdOptions& access) {
  if (const std::string_view meaning = TlsTrouble(message); !meaning.empty())
    return Distrusted(Concat(who, ": ", meaning, " (", Reason(message), ")"), kDistrustSure);
  if (!reached) return Unreached(message, who, access);
  // etcd checks for a leader before it does anything.
  if (Has(message, "etcdserver: no leader"))
    return Failed(Outcome::kNothing, Concat(who, " has no leader: no quorum"));
  return Failed(Outcome::kUnknown, Concat(who, " failed with the request under way: ", message));
}

Failure Exhausted(std::string_view message, const std::string& who) {
  if (Has(message, "too many requests"))
    return Failed(Outcome::kBusy, Concat(who, " is overloaded: ", message));
  if (Has(message, "space exceeded")) {
    return Failed(
        Outcome::kRefused,
        Concat(who, " is full: ", message,
               "; compact and defragment it, then disarm its alarm (etcdctl alarm disarm)"));
  }
  return Failed(Outcome::kRefused, Concat(who, ": too large: ", message));
}

bool IsTokenTrouble(std::string_view message) {
  return Has(message, "invalid auth token") || Has(message, "revision of auth store is old") ||
         Has(message, "user name is empty");
}

}  // namespace

Failure Classify(const grpc::Status& status, bool reached, const Endpoint& endpoint,
                 const EtcdOptions& access) {
  const std::string who = Concat("etcd at ", endpoint.ToString());
  const std::string message = status.ok() ? "it ended the stream" : status.error_message();
  const Failure refused = Failed(Outcome::kRefused, Concat(who, " refuses: ", message));
  const Failure stale{Outcome::kStale, refused.error};
  switch (status.error_code()) {
    case grpc::StatusCode::UNAVAILABLE:
      return Unavailable(message, reached, who, access);
    case grpc::StatusCode::DEADLINE_EXCEEDED:
      if (!reached) return Failed(Outcome::kNothing, Concat(who, " cannot be reached in time"));
      return Failed(Outcome::kUnknown, Concat(who, " did not answer in time"));
    case grpc::StatusCode::NOT_FOUND:
      return {Outcome::kRefused, {Code::kNotFound, Concat(who, ": ", message)}};
    case grpc::StatusCode::UNAUTHENTICATED:
      return stale;
    case grpc::StatusCode::PERMISSION_DENIED:
    case grpc::StatusCode::OUT_OF_RANGE:
      return refused;
    case grpc::StatusCode::RESOURCE_EXHAUSTED:
      return Exhausted(message, who);
    case grpc::StatusCode::INVALID_ARGUMENT:
      return IsTokenTrouble(message) ? stale : refused;
    case grpc::StatusCode::FAILED_PRECONDITION:
      if (!Has(message, "not leader")) return refused;
      // The error of a keep-alive while leaders change.
      return Failed(Outcome::kNothing, Concat(who, ": ", message));
    case grpc::StatusCode::UNIMPLEMENTED:
      return Failed(Outcome::kRefused,
                    Concat(refused.error.message, "; is this an etcd of version 3.4 or newer?"));
    default:
      return Failed(Outcome::kUnknown,
                    Concat(who, " failed with the request under way: ", message));
  }
}

}  // namespace muster::etcd
