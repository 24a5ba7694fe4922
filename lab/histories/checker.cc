#include "histories/checker.h"

#include <algorithm>
#include <bitset>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_set>
#include <vector>

#include "base/assert.h"
#include "histories/model.h"

namespace muster::test {

namespace {

using Part = History;

constexpr size_t kOperationsMax = 256;
using Set = std::bitset<kOperationsMax>;

// ----------------------------------------------------------------------------------------------
// for which clients an element may be reserved

/// A call that waits, or has waited. Meanwhile the server may reserve an element for it.
struct Holder {
  Operation operation;
  int64_t until = kNever;
};

/// The server reserves an element until the next request of that connection has been executed.
std::vector<Holder> Holders(const History& history) {
  std::map<std::pair<int, int>, int64_t> returned;  // by session and order
  for (const Operation& operation : history) {
    returned[{operation.session, operation.order}] = operation.returned;
  }
  std::vector<Holder> holders;
  for (const Operation& operation : history) {
    if (!Blocks(operation.kind)) continue;
    const auto next = returned.upper_bound({operation.session, operation.order});
    const bool followed = next != returned.end() && next->first.first == operation.session;
    // A wait has ended, and the next request is still to come. Other calls end with a request of
    // their own.
    const bool asked_again = operation.outcome == Outcome::kDone && operation.kind != Kind::kWait;
    const int64_t after = followed ? next->second : kNever;
    holders.push_back({operation, asked_again ? operation.returned : after});
  }
  return holders;
}

// ----------------------------------------------------------------------------------------------
// splitting a history

bool IsQueue(const History& history, const std::string& key) {
  return std::any_of(history.begin(), history.end(), [&](const Operation& operation) {
    return operation.kind == Kind::kPush && operation.keys.front() == key;
  });
}

bool TellsNothing(const Operation& operation, const History& history) {
  if (operation.outcome == Outcome::kUnknown) return !Changes(operation.kind);
  if (operation.outcome != Outcome::kTimedOut) return false;
  // A multiGet requests the values only when its wait is over: it can be late although all keys are
  // there. The same holds for a get that found neither a value nor, one request later, elements.
  return operation.kind == Kind::kMultiGet ||
         (operation.kind == Kind::kGet && IsQueue(history, operation.keys.front()));
}

constexpr int kStepsMax = 2;

/// Without operations that show nothing; operations of several steps are split up.
History Simplified(const History& history) {
  History simple;
  const auto add = [&simple](const Operation& whole, int step) -> Operation& {
    simple.push_back(whole);
    simple.back().order = kStepsMax * whole.order + step;
    return simple.back();
  };
  for (const Operation& operation : history) {
    if (TellsNothing(operation, history)) continue;
    const bool done = operation.outcome == Outcome::kDone;
    const auto& saw = operation.saw;
    const bool empty = done && std::find(saw.begin(), saw.end(), "") != saw.end();
    if (done && operation.kind == Kind::kWait) {
      // A key that has been seen may be deleted again while the call waits for the others.
      for (const std::string& key : operation.keys) add(operation, 0).keys = {key};
    } else if (empty && operation.kind == Kind::kGet && IsQueue(history, operation.keys.front())) {
      // Two requests show that there is no value, and that there are elements.
      add(operation, 0).kind = Kind::kRead;
      Operation& check = add(operation, 1);
      check.kind = Kind::kCheck;
      check.saw = {"1"};
    } else if (empty && operation.kind == Kind::kMultiGet) {
      // On the wire, "gone" and "empty" look the same: each key that was read as empty is checked
      // once more, and must be there then.
      add(operation, 0).kind = Kind::kRead;
      for (size_t i = 0; i < saw.size(); ++i) {
        if (!saw[i].empty()) continue;
        Operation& again = add(operation, 1);
        again.kind = IsQueue(history, operation.keys[i]) ? Kind::kCheck : Kind::kGet;
        again.keys = {operation.keys[i]};
        again.saw = {again.kind == Kind::kCheck ? "1" : ""};
      }
    } else {
      add(operation, 0);
    }
  }
  return simple;
}

/// Groups of operations; no two groups have a key in common.
std::vector<Part> Parts(const History& history) {
  std::map<std::string, std::string> leader;
  const auto find = [&leader](std::string key) {
    while (leader.contains(key) && leader[key] != key) key = leader[key];
    return key;
  };
  for (const Operation& operation : history) {
    for (const std::string& key : operation.keys) {
      leader[find(key)] = find(operation.keys.front());
    }
  }
  std::map<std::string, Part> parts;
  for (const Operation& operation : history) {
    parts[find(operation.keys.front())].push_back(operation);
  }
  std::vector<Part> list;
  for (auto& [key, part] : parts) list.push_back(std::move(part));
  return list;
}

// ----------------------------------------------------------------------------------------------
// the search

class Search {
 public:
  /// What is tried first. By return: the operation that returned first most likely happened first,
  /// and operations with unknown outcome are tried last, because they may not have happened. By
  /// call: an operation is tried where it most likely happened.
  enum class First { kReturned, kCalled };

