// Which options each backend of a rendezvous knows: one that is misspelt is passed over by whoever
// reads the others, and somebody waits an hour for a timeout that was never set. Any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace muster {

/// What to tell somebody who gave `key` to `backend`, which does not know it: with the nearest one
/// that it knows. Nothing, if it does, or if the backend is not one of ours.
std::optional<std::string> WarningOfKey(std::string_view backend, std::string_view key);

}  // namespace muster
