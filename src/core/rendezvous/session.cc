#include "core/rendezvous/session.h"

#include <utility>

#include "base/text.h"

namespace muster {

Push Refuse(const SessionKey& key, Push::Refusal refusal, std::string why) {
  return {.to = key.session,
          .kind = Push::Kind::kRefused,
          .refusal = refusal,
          .incarnation = key.incarnation,
          .round = key.round,
          .token = key.token,
          .why = std::move(why)};
}

Push LostPush(const std::vector<std::string>& names, int64_t count, const std::string& why) {
  return {.kind = Push::Kind::kLost,
          .count = count,
          .who = ListOf(names, kNamesTold, static_cast<size_t>(count)),
          .why = why};
}

bool IsLoopback(std::string_view addr) { return addr.starts_with("127.") || addr == "::1"; }

}  // namespace muster
