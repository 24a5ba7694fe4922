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

/// What it does not enforce. One request as a whole: a MULTI_SET at both limits above would be a
/// TiB.
inline constexpr uint64_t kRequestBytesMax = 256ull * 1024 * 1024;
/// One value grown by APPEND, and one reply (MULTI_GET, LIST_KEYS): what a client must be ready to
/// read, and the server to copy while others wait. As much as one request.
inline constexpr uint64_t kReplyBytesMax = 256ull * 1024 * 1024;
/// When the memory for all clients together is nearly used up, replies up to this size are still
/// given.
inline constexpr uint64_t kSmallReplyBytes = 1024 * 1024;
/// Bytes a second that a client must at least send of a request that it has begun, and take of the
/// replies that wait for it: a slower client holds memory and is disconnected.
inline constexpr uint64_t kRateMin = 16 * 1024;
/// An unfinished request that holds no more than this may come at any rate, within `stall_max`.
inline constexpr size_t kUnhurriedRequestBytes = 64 * 1024;
/// A request with a list of keys of which so much has come is taken apart while the rest comes.
inline constexpr size_t kLongRequestBytes = 256 * 1024;
/// Bytes of replies that one turn of a loop sends to one client, before others have their turn.
inline constexpr size_t kSentPerTurn = 4 * 1024 * 1024;
/// Keys that all parked WAITs together may name; each costs about 100 bytes.
inline constexpr uint64_t kWaitedKeysMax = 16ull * 1024 * 1024;
/// Keys that one step may delete, or look at, while others wait for the store.
inline constexpr size_t kKeysPerPiece = 1'000;
/// Runs and nodes have an eighth of what a server's clients may have, and at least this: 10,000 of
/// either.
inline constexpr uint64_t kSessionBytesLeast = 32 * 1024 * 1024;
/// What a server needs at least for all its clients together to be of use.
inline constexpr uint64_t kStoreBytesLeast = 1024 * 1024;
/// Replies queued for one client that reads slowly; above this its requests wait, so memory does
/// not grow.
inline constexpr uint64_t kQueuedReplyBytesMax = 1024 * 1024;

/// Log lines that wait for a reader of standard error; more are dropped and counted. Four times
/// what a pipe holds.
inline constexpr uint64_t kQueuedLogBytesMax = 256 * 1024;

/// Descriptors that a server keeps in reserve: some for sessions, so that idle connections cannot
/// keep nodes out, and the last ones for other addresses than the one that holds most. A sixteenth
/// of what the process may have, at most this.
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

/// Closed runs that a server remembers after it had to evict them; eight bytes each.
inline constexpr uint64_t kClosedRunsMax = 256 * 1024;
/// The highest round that a node may claim to have been in; rounds go on from there. No job gets
/// near it, and no node can use the numbers up.
inline constexpr int64_t kClaimedRoundMax = int64_t{1} << 40;
/// In one answer to a status request: runs, and nodes of each role. The server reports under a
/// lock, for milliseconds.
inline constexpr uint64_t kStatusRunsMax = 256;
inline constexpr uint64_t kStatusNamesMax = 16 * 1024;

}  // namespace muster
