// Every bound that protects memory, in one place. Checked before memory is reserved; a server's
// operator may raise them (StoreLimits), a peer may not.
#pragma once

#include <cstddef>
#include <cstdint>

namespace muster {

/// What PyTorch's libuv server enforces (2.4 to 2.13); exceeding one closes the connection.
inline constexpr uint64_t kKeyBytesMax = 8 * 1024;
inline constexpr uint64_t kValueBytesMax = 8 * 1024 * 1024;
inline constexpr uint64_t kKeysPerRequestMax = 128 * 1024;

/// What it does not enforce, and should. One request as a whole: a MULTI_SET at both limits above
/// would be a TiB.
inline constexpr uint64_t kRequestBytesMax = 256ull * 1024 * 1024;
/// One value grown by APPEND, and one reply (MULTI_GET, LIST_KEYS): what a client must be ready to
/// read.
inline constexpr uint64_t kReplyBytesMax = 1024ull * 1024 * 1024;
/// Keys that all parked WAITs together may name; each costs about 100 bytes.
inline constexpr uint64_t kWaitedKeysMax = 16ull * 1024 * 1024;
/// Replies queued for one client that reads slowly; above this its requests wait, so memory does
/// not grow.
inline constexpr uint64_t kQueuedReplyBytesMax = 1024 * 1024;

}  // namespace muster
