// For tests only: a naive twin of the store machine; both play one story. The twin is simple; the
// machine's lists, counts and iterators are under test.
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <deque>
#include <map>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "base/text.h"
#include "store/core/machine.h"
#include "support/machine_test_words.h"

namespace muster::testing_words {

using Strings = std::vector<std::string>;

/// All clients and keys of a story: few, so that they meet.
constexpr ClientId kClients[] = {kA, kB, kC, kD, ClientId{'e'}};
constexpr std::string_view kKeys[] = {
    "k", "l", "q", "", "/muster.run/g/0/k", "/muster.run/g/0/l", "/muster.run/g/1/k"};
constexpr std::string_view kScopes[] = {"/muster.run/g/0/", "/muster.run/g/1/", "/muster.run/g/2/"};

/// One event of a store: a request of a client, its disconnection, passing time, or a scope's
/// (`key`) opening or dropping (in pieces of `number` keys, at least one).
struct Event {
  enum class Kind { kAsk, kDrop, kPass, kOpenScope, kDropScope };
  Kind kind = Kind::kAsk;
  ClientId client = kA;
  Op op = Op::kPing;
  std::string key, expected, value;
  int64_t number = 0;
  Strings keys, values;
  Duration time{};
};

inline size_t PieceOf(const Event& event) {
  return event.number > 0 ? static_cast<size_t>(event.number) : 1;
}

inline Keys Views(const Strings& strings) { return Keys(strings.begin(), strings.end()); }

inline std::ostream& operator<<(std::ostream& out, const Event& event) {
  if (event.kind == Event::Kind::kPass) return out << "pass " << event.time / 1ms << " ms";
  if (event.kind == Event::Kind::kOpenScope) return out << "open scope " << event.key;
  if (event.kind == Event::Kind::kDropScope) return out << "drop scope " << event.key;
  out << static_cast<char>(event.client);
  if (event.kind == Event::Kind::kDrop) return out << " leaves";
  out << ' ' << Name(event.op) << " key=" << event.key << " expected=" << event.expected
      << " value=" << event.value << " number=" << event.number << " keys=";
  for (const std::string& key : event.keys) out << key << ' ';
  return out;
}

// --- The naive twin

class NaiveStore {
 public:
  explicit NaiveStore(const StoreMachineOptions& options) : options_(options) {}

  /// The same text as that of SpokenStore for the machine.
  std::string Happen(const Event& event) {
    released_.clear();
    std::string reply = "-";
    if (event.kind == Event::Kind::kPass) {
      now_ = now_ + event.time;
      while (!kept_.empty() && kept_.front().until <= now_) GiveUp(kept_.front().client);
      const std::map<std::string, Scope> before = scopes_;
      for (const auto& [name, scope] : before) {
        if (!scope.open && scope.ends <= now_) DropScope(name);
      }
    } else if (event.kind == Event::Kind::kOpenScope) {
      scopes_[event.key].open = true;
    } else if (event.kind == Event::Kind::kDropScope) {
      const size_t members = std::max<size_t>(1, MembersOf(event.key).size());
      reply = Concat((members - 1) / PieceOf(event) + 1);
      DropScope(event.key);
    } else if (event.kind == Event::Kind::kDrop) {
      Leave(event.client);
      GiveUp(event.client);
    } else {
      if (event.op != Op::kQueuePop || KeptFor(event.client) != event.key) GiveUp(event.client);
      reply = Answer(event);
    }
    ForgetEmptyStrays();
    return reply + Names(released_);
  }

  StoreMachineStats Stats() const {
    StoreMachineStats stats{
        .keys = entries_.size(), .parked_clients = parked_.size(), .scopes = scopes_.size()};
    for (const auto& [key, elements] : queues_) stats.queues += elements.empty() ? 0 : 1;
    for (const Parked& parked : parked_) stats.waited_keys += parked.missing.size();
    return stats;
  }

 private:
  struct Parked {
    ClientId client;
    Strings missing;      // of a WAIT
    std::string barrier;  // of a BARRIER, which has nothing missing
  };
  struct Scope {
    bool open = false;
    Instant ends{};
  };
  struct Kept {
    ClientId client;
    std::string key;
    Instant until;
  };

