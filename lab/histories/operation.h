// One call on a store as its caller saw it: what was asked, what came back, and between which two
// moments. A history is a list of these, in any order.
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
  kTimedOut,  ///< It waited in vain, and the server agreed that the wait was over.
  kEmpty,     ///< There was nothing to pop.
  kRefused,   ///< The server hung up: the value cannot be added to.
  kUnknown,   ///< The connection died or the caller gave up: any time after the call, or never.
};

/// Moments are nanoseconds of one monotonic clock; this one is later than all others.
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

  int client = 0;   ///< For the reader.
  int session = 0;  ///< One connection: a server executes what comes over it in its order.
  int order = 0;    ///< Place within the session.

  bool operator==(const Operation&) const = default;
};

using History = std::vector<Operation>;

std::string_view Name(Kind kind);

/// Whether the server answers it. What is not answered is known to have happened when something
/// behind it on the same connection has been answered.
bool HasReply(Kind kind);

/// Whether it can change a store.
bool Changes(Kind kind);

/// Whether it may have to wait for another client.
bool Blocks(Kind kind);

/// `compareSet(k0, "a", "b") -> "a"`, one line.
std::string Describe(const Operation& operation);

/// The whole history as a table, by the time of the call, in microseconds since the first.
std::string Describe(History history);

}  // namespace muster::test
