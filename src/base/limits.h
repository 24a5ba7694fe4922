// Every bound that protects memory. Checked before memory is reserved; the operator of a server may
// raise them (StoreServerOptions), a peer may not.
#pragma once

#include <cstddef>
#include <cstdint>

namespace muster {

/// What PyTorch's libuv server enforces; exceeding one closes the connection.
inline constexpr uint64_t kKeyBytesMax = 8 * 1024;
inline constexpr uint64_t kValueBytesMax = 8 * 1024 * 1024;
inline constexpr uint64_t kKeysPerRequestMax = 128 * 1024;

/// Limits that PyTorch's server does not enforce. One request as a whole: a MULTI_SET at both
/// limits above would be a TiB.
inline constexpr uint64_t kRequestBytesMax = 256ull * 1024 * 1024;
/// One value grown by APPEND, and one reply (MULTI_GET, LIST_KEYS): a client must be able to read
/// it, and the server copies it while others wait. The same as for one request.
inline constexpr uint64_t kReplyBytesMax = 256ull * 1024 * 1024;
/// When the memory for all clients together is nearly used up, replies up to this size are still
/// sent.
inline constexpr uint64_t kSmallReplyBytes = 1024 * 1024;
/// The least bytes per second that a client must send of a request that it has begun, and read of
/// its queued replies: a slower client holds memory and is disconnected.
inline constexpr uint64_t kRateMin = 16 * 1024;
/// An unfinished request that holds no more than this may arrive at any rate, within `stall_max`.
inline constexpr size_t kUnhurriedRequestBytes = 64 * 1024;
/// A request with a list of keys is decoded while it arrives once this many bytes have arrived.
inline constexpr size_t kLongRequestBytes = 256 * 1024;
/// Bytes of replies that one turn of a loop sends to one client, before it serves others.
inline constexpr size_t kSentPerTurn = 4 * 1024 * 1024;
/// Keys that all parked WAITs together may name; each costs about 100 bytes.
inline constexpr uint64_t kWaitedKeysMax = 16ull * 1024 * 1024;
/// Keys that one step may delete or examine while others wait for the store.
inline constexpr size_t kKeysPerPiece = 1'000;
/// Runs and nodes may use an eighth of the memory of a server's clients, and at least this: enough
/// for 10,000 of either.
inline constexpr uint64_t kSessionBytesLeast = 32 * 1024 * 1024;
/// The least memory for all clients together with which a server is useful.
inline constexpr uint64_t kStoreBytesLeast = 1024 * 1024;

/// Log lines that wait for a reader of standard error; more are dropped and counted. Four times
/// what a pipe holds.
inline constexpr uint64_t kQueuedLogBytesMax = 256 * 1024;

/// Descriptors that a server keeps in reserve: some for sessions, so that idle connections cannot
/// keep nodes out, and the last ones for addresses other than the one that holds the most. A
/// sixteenth of the process's limit, at most this.
inline constexpr uint64_t kSpareDescriptorsMax = 64;

/// The state of a rendezvous, read from a key that any client may have written. As much as fits
/// into one value of a store, in base64: one of 10,000 nodes has 0.8 MB.
inline constexpr uint64_t kStateBytesMax = kValueBytesMax / 4 * 3;
inline constexpr uint64_t kStateNodesMax = 128 * 1024;        ///< in each of its collections
inline constexpr uint64_t kStateValuesMax = 2 * 1024 * 1024;  ///< numbers, texts, objects ...
inline constexpr uint64_t kStateItemsMax = 2 * 1024 * 1024;   ///< ... and their places in others
inline constexpr uint64_t kStateStackMax = 1024 * 1024;
/// Unknown attributes of one object, which are passed on: newer peers may add a few.
inline constexpr uint64_t kStateUnknownMax = 1024;
/// How deep unknown values that are passed on may be nested.
inline constexpr uint64_t kStateDepthMax = 64;
inline constexpr uint64_t kNodeAddressBytesMax = 1024;

/// The address and the label of a node in a session. The coordinator sorts all of them in one step,
/// so an untrusted peer must not make them long. A host name has at most 253 characters.
inline constexpr uint64_t kNodeNameBytesMax = 256;

/// Closed runs that a server remembers after it had to evict them; eight bytes each.
inline constexpr uint64_t kClosedRunsMax = 256 * 1024;
/// The highest round that a node may claim to have been in; rounds are counted on from there. No
/// job reaches it, and no node can exhaust the numbers.
inline constexpr int64_t kClaimedRoundMax = int64_t{1} << 40;
/// Limits of one reply to a status request: runs, and nodes of each role. The server writes it
/// under a lock, in milliseconds.
inline constexpr uint64_t kStatusRunsMax = 256;
inline constexpr uint64_t kStatusNamesMax = 16 * 1024;

}  // namespace muster