  std::string Answer(const Event& e) {
    const bool there = entries_.contains(e.key);
    switch (e.op) {
      case Op::kSet:
        return Put(e.key, e.value), "-";
      case Op::kCompareSet:
        if (!there && !e.expected.empty()) return Given(e.expected);
        if (there && entries_[e.key] != e.expected) return Given(entries_[e.key]);
        if (Given(e.value) == kTooMuch) return kTooMuch;
        return Put(e.key, e.value), Quoted(e.value);
      case Op::kGet:
        return Given(there ? entries_[e.key] : "");
      case Op::kAdd:
        return Count(e.key, e.number);
      case Op::kCheck: {
        const auto missing = [&](const std::string& k) {
          return !entries_.contains(k) && queues_[k].empty();
        };
        return std::any_of(e.keys.begin(), e.keys.end(), missing) ? "not ready" : "ready";
      }
      case Op::kWait:
        return Wait(e);
      case Op::kCancelWait:
        return Leave(e.client), "cancelled";
      case Op::kGetNumKeys:
        return Concat(entries_.size());
      case Op::kDeleteKey:
        return Concat(entries_.erase(e.key));
      case Op::kAppend:
        if (there && entries_[e.key].size() + e.value.size() > options_.reply_bytes_max)
          return kTooMuch;
        return Put(e.key, entries_.contains(e.key) ? entries_[e.key] + e.value : e.value), "-";
      case Op::kMultiGet: {
        Strings values;
        for (const std::string& key : e.keys)
          values.push_back(entries_.contains(key) ? entries_[key] : "");
        return List(values);
      }
      case Op::kMultiSet:
        for (size_t i = 0; i < e.keys.size(); ++i) Put(e.keys[i], e.values[i]);
        return "-";
      case Op::kQueuePush:
        queues_[e.key].push_back(e.value);
        JoinScope(e.key);
        return Offer(e.key), "-";
      case Op::kQueuePop:
        return Pop(e);
      case Op::kQueueLen:
        return Concat(queues_[e.key].size());
      case Op::kListKeys: {
        Strings keys;
        for (const auto& [key, value] : entries_) keys.push_back(key);
        return List(keys);
      }
      case Op::kBarrier:
        return Barrier(e);
      case Op::kPing:
        return Concat(e.number);
      case Op::kValidate:
        break;
    }
    return kMisplaced;
  }

  std::string Wait(const Event& e) {
    if (IsParked(e.client)) return kAlreadyParked;
    Strings missing, queues;
    for (const std::string& key : e.keys) {
      if (!entries_.contains(key)) (Free(key) > 0 ? queues : missing).push_back(key);
    }
    const size_t named = missing.size();
    std::sort(missing.begin(), missing.end());
    missing.erase(std::unique(missing.begin(), missing.end()), missing.end());
    if (missing.empty() && !queues.empty()) Keep(e.client, queues.front());
    if (missing.empty()) return "go";
    if (Stats().waited_keys + named > options_.waited_keys_max) return kTooMuch;
    parked_.push_back({e.client, missing, ""});
    return "-";
  }

  std::string Pop(const Event& e) {
    std::erase_if(kept_, [&](const Kept& kept) { return kept.client == e.client; });
    if (Free(e.key) == 0) return "0";
    std::deque<std::string>& elements = queues_[e.key];
    const std::string out = Concat(elements.size(), ' ', Quoted(elements.front()));
    elements.pop_front();
    return out;
  }

  std::string Barrier(const Event& e) {
    if (IsParked(e.client)) return kAlreadyParked;
    const std::string count = Count(e.key, 1);
    if (count.starts_with("refused")) return count;
    if (std::stoll(count) < e.number) return parked_.push_back({e.client, {}, "at " + e.key}), "-";
    Release([&](const Parked& parked) { return parked.barrier == "at " + e.key; });
    return "go";
  }

  std::string Count(const std::string& key, int64_t delta) {
    const std::string text = entries_.contains(key) ? entries_[key] : "0";
    char* end = nullptr;
    errno = 0;
    const long long value = std::strtoll(text.c_str(), &end, 10);
    if (errno == ERANGE) return kOutOfRange;
    if (end == text.c_str() && !(text.empty() && options_.empty_counts_as_zero)) return kNotANumber;
    int64_t sum = 0;
    static_cast<void>(__builtin_add_overflow(value, delta, &sum));  // wraps
    Put(key, Concat(sum));
    return Concat(sum);
  }

  void JoinScope(const std::string& key) {
    const std::string name(ScopeOf(key));
    if (!name.empty()) scopes_.try_emplace(name, Scope{false, now_ + options_.stray_scope_kept});
  }

  Strings MembersOf(const std::string& scope) const {
    Strings members;
    for (const auto& [key, value] : entries_) {
      if (ScopeOf(key) == scope) members.push_back(key);
    }
    for (const auto& [key, elements] : queues_) {
      if (ScopeOf(key) == scope && !elements.empty()) members.push_back(key);
    }
    return members;
  }

  void DropScope(const std::string& scope) {
    for (const std::string& key : MembersOf(scope)) {
      entries_.erase(key);
      queues_.erase(key);
      std::erase_if(kept_, [&](const Kept& kept) { return kept.key == key; });
    }
    scopes_.erase(scope);
  }

  void ForgetEmptyStrays() {
    std::erase_if(scopes_, [&](const auto& scope) {
      return !scope.second.open && MembersOf(scope.first).empty();
    });
  }

  void Put(const std::string& key, const std::string& value) {
    if (!entries_.insert_or_assign(key, value).second) return;
    JoinScope(key);
    for (Parked& parked : parked_) std::erase(parked.missing, key);
    Release([](const Parked& parked) { return parked.missing.empty() && parked.barrier.empty(); });
  }

  /// A free element goes to the first waiter that then has nothing missing; for earlier waiters the
  /// key becomes missing again.
  void Offer(const std::string& key) {
    const auto takes = [&](Parked& p) {
      return std::erase(p.missing, key) > 0 && p.missing.empty();
    };
    while (Free(key) > 0) {
      const auto taker = std::find_if(parked_.begin(), parked_.end(), takes);
      if (taker == parked_.end()) return;
      Keep(taker->client, key);
      released_.push_back(taker->client);
      parked_.erase(taker);
    }
  }

