#include "core/rendezvous/session.h"

#include <utility>

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

}  // namespace muster
