// The store that histories are compared with: docs/reference/protocol.md, one operation at a time,
// as plainly as possible. It shares no code with the server. Pure.
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

/// Whether `operation`, executed on `state` now, comes out as its caller saw it. If so, `state` is
/// what it leaves behind; otherwise `state` is of no further use.
///
/// `held` is how many elements of the operation's queue may be kept for others at this moment: one
/// for each client that waits for it. Such an element counts for check and queueLen, but a pop of
/// somebody else does not get it, and a wait does not find it.
bool Explains(State& state, const Operation& operation, size_t held);

}  // namespace muster::test
