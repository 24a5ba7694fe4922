// Decides whether a history is linearizable. It is if an order of its operations explains what
// every caller saw, and no operation comes before another one that had returned before it was
// called. Pure.
//
// Four rules are added to the textbook's:
//   * An operation with unknown outcome may happen at any time after its call, or never.
//   * Operations of one session happen in their order. This bounds a SET, which has no reply: it
//     has
//     happened before any later request on its connection is answered.
//   * A get that returns nothing is two steps, CHECK and GET: the network can separate them, a
//     delete can
//     come in between, and on the wire "gone" and "empty" look the same.
//   * An element of a queue may be reserved for a waiting client
//     (docs/reference/protocol.md); see model.h.
//
// Keys that no operation names together are checked separately: a history is linearizable if it is
// for each of its objects (Herlihy and Wing, 1990). The search is Wing and Gong's (1993), with
// Lowe's memory of pairs (what has happened, state) that lead nowhere (2017).
#pragma once

#include <cstddef>

#include "histories/operation.h"

namespace muster::test {

struct Verdict {
  enum class Kind {
    kLinearizable,
    kViolation,
    kUndecided,  ///< The search reached its limit.
  };
  Kind kind = Kind::kLinearizable;
  History guilty{};    ///< The operations on the keys that it could not explain.
  size_t visited = 0;  ///< How many pairs were visited.
};

/// Far more than any linearizable history needs; a limit for the others.
inline constexpr size_t kVisitsMax = 500'000;

Verdict Check(const History& history, size_t visits_max = kVisitsMax);

}  // namespace muster::test
