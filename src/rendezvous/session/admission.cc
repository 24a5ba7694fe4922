#include "rendezvous/session/admission.h"

#include <utility>

#include "base/encoding.h"
#include "base/text.h"
#include "rendezvous/wire/state_codec.h"

namespace muster {

std::string DocumentKey(std::string_view run_id) { return Concat("/torch.rendezvous.", run_id); }

bool IsDocumentInUse(std::string_view value) {
  // The value that the first node of c10d writes before it has a state.
  constexpr std::string_view kNull = "canimadam";
  const Result<std::string> pickle = Base64Decode(value);
  if (!pickle) return false;
  if (*pickle == kNull) return true;
  const Result<RendezvousState> state = wire::ReadState(*pickle);
  if (!state || state->closed) return false;
  return !state->participants.empty() || !state->wait_list.empty() ||
         !state->redundancy_list.empty();
}

std::optional<Push> RefusalOf(const wire::SessionRequest& open, bool has_document) {
  const auto refuse = [&](Push::Refusal refusal, std::string why) {
    return Refuse({.token = open.token, .round = open.round}, refusal, std::move(why));
  };
  if (!open.IsUnderstood()) {
    return refuse(
        Push::Refusal::kVersion,
        Concat("the node speaks versions ", open.version_oldest, " to ", open.version,
               " of muster's session protocol, and this server ", kSessionVersionOldest, " to ",
               kSessionVersion, ": run the same release of muster on all machines"));
  }
  if (!has_document) return std::nullopt;
  const std::string id = Printable(open.hello.run_id);
  return refuse(Push::Refusal::kSettings,
                Concat("run '", id, "' is one of backend c10d on this server (key '",
                       DocumentKey(id).substr(1),
                       "'), and this node was given backend muster: give all nodes the same "
                       "backend, or this job another id"));
}

std::string DocumentRefusal(std::string_view request) {
  return Concat(request,
                " of the document of a c10d rendezvous, whose run is one of backend muster on "
                "this server: give all nodes the same backend");
}

}  // namespace muster