  Search(Part part, const std::vector<Holder>& holders, size_t visits_max, First first)
      : part_(std::move(part)), holders_(holders), visits_max_(visits_max) {
    MUSTER_ASSERT(part_.size() <= kOperationsMax);
    std::sort(part_.begin(), part_.end(), [](const Operation& a, const Operation& b) {
      return std::tie(a.returned, a.called) < std::tie(b.returned, b.called);
    });
    for (size_t i = 0; i < part_.size(); ++i) tried_.push_back(i);
    if (first == First::kCalled) {
      std::sort(tried_.begin(), tried_.end(),
                [this](size_t a, size_t b) { return At(a).called < At(b).called; });
    }
    for (size_t i = 0; i < part_.size(); ++i) {
      if (At(i).outcome != Outcome::kUnknown) must_happen_.set(i);
      earlier_.emplace_back();
      later_.emplace_back();
      for (size_t j = 0; j < part_.size(); ++j) {
        if (At(j).session != At(i).session) continue;
        if (At(j).order < At(i).order && !MayFindNothing(At(j))) earlier_[i].set(j);
        if (At(j).order > At(i).order) later_[i].set(j);
      }
    }
    OrderPushes();
  }

  Verdict::Kind Run() {
    if (Continue({}, {})) return Verdict::Kind::kLinearizable;
    return visited() > visits_max_ ? Verdict::Kind::kUndecided : Verdict::Kind::kViolation;
  }

  size_t visited() const { return seen_.size(); }

 private:
  const Operation& At(size_t i) const { return part_[i]; }

  /// A pop without a known answer may have been executed and found nothing; later operations need
  /// not wait for it.
  static bool MayFindNothing(const Operation& operation) {
    return operation.kind == Kind::kTryPop && operation.outcome == Outcome::kUnknown;
  }

  /// Whether the order of operation `i`'s session allows it now.
  bool IsItsTurn(size_t i, const Set& happened) const {
    return (earlier_[i] & ~happened).none() && (later_[i] & happened).none();
  }

  /// First in, first out: the element that was popped first was pushed first. The search would find
  /// that, too, but only after it has tried every order of the pushes. Elements that were pushed
  /// twice prove nothing.
  void OrderPushes() {
    std::map<std::pair<std::string, std::string>, std::vector<size_t>> pushes;  // by key, element
    std::map<size_t, size_t> popped_by;                                         // by push
    for (size_t i = 0; i < part_.size(); ++i) {
      if (At(i).kind == Kind::kPush) pushes[{At(i).keys[0], At(i).values[0]}].push_back(i);
    }
    for (size_t i = 0; i < part_.size(); ++i) {
      const bool pops = At(i).kind == Kind::kPop || At(i).kind == Kind::kTryPop;
      if (!pops || At(i).outcome != Outcome::kDone) continue;
      const auto push = pushes.find({At(i).keys[0], At(i).saw[0]});
      if (push != pushes.end() && push->second.size() == 1) popped_by[push->second[0]] = i;
    }
    for (const auto& [first, its_pop] : popped_by) {
      for (const auto& [second, other_pop] : popped_by) {
        const bool in_order =
            At(its_pop).returned < At(other_pop).called || earlier_[other_pop].test(its_pop);
        if (in_order && At(first).keys == At(second).keys) earlier_[second].set(first);
      }
    }
  }

