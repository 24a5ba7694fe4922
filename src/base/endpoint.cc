#include "base/endpoint.h"

#include "base/text.h"

namespace muster {

std::string Endpoint::ToString() const {
  const bool literal6 = host.find(':') != std::string::npos;
  return literal6 ? Concat('[', host, "]:", port) : Concat(host, ':', port);
}

Result<Endpoint> ParseHostPort(std::string_view text) {
  const auto wrong = [&](std::string_view why) {
    return MakeError(Code::kInvalid, "'", Printable(text), "' is not HOST:PORT: ", why);
  };
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return wrong("the port is missing");
  std::string_view host = text.substr(0, colon);
  if (host.starts_with('[')) {
    if (!host.ends_with(']')) return wrong("'[' without ']'");
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != std::string_view::npos) {
    return wrong("write an IPv6 address as [ADDRESS]:PORT");
  }
  // ToString() adds brackets: a host with brackets of its own could not be read back.
  if (host.find_first_of("[]") != std::string_view::npos) {
    return wrong("brackets belong around an IPv6 address, and nowhere else");
  }
  const std::optional<uint16_t> port = ParseAll<uint16_t>(text.substr(colon + 1));
  if (!port) return wrong("the port must be a number from 0 to 65535");
  return Endpoint{.host = std::string(host), .port = *port};
}

}  // namespace muster
