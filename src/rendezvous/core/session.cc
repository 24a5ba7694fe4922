#include "rendezvous/core/session.h"

#include <utility>

#include "base/text.h"

namespace muster {

std::string RoundPrefix(const Generation& generation, int64_t round) {
  return Concat("muster.run/", generation.ToString(), "/", round);
}

std::string ScopeOf(const Generation& generation, int64_t round) {
  return Concat("/", RoundPrefix(generation, round), "/");
}

Push Refuse(const SessionKey& key, Push::Refusal refusal, std::string why) {
  return {.to = key.session,
          .kind = Push::Kind::kRefused,
          .refusal = refusal,
          .incarnation = key.incarnation,
          .round = key.round,
          .token = key.token,
          .why = std::move(why)};
}

void Losses::Add(const Node& node, const std::string& its_why) {
  if (count++ == 0) why = its_why;
  if (names.size() < kNamesInMessage) names.push_back(node.ToString());
}

Push Losses::ToPush() const {
  return {.kind = Push::Kind::kLost,
          .count = count,
          .who = ListOf(names, kNamesInMessage, static_cast<size_t>(count)),
          .why = why};
}

bool IsLoopback(std::string_view addr) { return addr.starts_with("127.") || addr == "::1"; }

}  // namespace muster
