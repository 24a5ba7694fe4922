// What a server checks before a node may open a session: a run has one backend on a server. Nodes
// of backend muster open sessions, nodes of backend c10d write a document into the store; a run
// with both kinds would form two rounds, with two nodes of rank 0 under one prefix.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "rendezvous/core/session.h"
#include "rendezvous/wire/session_codec.h"

namespace muster {

/// The key, as the wire has it, of the document of a run of backend c10d.
std::string DocumentKey(std::string_view run_id);

/// The run whose document `key` is; nullopt: it is another key.
inline std::optional<std::string_view> RunOfDocument(std::string_view key) {
  constexpr std::string_view kPrefix = "/torch.rendezvous.";
  if (!key.starts_with(kPrefix)) return std::nullopt;
  return key.substr(kPrefix.size());
}

/// A document up to this size is read before a session is refused for its sake: 2,500 nodes. Of a
/// larger one its existence is enough.
inline constexpr size_t kDocumentBytesRead = 256 * 1024;

/// Whether this value of the document is one of nodes of backend c10d that are at work: they begin,
/// or some have a place, and the run is not closed. What a finished job or another program has left
/// is not.
bool IsDocumentInUse(std::string_view value);

/// Why the session cannot be opened: no version in common, or the run `has_document` that is in
/// use.
std::optional<Push> RefusalOf(const wire::SessionRequest& open, bool has_document);

/// Why `request` ("SET") must not write the document of a run that has sessions.
std::string DocumentRefusal(std::string_view request);

}  // namespace muster