  bool Continue(const Set& happened, const State& state) {
    if ((must_happen_ & ~happened).none()) return true;
    if (visited() > visits_max_) return false;
    // Sorted by return: the first that has not happened is the first that must happen.
    size_t first = 0;
    while (happened[first]) ++first;
    const int64_t latest_call = At(first).returned;
    for (const size_t i : tried_) {
      if (happened[i] || At(i).called > latest_call || !IsItsTurn(i, happened)) continue;
      State after = state;
      if (!Explains(after, At(i), HeldByOthers(i, happened))) continue;
      Set more = happened;
      more.set(i);
      if (At(i).kind == Kind::kPush && IsStuck(At(i).keys, more, after)) continue;
      if (seen_.insert(Encode(more, after)).second && Continue(more, after)) return true;
    }
    return false;
  }

  /// Whether an element that no known pop returns lies before one that some pop returns, with too
  /// few unknown pops left to remove it. Checking this early spares the search everything that
  /// could still happen before that pop.
  bool IsStuck(const std::vector<std::string>& keys, const Set& happened,
               const State& state) const {
    std::multiset<std::string_view> wanted;
    size_t unknown_pops = 0;
    for (size_t i = 0; i < part_.size(); ++i) {
      const bool pops = At(i).kind == Kind::kPop || At(i).kind == Kind::kTryPop;
      if (!pops || happened[i] || At(i).keys != keys) continue;
      if (At(i).outcome == Outcome::kDone) wanted.insert(At(i).saw[0]);
      unknown_pops += At(i).outcome == Outcome::kUnknown;
    }
    for (const std::string& element : state.at(keys[0]).queue) {
      if (const auto found = wanted.find(element); found != wanted.end()) {
        wanted.erase(found);
      } else if (unknown_pops-- == 0) {
        return !wanted.empty();
      }
    }
    return false;
  }

  /// How many elements may be reserved for other sessions when operation `i` happens.
  size_t HeldByOthers(size_t i, const Set& happened) const {
    const Operation& asks = At(i);
    if (asks.outcome != Outcome::kEmpty && asks.outcome != Outcome::kTimedOut) return 0;
    size_t held = 0;
    for (const Holder& holder : holders_) {
      const Operation& other = holder.operation;
      if (other.session == asks.session || other.called > asks.returned ||
          holder.until < asks.called) {
        continue;
      }
      const bool same_key =
          std::find_first_of(asks.keys.begin(), asks.keys.end(), other.keys.begin(),
                             other.keys.end()) != asks.keys.end();
      held += same_key && !HasTaken(other, happened);
    }
    return held;
  }

  /// Whether a pop has its element already.
  bool HasTaken(const Operation& pop, const Set& happened) const {
    if (pop.kind != Kind::kPop || pop.outcome != Outcome::kDone) return false;
    for (size_t i = 0; i < part_.size(); ++i) {
      if (At(i).session == pop.session && At(i).order == kStepsMax * pop.order) return happened[i];
    }
    return false;
  }

  static void Append(std::string& out, const std::string& bytes) {
    out += std::to_string(bytes.size());
    out += ':';
    out += bytes;
  }

  std::string Encode(const Set& happened, const State& state) const {
    std::string code((part_.size() + 7) / 8, '\0');
    for (size_t i = 0; i < part_.size(); ++i) {
      if (happened[i]) code[i / 8] = static_cast<char>(code[i / 8] | 1 << i % 8);
    }
    for (const auto& [key, entry] : state) {
      Append(code, key);
      code += entry.value ? 'v' : '-';
      Append(code, entry.value.value_or(""));
      for (const std::string& element : entry.queue) Append(code, element);
      code += ';';
    }
    return code;
  }

  Part part_;
  const std::vector<Holder>& holders_;
  const size_t visits_max_;
  std::vector<size_t> tried_;  // all of them, in the order in which they are tried
  Set must_happen_;
  std::vector<Set> earlier_;  // by operation: what its session must have done before,
  std::vector<Set> later_;    // and what must not have happened yet
  std::unordered_set<std::string> seen_;
};

}  // namespace

Verdict Check(const History& history, size_t visits_max) {
  Verdict verdict;
  const std::vector<Holder> holders = Holders(history);
  for (const Part& part : Parts(Simplified(history))) {
    Verdict::Kind kind = Verdict::Kind::kUndecided;
    for (const Search::First first : {Search::First::kReturned, Search::First::kCalled}) {
      if (kind != Verdict::Kind::kUndecided) break;
      Search search(part, holders, visits_max, first);
      kind = search.Run();
      verdict.visited += search.visited();
    }
    if (kind == Verdict::Kind::kLinearizable) continue;
    verdict.kind = kind;
    verdict.guilty = part;
    return verdict;
  }
  return verdict;
}

}  // namespace muster::test