  void GiveUp(ClientId client) {
    const std::string key = KeptFor(client);
    if (std::erase_if(kept_, [&](const Kept& kept) { return kept.client == client; }) > 0)
      Offer(key);
  }

  std::string KeptFor(ClientId client) const {
    for (const Kept& kept : kept_) {
      if (kept.client == client) return kept.key;
    }
    return "none";
  }

  template <typename Which>
  void Release(Which which) {
    for (const Parked& parked : parked_) {
      if (which(parked)) released_.push_back(parked.client);
    }
    std::erase_if(parked_, which);
  }

  std::string List(const Strings& strings) const {
    size_t bytes = 0;
    for (const std::string& string : strings) bytes += string.size();
    const std::vector<ValueView> views(strings.begin(), strings.end());
    return bytes > options_.reply_bytes_max
               ? kTooMuch
               : Words({.kind = Reply::Kind::kValues, .values = views});
  }

  int64_t Free(const std::string& key) {
    const auto kept =
        std::count_if(kept_.begin(), kept_.end(), [&](const Kept& k) { return k.key == key; });
    return static_cast<int64_t>(queues_[key].size()) - kept;
  }

  bool IsParked(ClientId client) const {
    return std::any_of(parked_.begin(), parked_.end(),
                       [&](const Parked& p) { return p.client == client; });
  }

  void Keep(ClientId client, const std::string& key) {
    kept_.push_back({client, key, now_ + options_.reservation_max});
  }
  void Leave(ClientId client) {
    std::erase_if(parked_, [&](const Parked& parked) { return parked.client == client; });
  }
  std::string Given(const std::string& value) const {
    return value.size() > options_.reply_bytes_max ? kTooMuch : Quoted(value);
  }
  static std::string Quoted(const std::string& value) { return "'" + value + "'"; }

  const StoreMachineOptions options_;
  Instant now_{1h};
  std::map<std::string, std::string> entries_;
  std::map<std::string, std::deque<std::string>> queues_;
  std::map<std::string, Scope> scopes_;
  std::vector<Parked> parked_;  // oldest first
  std::vector<Kept> kept_;      // oldest first
  Released released_;
};

inline std::string Happen(SpokenStore& store, const Event& event) {
  if (event.kind == Event::Kind::kPass) return store.Pass(event.time);
  if (event.kind == Event::Kind::kDrop) return store.Drop(event.client);
  if (event.kind == Event::Kind::kOpenScope) return store.OpenScope(event.key), "-";
  if (event.kind == Event::Kind::kDropScope) return store.DropScope(event.key, PieceOf(event));
  const Keys keys = Views(event.keys), values = Views(event.values);
  return store.Ask(event.client, {.op = event.op,
                                  .key = event.key,
                                  .expected = event.expected,
                                  .value = event.value,
                                  .number = event.number,
                                  .keys = keys,
                                  .values = values});
}

// --- One story, both

/// The story up to its event `last`, for people.
inline std::string Told(const std::vector<Event>& story, size_t last) {
  std::ostringstream out;
  for (size_t i = 0; i <= last; ++i) out << "  " << story[i] << '\n';
  return out.str();
}

/// With all clients gone no wait is left and no element is reserved: a new client can pop every
/// queue to its end. Returns what is left nevertheless; empty: nothing.
inline std::string LeftBehind(SpokenStore& store) {
  for (const ClientId client : kClients) store.Drop(client);
  if (store.Stats().parked_clients != 0) return "a client is still parked";
  if (store.Stats().waited_keys != 0) return "keys are still waited for";
  if (store.Pass(24h) != "-") return "a client is released after it has left";
  for (const std::string_view key : kKeys) {
    while (store.Length(kA, key) != "0") {
      if (store.Pop(kA, key) == "0") return "a queue has elements that no client can get";
    }
  }
  if (store.Stats().queues != 0) return "a queue without elements is still counted";
  for (const std::string_view scope : kScopes) store.DropScope(scope);
  return store.Stats().scopes == 0 ? "" : "a scope is left after all have been dropped";
}

/// Plays the story on the machine and on its twin. Empty: after every event both gave the same
/// answer, released the same clients in the same order and had the same figures. Otherwise the
/// story up to the difference, and both answers.
inline std::string Difference(const StoreMachineOptions& options, const std::vector<Event>& story) {
  SpokenStore store(options);
  NaiveStore twin(options);
  for (size_t i = 0; i < story.size(); ++i) {
    const std::string expected = twin.Happen(story[i]);
    const std::string answered = Happen(store, story[i]);
    if (answered != expected)
      return Concat(Told(story, i), "machine: ", answered, "\ntwin: ", expected);
    if (store.Stats() != twin.Stats()) return Concat(Told(story, i), "their figures differ");
  }
  const std::string left = LeftBehind(store);
  return left.empty() || story.empty() ? left : Concat(Told(story, story.size() - 1), left);
}

}  // namespace muster::testing_words
