#include "histories/model.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>

namespace muster::test {

namespace {

/// The answer of a store.
struct Answer {
  enum class Kind { kDone, kBlocked, kRefused };
  Kind kind = Kind::kDone;
  std::vector<std::string> saw{};
};

const Answer kNothing{};
const Answer kBlocked{.kind = Answer::Kind::kBlocked};
const Answer kRefused{.kind = Answer::Kind::kRefused};

Answer Of(std::string word) { return {.saw = {std::move(word)}}; }
Answer Yes(bool yes) { return Of(yes ? "1" : "0"); }

/// A value is a counter if C's strtoll finds a number at its beginning; the rest is ignored.
std::optional<int64_t> Counter(const std::optional<std::string>& value) {
  if (!value) return 0;
  char* end = nullptr;
  errno = 0;
  const int64_t number = std::strtoll(value->c_str(), &end, 10);
  if (end == value->c_str() || errno == ERANGE) return std::nullopt;
  return number;
}

Answer Add(Entry& entry, int64_t delta) {
  const std::optional<int64_t> before = Counter(entry.value);
  if (!before) return kRefused;
  const uint64_t sum = static_cast<uint64_t>(*before) + static_cast<uint64_t>(delta);  // wraps
  entry.value = std::to_string(static_cast<int64_t>(sum));
  return Of(*entry.value);
}

Answer CompareSet(Entry& entry, const std::string& expected, const std::string& desired) {
  // An absent key equals an empty expectation; any other expectation is returned.
  if (!entry.value && !expected.empty()) return Of(expected);
  if (entry.value.value_or("") == expected) entry.value = desired;
  return Of(*entry.value);
}

Answer Pop(Entry& entry) {
  if (entry.queue.empty()) return kBlocked;
  std::string oldest = entry.queue.front();
  entry.queue.erase(entry.queue.begin());
  return Of(std::move(oldest));
}

bool IsThere(const Entry& entry, size_t held = 0) {
  return entry.value || entry.queue.size() > held;
}

bool AllThere(State& state, const std::vector<std::string>& keys, size_t held = 0) {
  return std::all_of(keys.begin(), keys.end(),
                     [&](const std::string& key) { return IsThere(state[key], held); });
}

Answer Values(State& state, const std::vector<std::string>& keys) {
  Answer answer;
  for (const std::string& key : keys) answer.saw.push_back(state[key].value.value_or(""));
  return answer;
}

Answer Execute(State& state, const Operation& operation) {
  Entry& entry = state[operation.keys.front()];
  switch (operation.kind) {
    case Kind::kSet:
    case Kind::kMultiSet:
      for (size_t i = 0; i < operation.keys.size(); ++i) {
        state[operation.keys[i]].value = operation.values[i];
      }
      return kNothing;
    case Kind::kGet:
    case Kind::kMultiGet:
      return AllThere(state, operation.keys) ? Values(state, operation.keys) : kBlocked;
    case Kind::kRead:
      return Values(state, operation.keys);
    case Kind::kAdd:
      return Add(entry, operation.delta);
    case Kind::kCompareSet:
      return CompareSet(entry, operation.expected, operation.values.front());
    case Kind::kCheck:
      return Yes(AllThere(state, operation.keys));
    case Kind::kWait:
      return AllThere(state, operation.keys) ? kNothing : kBlocked;
    case Kind::kDelete: {
      const bool was_there = entry.value.has_value();
      entry.value.reset();
      return Yes(was_there);
    }
    case Kind::kAppend:
      entry.value = entry.value.value_or("") + operation.values.front();
      return kNothing;
    case Kind::kPush:
      entry.queue.push_back(operation.values.front());
      return kNothing;
    case Kind::kPop:
    case Kind::kTryPop:
      return Pop(entry);
    case Kind::kQueueLen:
      return Of(std::to_string(entry.queue.size()));
  }
  return kRefused;
}

/// Whether the operation must wait. The first request that its call sends decides.
bool MustWait(State& state, const Operation& operation, size_t held) {
  switch (operation.kind) {
    case Kind::kGet:  // It sends CHECK first, which also counts reserved elements.
      return !AllThere(state, operation.keys);
    case Kind::kPop:
      return state[operation.keys.front()].queue.size() <= held;
    default:
      return !AllThere(state, operation.keys, held);
  }
}

}  // namespace

bool Explains(State& state, const Operation& operation, size_t held) {
  switch (operation.outcome) {
    case Outcome::kTimedOut:
      return MustWait(state, operation, held);
    case Outcome::kEmpty:
      return state[operation.keys.front()].queue.size() <= held;
    case Outcome::kRefused:
      return Execute(state, operation).kind == Answer::Kind::kRefused;
    case Outcome::kUnknown:  // The answer is unknown; an operation that changes nothing may as well
                             // never have happened.
      return Execute(state, operation).kind == Answer::Kind::kDone;
    case Outcome::kDone: {
      const Answer answer = Execute(state, operation);
      return answer.kind == Answer::Kind::kDone && answer.saw == operation.saw;
    }
  }
  return false;
}

}  // namespace muster::test
