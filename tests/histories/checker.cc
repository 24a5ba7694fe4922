#include "histories/checker.h"

#include <algorithm>
#include <bitset>
#include <map>
#include <string>
#include <tuple>
#include <unordered_set>
#include <vector>

#include "base/assert.h"
#include "histories/model.h"

namespace muster::test {

namespace {

/// An operation, and until when the server may keep an element for whoever called it: until the
/// next request on its connection has been executed.
struct Placed {
  Operation operation;
  int64_t holds_until = kNever;
};
using Part = std::vector<Placed>;

constexpr size_t kOperationsMax = 256;
using Set = std::bitset<kOperationsMax>;

// ----------------------------------------------------------------------------------------------
// taking a history apart

Part Place(const History& history) {
  std::map<std::pair<int, int>, int64_t> returned;  // by session and order
  for (const Operation& operation : history) {
    returned[{operation.session, operation.order}] = operation.returned;
  }
  Part placed;
  for (const Operation& operation : history) {
    const auto next = returned.upper_bound({operation.session, operation.order});
    const bool followed = next != returned.end() && next->first.first == operation.session;
    placed.push_back({operation, followed ? next->second : kNever});
  }
  return placed;
}

bool TellsNothing(const Operation& operation) {
  if (operation.outcome == Outcome::kUnknown) return !Changes(operation.kind);
  // A multiGet asks for the values only when its wait is over: it can be late with all keys there.
  return operation.kind == Kind::kMultiGet && operation.outcome == Outcome::kTimedOut;
}

/// Without what tells nothing, and with waits for several keys as one wait for each: a key that has
/// been seen may go again while the others are waited for.
Part Simplified(const Part& placed) {
  Part simple;
  for (const Placed& each : placed) {
    const Operation& operation = each.operation;
    if (TellsNothing(operation)) continue;
    if (operation.kind != Kind::kWait || operation.outcome != Outcome::kDone) {
      simple.push_back(each);
      continue;
    }
    for (const std::string& key : operation.keys) {
      simple.push_back(each);
      simple.back().operation.keys = {key};
    }
  }
  return simple;
}

/// Groups of operations, so that no two groups have a key in common.
std::vector<Part> Parts(const Part& placed) {
  std::map<std::string, std::string> leader;
  const auto find = [&leader](std::string key) {
    while (leader.contains(key) && leader[key] != key) key = leader[key];
    return key;
  };
  for (const Placed& each : placed) {
    const std::vector<std::string>& keys = each.operation.keys;
    for (const std::string& key : keys) leader[find(key)] = find(keys.front());
  }
  std::map<std::string, Part> parts;
  for (const Placed& each : placed) {
    parts[find(each.operation.keys.front())].push_back(each);
  }
  std::vector<Part> list;
  for (auto& [key, part] : parts) list.push_back(std::move(part));
  return list;
}

// ----------------------------------------------------------------------------------------------
// the search

class Search {
 public:
  Search(Part part, size_t visits_max) : part_(std::move(part)), visits_max_(visits_max) {
    MUSTER_ASSERT(part_.size() <= kOperationsMax);
    // Who returned first most likely happened first; the unknown are tried last.
    std::sort(part_.begin(), part_.end(), [](const Placed& a, const Placed& b) {
      return std::tie(a.operation.returned, a.operation.called) <
             std::tie(b.operation.returned, b.operation.called);
    });
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
  }

  Verdict::Kind Run() {
    if (Continue({}, {})) return Verdict::Kind::kLinearizable;
    return visited() > visits_max_ ? Verdict::Kind::kUndecided : Verdict::Kind::kViolation;
  }

  size_t visited() const { return seen_.size(); }

 private:
  const Operation& At(size_t i) const { return part_[i].operation; }

  /// A pop without a known answer may have been executed and found nothing; what follows it need
  /// not wait for it.
  static bool MayFindNothing(const Operation& operation) {
    return operation.kind == Kind::kTryPop && operation.outcome == Outcome::kUnknown;
  }

  /// Whether the order of operation `i`'s session lets it happen now.
  bool IsItsTurn(size_t i, const Set& happened) const {
    return (earlier_[i] & ~happened).none() && (later_[i] & happened).none();
  }

  bool Continue(const Set& happened, const State& state) {
    if ((must_happen_ & ~happened).none()) return true;
    if (visited() > visits_max_) return false;
    // Sorted by their return: the first that has not happened is the first that must.
    size_t first = 0;
    while (happened[first]) ++first;
    const int64_t latest_call = At(first).returned;
    for (size_t i = first; i < part_.size(); ++i) {
      if (happened[i] || At(i).called > latest_call || !IsItsTurn(i, happened)) continue;
      State after = state;
      if (!Explains(after, At(i), HeldByOthers(i, happened))) continue;
      Set more = happened;
      more.set(i);
      if (seen_.insert(Encode(more, after)).second && Continue(more, after)) return true;
    }
    return false;
  }

  /// How many elements may be kept for other sessions when operation `i` happens.
  size_t HeldByOthers(size_t i, const Set& happened) const {
    const Operation& asks = At(i);
    size_t held = 0;
    for (size_t j = 0; j < part_.size(); ++j) {
      const Operation& other = At(j);
      if (!Blocks(other.kind) || other.session == asks.session) continue;
      if (other.called > asks.returned || part_[j].holds_until < asks.called) continue;
      // A get or pop that has happened has given up, or taken, what was kept for it. A wait that
      // has ended is followed by another request; until then something may be kept.
      if (happened[j] && other.outcome == Outcome::kDone && other.kind != Kind::kWait) continue;
      held += std::find_first_of(asks.keys.begin(), asks.keys.end(), other.keys.begin(),
                                 other.keys.end()) != asks.keys.end();
    }
    return held;
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
  const size_t visits_max_;
  Set must_happen_;
  std::vector<Set> earlier_;  // by operation: what its session must have done before,
  std::vector<Set> later_;    // and what must not have happened yet
  std::unordered_set<std::string> seen_;
};

}  // namespace

Verdict Check(const History& history, size_t visits_max) {
  Verdict verdict;
  for (const Part& part : Parts(Simplified(Place(history)))) {
    Search search(part, visits_max);
    const Verdict::Kind kind = search.Run();
    verdict.visited += search.visited();
    if (kind == Verdict::Kind::kLinearizable) continue;
    verdict.kind = kind;
    for (const Placed& each : part) verdict.guilty.push_back(each.operation);
    return verdict;
  }
  return verdict;
}

}  // namespace muster::test
