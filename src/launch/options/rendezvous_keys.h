// The options that each backend of a rendezvous knows. Backends ignore unknown options, so a
// misspelt one would go unnoticed without a warning. Any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace muster {

/// A warning about a `key` that `backend` does not know, with the most similar one that it knows.
/// Nothing if it knows it, or if the backend is not built in.
std::optional<std::string> WarningOfKey(std::string_view backend, std::string_view key);

/// Whether an endpoint of etcd has "user:password@" before its hosts.
bool ShowsPassword(std::string_view endpoint);

/// Why a command line that shows one is refused, and what to write instead.
inline constexpr std::string_view kVisiblePassword =
    "a password on a command line can be read by everybody on the machine; write "
    "password_file=FILE among the options, or set MUSTER_ETCD_PASSWORD";

}  // namespace muster
