// Decides whether a history is linearizable: whether there is an order of its operations that
// explains what every caller saw, and in which none comes before another that had returned before
// it was called. Pure.
//
// Four rules go beyond the textbook:
//   * What has no known outcome may happen at any time after its call, or never.
//   * Operations of one session happen in their order. That is what gives a SET its end: nobody
//     answers it, so it has happened by the time that something behind it is answered.
//   * A get that comes back empty is two steps, CHECK and GET: the network can bring them apart, a
//     delete can come in between, and the wire has one word for "gone" and "empty".
//   * An element of a queue may be reserved for a waiting client
//     (docs/reference/protocol.md); see model.h.
//
// Keys that no operation names together are checked apart: a history is linearizable if it is for
// each of its objects (Herlihy and Wing, 1990). The search is Wing and Gong's (1993), with Lowe's
// memory of pairs (what has happened, state) that lead nowhere (2017).
#pragma once

#include <cstddef>

#include "histories/operation.h"

namespace muster::test {

struct Verdict {
  enum class Kind {
    kLinearizable,
    kViolation,
    kUndecided,  ///< The search was given up.
  };
  Kind kind = Kind::kLinearizable;
  History guilty{};    ///< The operations on those keys that it could not explain.
  size_t visited = 0;  ///< How many pairs were looked at.
};

/// Enough for any history that is linearizable, by far; a bound for those that are not.
inline constexpr size_t kVisitsMax = 500'000;

Verdict Check(const History& history, size_t visits_max = kVisitsMax);

}  // namespace muster::test
