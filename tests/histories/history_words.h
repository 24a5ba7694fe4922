// Functions to write histories by hand: Set("k", "a").At(0, 10).
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "histories/operation.h"

namespace muster::test {

/// An operation that is done, by default. Each has a session of its own until By() sets one.
struct Called : Operation {
  Called(Kind a_kind, std::vector<std::string> its_keys) {
    static int sessions = 1'000;
    kind = a_kind;
    keys = std::move(its_keys);
    outcome = Outcome::kDone;
    session = ++sessions;
  }
  Called At(int64_t from, int64_t to) && {
    called = from;
    returned = to;
    return std::move(*this);
  }
  /// The `place`-th request of a connection.
  Called By(int connection, int place) && {
    session = connection;
    order = place;
    return std::move(*this);
  }
  Called Saw(std::vector<std::string> words) && {
    saw = std::move(words);
    return std::move(*this);
  }
  Called With(std::vector<std::string> words) && {
    values = std::move(words);
    return std::move(*this);
  }
  Called EndedAs(Outcome an_outcome) && {
    outcome = an_outcome;
    return std::move(*this);
  }
  /// Called at `from`, with unknown outcome.
  Called Unknown(int64_t from) && {
    called = from;
    returned = kNever;
    outcome = Outcome::kUnknown;
    saw.clear();
    return std::move(*this);
  }
};

inline Called Set(std::string value) { return Called(Kind::kSet, {"k"}).With({std::move(value)}); }
inline Called Get(std::string saw) { return Called(Kind::kGet, {"k"}).Saw({std::move(saw)}); }
inline Called Read(std::string saw) { return Called(Kind::kRead, {"k"}).Saw({std::move(saw)}); }
inline Called Add(int64_t delta, int64_t saw) {
  Called add = Called(Kind::kAdd, {"k"}).Saw({std::to_string(saw)});
  add.delta = delta;
  return add;
}
inline Called CompareSet(std::string expected, std::string desired, std::string saw) {
  Called swap = Called(Kind::kCompareSet, {"k"}).With({std::move(desired)}).Saw({std::move(saw)});
  swap.expected = std::move(expected);
  return swap;
}
inline Called CheckSaw(bool there) { return Called(Kind::kCheck, {"k"}).Saw({there ? "1" : "0"}); }
inline Called Wait() { return Called(Kind::kWait, {"k"}); }
inline Called Delete(bool removed) {
  return Called(Kind::kDelete, {"k"}).Saw({removed ? "1" : "0"});
}
inline Called Append(std::string suffix) {
  return Called(Kind::kAppend, {"k"}).With({std::move(suffix)});
}
inline Called Push(std::string element) {
  return Called(Kind::kPush, {"k"}).With({std::move(element)});
}
inline Called Pop(std::string saw) { return Called(Kind::kPop, {"k"}).Saw({std::move(saw)}); }
inline Called TryPop(std::string saw) { return Called(Kind::kTryPop, {"k"}).Saw({std::move(saw)}); }
inline Called PopFoundNothing() { return Called(Kind::kTryPop, {"k"}).EndedAs(Outcome::kEmpty); }
inline Called QueueLen(size_t saw) {
  return Called(Kind::kQueueLen, {"k"}).Saw({std::to_string(saw)});
}

}  // namespace muster::test
