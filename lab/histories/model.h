// The store that histories are compared with: docs/reference/protocol.md, one operation at a time,
// as simple as possible. It shares no code with the server. Pure.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "histories/operation.h"

namespace muster::test {

/// What a store has under one key.
struct Entry {
  std::optional<std::string> value{};
  std::vector<std::string> queue{};  ///< Oldest first.
  bool operator==(const Entry&) const = default;
};

using State = std::map<std::string, Entry>;

/// Whether `operation`, executed on `state` now, has the result that its caller saw. If so, `state`
/// becomes the state after it; otherwise `state` must not be used any more.
///
/// `held` is how many elements of the operation's queue may be reserved for others at this moment:
/// one for each client that waits for it. Such an element counts for check and queueLen, but
/// another client's pop does not get it, and a wait does not find it.
bool Explains(State& state, const Operation& operation, size_t held);

}  // namespace muster::test
