// One call on a store as its caller saw it: the request, the result, and the time of both. A
// history is a list of these, in any order.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

namespace muster::test {

enum class Kind {
  kSet,
  kGet,   ///< Waits for the key.
  kRead,  ///< The wire's GET: does not wait, and reads an absent key as empty.
  kAdd,
  kCompareSet,
  kCheck,
  kWait,
  kDelete,
  kAppend,
  kMultiSet,
  kMultiGet,  ///< Waits for all keys.
  kPush,
  kPop,     ///< Waits for an element.
  kTryPop,  ///< Does not.
  kQueueLen,
};
inline constexpr int kKindCount = static_cast<int>(Kind::kQueueLen) + 1;

enum class Outcome {
  kDone,      ///< It happened; `saw` is what came back.
  kTimedOut,  ///< It waited in vain, and the server confirmed that the wait was over.
  kEmpty,     ///< There was nothing to pop.
  kRefused,   ///< The server disconnected: the value is not a counter.
  kUnknown,   ///< The connection died or the caller stopped waiting: any time after the call, or
              ///< never.
};

/// Times are nanoseconds of one monotonic clock; this one is later than all others.
inline constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

struct Operation {
  Kind kind = Kind::kGet;
  std::vector<std::string> keys{};
  std::vector<std::string> values{};  ///< One for each key; also desired, suffix, element.
  std::string expected{};             ///< kCompareSet
  int64_t delta = 0;                  ///< kAdd

  Outcome outcome = Outcome::kUnknown;
  std::vector<std::string> saw{};  ///< Numbers in decimal, yes and no as "1" and "0".
  int64_t called = 0;
  int64_t returned = kNever;

  int client = 0;   ///< For readers of a report.
  int session = 0;  ///< One connection: a server executes its requests in order.
  int order = 0;    ///< Place within the session.

  bool operator==(const Operation&) const = default;
};

using History = std::vector<Operation>;

std::string_view Name(Kind kind);

/// Whether the server answers it. An operation without a reply is known to have happened when a
/// later one on the same connection has been answered.
bool HasReply(Kind kind);

/// Whether it can change the store.
bool Changes(Kind kind);

/// Whether it may have to wait for another client.
bool Blocks(Kind kind);

/// `compareSet(k0, "a", "b") -> "a"`, one line.
std::string Describe(const Operation& operation);

/// The whole history as a table, by the time of the call, in microseconds since the first.
std::string Describe(History history);

}  // namespace muster::test
