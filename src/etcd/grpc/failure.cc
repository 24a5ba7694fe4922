#include "etcd/grpc/failure.h"

#include <array>
#include <cstddef>
#include <optional>
#include <string_view>

#include "base/text.h"

namespace muster::etcd {

namespace {

bool Has(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

/// Parts of OpenSSL's messages, and what they mean. The first match counts.
struct TlsTrouble {
  std::string_view sign;
  std::string_view meaning;
};
constexpr std::array kTlsTroubles = {
    TlsTrouble{"certificate has expired", "its certificate has expired"},
    TlsTrouble{
        "CERTIFICATE_VERIFY_FAILED",
        "its certificate is not accepted: made by a CA other than the given one, expired, or "
        "for another host name"},
    TlsTrouble{
        "certificate verify failed",
        "its certificate is not accepted: made by a CA other than the given one, expired, or "
        "for another host name"},
    TlsTrouble{"CERTIFICATE_REQUIRED", "it wants a client certificate, and none was given"},
    TlsTrouble{"certificate required", "it wants a client certificate, and none was given"},
    TlsTrouble{"EXPIRED", "it reports that our certificate has expired"},
    TlsTrouble{"certificate expired", "it reports that our certificate has expired"},
    TlsTrouble{"UNKNOWN_CA", "it does not know the CA of our certificate"},
    TlsTrouble{"unknown ca", "it does not know the CA of our certificate"},
    TlsTrouble{"BAD_CERTIFICATE",
               "it does not accept our certificate, or wants one and none was given"},
    TlsTrouble{"bad certificate",
               "it does not accept our certificate, or wants one and none was given"},
    TlsTrouble{"Hostname Verification Check failed", "its certificate is for another host name"},
    TlsTrouble{"Peer name", "its certificate is for another host name"},
    TlsTrouble{"WRONG_VERSION_NUMBER", "it does not speak TLS"},
    TlsTrouble{"wrong version number", "it does not speak TLS"},
    TlsTrouble{"SSL_ERROR_SSL", "the TLS handshake failed"},
};

std::optional<std::string> Distrust(std::string_view message) {
  for (const TlsTrouble& trouble : kTlsTroubles) {
    if (Has(message, trouble.sign)) return std::string(trouble.meaning);
  }
  return std::nullopt;
}

/// The reason, without gRPC's text around it.
std::string_view Reason(std::string_view message) {
  constexpr std::string_view kFrame = "last error: ";
  if (const size_t at = message.find(kFrame); at != std::string_view::npos)
    message.remove_prefix(at + kFrame.size());
  return message;
}

/// What it may mean that a connection ends before the first answer. After a complete TLS handshake
/// it is the server itself; otherwise it may be a proxy whose server is not up yet.
struct CutOff {
  std::string meaning;
  size_t distrust = 0;
};
std::optional<CutOff> CutOffOf(std::string_view message, const EtcdAccess& access) {
  if (access.tls && Has(message, "Endpoint read failed")) {
    return CutOff{Concat("it ends every connection right after the TLS handshake: ",
                         access.cert_file.empty()
                             ? "it wants a client certificate, and none was given"
                             : Concat("it does not accept our certificate ", access.cert_file,
                                      " (another CA than it knows, or expired)")),
                  1};
  }
  if (!Has(message, "Socket closed") && !Has(message, "Endpoint read failed") &&
      !Has(message, "Connection reset"))
    return std::nullopt;
  return CutOff{Concat("it ends connections before they have begun (",
                       access.tls ? "does it speak TLS?" : "does it want TLS?", ")")};
}

Failure Unavailable(std::string_view message, bool reached, const std::string& who,
                    const EtcdAccess& access) {
  if (const auto meaning = Distrust(message)) {
    return {Outcome::kNothing,
            {Code::kInvalid, Concat(who, ": ", *meaning, " (", Reason(message), ")")},
            kDistrustSure};
  }
  if (const auto cut_off = reached ? std::nullopt : CutOffOf(message, access)) {
    return {Outcome::kNothing,
            {cut_off->distrust > 0 ? Code::kInvalid : Code::kUnavailable,
             Concat(who, ": ", cut_off->meaning)},
            cut_off->distrust};
  }
  if (!reached) {
    return {Outcome::kNothing,
            {Code::kUnavailable, Concat(who, " cannot be reached: ", Reason(message))}};
  }
  // etcd checks for a leader before it does anything.
  if (Has(message, "etcdserver: no leader"))
    return {Outcome::kNothing, {Code::kUnavailable, Concat(who, " has no leader: no quorum")}};
  return {Outcome::kUnknown,
          {Code::kTimeout, Concat(who, " failed with the request under way: ", message)}};
}

Failure Exhausted(std::string_view message, const std::string& who) {
  if (Has(message, "too many requests"))
    return {Outcome::kBusy, {Code::kUnavailable, Concat(who, " is overloaded: ", message)}};
  if (Has(message, "space exceeded")) {
    return {Outcome::kRefused,
            {Code::kInvalid,
             Concat(who, " is full: ", message,
                    "; compact and defragment it, then disarm its alarm (etcdctl alarm disarm)")}};
  }
  return {Outcome::kRefused, {Code::kInvalid, Concat(who, ": too large: ", message)}};
}

bool IsTokenTrouble(std::string_view message) {
  return Has(message, "invalid auth token") || Has(message, "revision of auth store is old") ||
         Has(message, "user name is empty");
}

}  // namespace

Failure Classify(const grpc::Status& status, bool reached, const Endpoint& endpoint,
                 const EtcdAccess& access) {
  const std::string who = Concat("etcd at ", endpoint.ToString());
  const std::string message = status.ok() ? "it ended the stream" : status.error_message();
  const auto refused = [&](std::string_view hint = "") -> Failure {
    return {Outcome::kRefused, {Code::kInvalid, Concat(who, " refuses: ", message, hint)}};
  };
  switch (status.error_code()) {
    case grpc::StatusCode::UNAVAILABLE:
      return Unavailable(message, reached, who, access);
    case grpc::StatusCode::DEADLINE_EXCEEDED:
      if (!reached)
        return {Outcome::kNothing, {Code::kUnavailable, Concat(who, " cannot be reached in time")}};
      return {Outcome::kUnknown, {Code::kTimeout, Concat(who, " did not answer in time")}};
    case grpc::StatusCode::NOT_FOUND:
      return {Outcome::kRefused, {Code::kNotFound, Concat(who, ": ", message)}};
    case grpc::StatusCode::UNAUTHENTICATED:
      return {Outcome::kStale, {Code::kInvalid, Concat(who, " refuses: ", message)}};
    case grpc::StatusCode::PERMISSION_DENIED:
      return refused();
    case grpc::StatusCode::RESOURCE_EXHAUSTED:
      return Exhausted(message, who);
    case grpc::StatusCode::INVALID_ARGUMENT:
      if (IsTokenTrouble(message))
        return {Outcome::kStale, {Code::kInvalid, Concat(who, " refuses: ", message)}};
      return refused();
    case grpc::StatusCode::FAILED_PRECONDITION:
      if (Has(message, "not leader"))  // of a lease, while leaders change
        return {Outcome::kNothing, {Code::kUnavailable, Concat(who, ": ", message)}};
      return refused();
    case grpc::StatusCode::UNIMPLEMENTED:
      return refused("; is this an etcd of version 3.4 or newer?");
    case grpc::StatusCode::OUT_OF_RANGE:
      return refused();
    default:
      return {Outcome::kUnknown,
              {Code::kTimeout, Concat(who, " failed with the request under way: ", message)}};
  }
}

}  // namespace muster::etcd
