#include "histories/shrink.h"

#include <algorithm>
#include <set>
#include <vector>

#include "histories/checker.h"

namespace muster::test {

namespace {

bool IsViolation(const History& history) {
  // A search that is given up proves nothing; what it was to show irrelevant stays.
  constexpr size_t kPatience = 200'000;
  return Check(history, kPatience).kind == Verdict::Kind::kViolation;
}

/// What was known at `moment`. If that is a violation, it stays one, whatever came later.
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
    return !IsViolation(Until(history, moment));
  });
  return first == moments.end() ? history : Until(history, *first);
}

/// The operation as if nobody knew anything about it but that it was called.
Operation Weakened(Operation operation, int session) {
  operation.outcome = Outcome::kUnknown;
  operation.returned = kNever;
  operation.session = -1 - session;  // on a connection of its own: in no order with the others
  return operation;
}

/// A history of which some operations are taken at their word, and others are only known to have
/// been called; the rest is left out.
class Case {
 public:
  explicit Case(const History& history) : history_(&history) {
    for (size_t i = 0; i < history.size(); ++i) firm_.insert(i);
  }

  bool IsViolation() const {
    History history;
    for (const size_t i : firm_) history.push_back((*history_)[i]);
    for (const size_t i : weak_) history.push_back(Weakened((*history_)[i], static_cast<int>(i)));
    return test::IsViolation(history);
  }

  void Weaken(size_t i) {
    firm_.erase(i);
    weak_.insert(i);
  }
  void LeaveOut(size_t i) { weak_.erase(i); }

  /// Whether every firm operation is part of the contradiction.
  bool IsMinimal() const {
    return std::none_of(firm_.begin(), firm_.end(), [this](size_t i) {
      Case without = *this;
      without.Weaken(i);
      return without.IsViolation();
    });
  }

  /// Copies: both change while they are walked through.
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
};

}  // namespace

History Shrink(const History& whole) {
  const History history = ShortestPrefix(whole);
  Case least(history);
  for (const size_t i : least.firm()) {
    Case weaker = least;
    weaker.Weaken(i);
    if (weaker.IsViolation()) least = weaker;
  }
  for (const size_t i : least.weak()) {
    Case smaller = least;
    smaller.LeaveOut(i);
    if (smaller.IsMinimal()) least = smaller;
  }
  return least.Rest();
}

}  // namespace muster::test
