#include "histories/shrink.h"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "histories/checker.h"

namespace muster::test {

namespace {

/// The operations on keys that could not be explained. The others do not matter.
History Concerned(const History& history) {
  std::set<std::string> keys;
  for (const Operation& operation : Check(history).guilty) {
    keys.insert(operation.keys.begin(), operation.keys.end());
  }
  History concerned;
  for (const Operation& operation : history) {
    if (keys.contains(operation.keys.front())) concerned.push_back(operation);
  }
  return concerned;
}

/// What was known at `moment`. If that is a violation, it stays one.
History Until(const History& history, int64_t moment) {
  History known;
  for (const Operation& operation : history) {
    if (operation.called > moment) continue;
    known.push_back(operation);
    if (operation.returned <= moment) continue;
    known.back().outcome = Outcome::kUnknown;
    known.back().returned = kNever;
  }
  return known;
}

History ShortestPrefix(const History& history) {
  std::vector<int64_t> moments;
  for (const Operation& operation : history) moments.push_back(operation.returned);
  std::sort(moments.begin(), moments.end());
  const auto first = std::partition_point(moments.begin(), moments.end(), [&](int64_t moment) {
    return Check(Until(history, moment), kVisitsMax / 5).kind != Verdict::Kind::kViolation;
  });
  return first == moments.end() ? history : Until(history, *first);
}

/// The operation, as if only its call and its order within its session were known.
Operation Weakened(Operation operation) {
  operation.outcome = Outcome::kUnknown;
  operation.returned = kNever;
  return operation;
}

/// A history in which some operations are firm, and of others only the call is known; the rest is
/// left out.
class Case {
 public:
  explicit Case(const History& history) : history_(&history) {
    for (size_t i = 0; i < history.size(); ++i) firm_.insert(i);
  }

  /// A search that reached its limit proves nothing: the operation stays.
  Verdict::Kind Judge() const {
    History history;
    for (const size_t i : firm_) history.push_back((*history_)[i]);
    for (const size_t i : weak_) {
      history.push_back(Weakened((*history_)[i]));
      if (loose_) history.back().session = -1 - static_cast<int>(i);
    }
    return Check(history, kVisitsMax / 250).kind;
  }

  void Weaken(size_t i) {
    firm_.erase(i);
    weak_.insert(i);
  }
  void LeaveOut(size_t i) { weak_.erase(i); }
  /// Weak operations lose their order within their session. The search becomes larger, but each of
  /// them can be left out separately.
  void Loosen() { loose_ = true; }

  bool IsViolation() const { return Judge() == Verdict::Kind::kViolation; }

  /// Operation `i` is firm, and all others may happen at any time.
  Case Alone(size_t i) const {
    Case alone = *this;
    for (const size_t other : firm_) {
      if (other != i) alone.Weaken(other);
    }
    alone.Loosen();
    return alone;
  }

  /// Whether every firm operation is part of the contradiction, and none is one by itself.
  bool IsMinimal() const {
    return std::all_of(firm_.begin(), firm_.end(), [this](size_t i) {
      Case without = *this;
      without.Weaken(i);
      return without.Judge() == Verdict::Kind::kLinearizable &&
             Alone(i).Judge() == Verdict::Kind::kLinearizable;
    });
  }

  /// Returns copies: both change while they are iterated.
  std::set<size_t> firm() const { return firm_; }
  std::set<size_t> weak() const { return weak_; }

  History Rest() const {
    History rest;
    for (size_t i = 0; i < history_->size(); ++i) {
      if (firm_.contains(i) || weak_.contains(i)) rest.push_back((*history_)[i]);
    }
    return rest;
  }

 private:
  const History* history_;
  std::set<size_t> firm_;
  std::set<size_t> weak_;
  bool loose_ = false;
};

}  // namespace

History Shrink(const History& whole) {
  const History history = ShortestPrefix(Concerned(whole));
  Case least(history);
  const auto accept = [&least](const Case& smaller) {
    if (!smaller.IsViolation()) return false;
    least = smaller;
    return true;
  };
  for (bool changed = true; changed;) {
    changed = false;
    for (const size_t i : least.firm()) {
      Case weaker = least;
      weaker.Weaken(i);
      if (!Changes(history[i].kind)) weaker.LeaveOut(i);
      changed = accept(weaker) || changed;
    }
  }
  for (const size_t i : least.firm()) {
    if (least.Alone(i).IsViolation()) return {history[i]};  // as a value never written
  }
  Case loose = least;
  loose.Loosen();
  accept(loose);
  for (const size_t i : least.weak()) {
    Case smaller = least;
    smaller.LeaveOut(i);
    if (smaller.IsMinimal()) accept(smaller);
  }
  return least.Rest();
}

}  // namespace muster::test
