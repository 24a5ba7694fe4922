// Requests and replies of the store machine. All views point into memory of the object that created
// them; the comments say for how long.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "store/core/value.h"

namespace muster {

/// The numbers are PyTorch's opcodes (docs/reference/protocol.md).
enum class Op : uint8_t {
  kValidate = 0,
  kSet = 1,
  kCompareSet = 2,
  kGet = 3,
  kAdd = 4,
  kCheck = 5,
  kWait = 6,
  kGetNumKeys = 7,
  kDeleteKey = 8,
  kAppend = 9,
  kMultiGet = 10,
  kMultiSet = 11,
  kCancelWait = 12,
  kPing = 13,
  kQueuePush = 14,
  kQueuePop = 15,
  kQueueLen = 16,
  kListKeys = 17,
  kBarrier = 18,
};
inline constexpr uint8_t kOpCount = 19;

/// "SET", "COMPARE_SET", ...: for messages.
std::string_view Name(Op op);

/// The number of a client: the driver gives one to each connection (or blocked call) and never uses
/// it twice.
enum class ClientId : uint64_t {};

/// Clients whose parked WAIT or BARRIER must now be answered with kStopWaiting, oldest first.
using Released = std::vector<ClientId>;

/// One request. `op` determines which fields have a meaning; the others are empty.
struct Request {
  Op op = Op::kPing;
  std::string_view key{};
  std::string_view expected{};                 ///< COMPARE_SET
  std::string_view value{};                    ///< also desired, suffix, queue element
  int64_t number = 0;                          ///< delta, world size, nonce, magic
  std::span<const std::string_view> keys{};    ///< CHECK, WAIT, MULTI_GET, MULTI_SET
  std::span<const std::string_view> values{};  ///< MULTI_SET, as many as keys
  /// Hashes of the key and of the keys, from the machine's hasher; 0 and empty: the machine hashes
  /// them itself.
  uint64_t hash = 0;
  std::span<const uint64_t> hashes{};
  /// `value` as a piece, if the driver has created one already; null: the machine creates it.
  const Piece* piece = nullptr;
};

/// The answer to one request. Views stay valid until the next call on the machine that returned
/// them.
struct Reply {
  enum class Kind : uint8_t {
    kNone,         ///< Nothing is sent: SET and its like, or a WAIT that has been parked.
    kReady,        ///< CHECK: every key exists.
    kNotReady,     ///< CHECK: at least one is missing.
    kStopWaiting,  ///< WAIT, BARRIER: done. Sent at once, or later to those in `released`.
    kCancelled,    ///< CANCEL_WAIT: no kStopWaiting will follow.
    kNumber,
    kNonce,
    kValue,    ///< GET: `number` is 1 if the key exists. The wire has no field for that.
    kValues,   ///< MULTI_GET: `values`, in the order of the request.
    kKeys,     ///< LIST_KEYS: `values` are keys.
    kPopped,   ///< QUEUE_POP: `number` is the length before the pop; `value` only if that is
               ///< positive.
    kRefused,  ///< Close the connection: see `why`. The state is unchanged.
  };
  enum class Why : uint8_t {
    kNothing,
    kNotANumber,     ///< ADD or BARRIER on a value that is not a number.
    kOutOfRange,     ///< ... or does not fit 64 bits.
    kAlreadyParked,  ///< A second WAIT or BARRIER while one is outstanding.
    kTooMuch,        ///< A limit of the machine: see Store limits.
    kNoRoom,         ///< The bound on all memory together.
    kMisplaced,      ///< A VALIDATE after the handshake.
  };

  Kind kind = Kind::kNone;
  Why why = Why::kNothing;
  int64_t number = 0;
  ValueView value{};
  std::span<const ValueView> values{};

  static Reply None() { return {}; }
  static Reply Of(Kind kind) { return {.kind = kind}; }
  static Reply Number(int64_t number) { return {.kind = Kind::kNumber, .number = number}; }
  static Reply Value(const ValueView& value) { return {.kind = Kind::kValue, .value = value}; }
  static Reply Refused(Why why) { return {.kind = Kind::kRefused, .why = why}; }
};

/// A sentence for the log: "ADD on a value that is not a number".
std::string_view Describe(Reply::Why why);

}  // namespace muster
