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

/// Whether an endpoint of etcd has "user:password@" before its hosts.
bool ShowsPassword(std::string_view endpoint);

/// Why a command line that shows one is refused, and what to write instead.
inline constexpr std::string_view kVisiblePassword =
    "a password on a command line can be read by everybody on the machine; write "
    "password_file=FILE among the options, or set MUSTER_ETCD_PASSWORD";

}  // namespace muster
