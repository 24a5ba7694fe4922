#include "muster/etcd_store.h"

#include <algorithm>
#include <atomic>
#include <functional>
#include <map>
#include <set>
#include <stdexcept>
#include <utility>

#include "base/interruption.h"
#include "base/text.h"
#include "etcd/layout.h"
#include "etcd/on_connection.h"
#include "store/throw.h"

namespace muster {

namespace {

// A caller with no time to wait still gets existing values, as from a TcpStore.
constexpr Duration kAnswerGrace = 5s;
// The first pause between attempts of a write when other clients were faster.
constexpr Duration kFirstPause = 1ms;
constexpr Duration kLongestPause = 100ms;
// More keys than this are watched as one range, from the first to the last.
constexpr size_t kWatchesMax = 4;
constexpr size_t kNamesShown = 16;
constexpr int64_t kKeysPerPage = 4096;
// Of a request, besides keys and values.
constexpr size_t kFrameBytes = 64 * 1024;
constexpr size_t kBatchBytesMax = kEtcdRequestBytesMax - kFrameBytes;

using std::chrono::milliseconds;
using Keys = std::vector<std::string>;

/// Keys that do not exist yet.
struct Missing {
  std::set<std::string, std::less<>> keys;
  bool or_queues = false;  ///< An element in the key's queue is sufficient, too.
};

/// One range from the first to the last of `keys`.
EtcdRange Span(const Keys& keys) {
  const auto [first, last] = std::ranges::minmax(keys);
  return {.begin = first, .end = last + '\0'};
}

std::string_view FirstOf(const Keys& keys) {
  return keys.empty() ? "" : std::string_view(keys.front());
}

/// A call of the store: what it is, for messages ("Set of 'k'"), and when it ends. Timeouts of zero
/// or less are no limit. Its functions throw the exceptions of the call.
class Operation {
 public:
  /// `lease`: of all keys that the call writes; 0: none.
  Operation(EtcdCalls& calls, const EtcdLayout& layout, int64_t lease, std::string_view what,
            std::string_view key, milliseconds limit)
      : calls_(calls),
        layout_(layout),
        lease_(lease),
        what_(what),
        key_(key),
        limit_(limit),
        deadline_(DeadlineAfter(calls_.clock().Now(), limit)) {}

  /// `key`: of the store, for messages.
  EtcdOperation Put(std::string place, std::string_view value, std::string_view key) const {
    const size_t bytes = place.size() + value.size();
    if (bytes <= kEtcdRequestBytesMax) return EtcdPut(std::move(place), std::string(value), lease_);
    throw std::invalid_argument(Concat(
        what_, " of '", Printable(key), "': ", HumanBytes(bytes), ", but etcd takes at most ",
        HumanBytes(kEtcdRequestBytesMax), " in one request; keep large values elsewhere"));
  }

  EtcdAnswer Commit(const EtcdTransaction& transaction) const {
    const Instant deadline = std::max(deadline_, calls_.clock().Now() + kAnswerGrace);
    Result<EtcdAnswer> answer = calls_.Commit(transaction, deadline);
    if (answer) return *std::move(answer);
    // For a caller, kTimeout means that a key is missing. Here the cluster did not answer.
    const Code code = answer.error().code;
    const bool unanswered = code == Code::kTimeout;
    const bool open = (unanswered || code == Code::kInterrupted) && !OnlyReads(transaction);
    Throw({unanswered ? Code::kUnavailable : code,
           Concat(name(), ": ", answer.error().message,
                  open ? " (it may have happened: check before repeating)" : "")});
  }

  /// Executes any number of reads, in transactions of the size that etcd accepts. `revision`: of
  /// the first one.
  std::vector<EtcdAnswer::Result> Read(const std::vector<EtcdOperation>& reads,
                                       int64_t& revision) const {
    std::vector<EtcdAnswer::Result> results;
    results.reserve(reads.size());
    while (results.size() < reads.size()) {
      const auto begin = reads.begin() + std::ssize(results);
      const auto count = std::min<std::ptrdiff_t>(reads.end() - begin, kEtcdOperationsMax);
      EtcdAnswer answer = Commit({.then = {begin, begin + count}});
      if (results.empty()) revision = answer.revision;
      std::ranges::move(answer.results, std::back_inserter(results));
    }
    return results;
  }

  /// Reads the value and replaces it by the result of `next`; repeats this if another client wrote
  /// in between. nullopt from `next`: the value is not changed.
  void Replace(
      const std::function<std::optional<std::string>(const EtcdPair* present)>& next) const {
    const std::string place = layout_.ValueOf(key_);
    Backoff backoff = NewBackoff();
    std::optional<EtcdPair> present;  // the pair that was read last
    bool looked = false;
    for (int64_t lost = 0;; ++lost) {
      const std::optional<std::string> value = next(present ? &*present : nullptr);
      if (!value && looked) return;
      const EtcdAnswer answer =
          Commit({.conditions = {IfChangedAt(place, present ? present->changed : 0)},
                  .then = {value ? Put(place, *value, key_) : EtcdGet(place)},
                  .otherwise = {EtcdGet(place)}});
      if (answer.held && value) return;
      const EtcdPair* found = answer.Pair();
      present = found == nullptr ? std::nullopt : std::optional(*found);
      // The first attempt was made without reading, so no other client was faster.
      if (std::exchange(looked, true)) PauseAfterLoss(backoff, lost);
    }
  }

  /// EtcdCalls::Await(), with an error for the caller: which of the keys are missing. False: etcd
  /// has compacted the revision; read again.
  bool AwaitChange(const std::vector<EtcdRange>& ranges, int64_t revision,
                   const std::function<bool(const EtcdChange&)>& enough,
                   const Missing& missing) const {
    const Status change = calls_.Await(ranges, revision, deadline_, enough);
    if (change) return true;
    const auto& [code, message] = change.error();
    if (code == Code::kNotFound) return false;
    if (code != Code::kTimeout && code != Code::kInterrupted) Throw(change.error());
    std::vector<std::string> names;
    for (const std::string& key : missing.keys) {
      if (names.size() < kNamesShown) names.push_back(Printable(key));
    }
    const std::string keys =
        Concat("keys: ", ListOf(names, kNamesShown, missing.keys.size()), " (", calls_.name(), ")");
    if (code == Code::kInterrupted) Throw({code, Concat(message, " while waiting, ", keys)});
    Throw({code, Concat("wait timeout after ", limit_.count(), "ms, ", keys,
                        message.empty() ? "" : Concat("; ", message))});
  }

  /// Removes the keys that exist. The others did not exist at the returned revision.
  int64_t FindMissing(Missing& missing) const {
    const Keys keys{missing.keys.begin(), missing.keys.end()};
    std::vector<EtcdOperation> reads;
    for (const std::string& key : keys) {
      reads.push_back(EtcdGet(EtcdRange{.begin = layout_.ValueOf(key), .keys_only = true}));
      if (missing.or_queues) reads.push_back(EtcdGet(EtcdFirstKey(layout_.QueueOf(key))));
    }
    int64_t revision = 0;
    const auto found = Read(reads, revision);
    for (size_t i = 0; i < found.size(); ++i) {
      if (found[i].count > 0) missing.keys.erase(keys[i / (missing.or_queues ? 2 : 1)]);
    }
    return revision;
  }

  /// Waits until all of the keys exist.
  void WaitFor(Missing missing) const {
    while (true) {
      const int64_t revision = FindMissing(missing);
      if (missing.keys.empty()) return;
      const auto is_last = [&](const EtcdChange& change) {
        if (change.deleted) return false;
        std::optional<std::string> key = layout_.KeyOfValue(change.pair.key);
        if (!key && missing.or_queues) key = layout_.KeyOfElement(change.pair.key);
        if (key) missing.keys.erase(*key);
        return missing.keys.empty();
      };
      if (AwaitChange(RangesOf(missing), revision + 1, is_last, missing)) return;
    }
  }

  /// Waits before a write is tried again because other clients were faster `lost` times.
  void PauseAfterLoss(Backoff& backoff, int64_t lost) const {
    const Instant pause = calls_.clock().Now() + backoff.Next();
    if (pause >= deadline_) {
      Throw({Code::kTimeout,
             Concat(name(), " at ", calls_.name(), ": timeout after ", limit_.count(),
                    "ms, others were faster ", lost, " times; let fewer write it at once")});
    }
    calls_.clock().SleepUntil(pause);
    if (IsInterrupted())
      ThrowInterrupted(Concat(name(), ": interrupted after others were faster ", lost, " times"));
  }
  Backoff NewBackoff() const { return {kFirstPause, kLongestPause, calls_.NextSeed()}; }

  /// The number of a queue's next element, and the revision at which that was written; 0: never.
  struct Tail {
    uint64_t number = 0;
    int64_t changed = 0;
  };
  std::vector<EtcdOperation> LookAtTail() const {
    return {EtcdGet(layout_.TailOf(key_)), EtcdGet(EtcdFirstKey(layout_.QueueOf(key_)))};
  }
  /// `answer` begins with the results of LookAtTail().
  Tail TailIn(const EtcdAnswer& answer) const {
    const auto refuse = [&](const std::string& etcd_key, std::string_view what) {
      Throw({Code::kProtocol, Concat(name(), ": the key '", etcd_key, "' at ", calls_.name(),
                                     " is no ", what, "; delete it")});
    };
    if (const EtcdPair* tail = answer.Pair()) {
      const Result<int64_t> number = ParseCounter(tail->value);
      if (!number || *number < 0) refuse(tail->key, "number");
      return {static_cast<uint64_t>(*number), tail->changed};
    }
    if (answer.results.at(1).count == 0) return {};
    // The tail was deleted, by hand or with its lease, and elements are left, which are older.
    EtcdRange range = layout_.QueueOf(key_);
    range.keys_only = true;
    const EtcdAnswer all = Commit({.then = {EtcdGet(range)}});
    const std::vector<EtcdPair>& elements = all.results.at(0).pairs;
    if (elements.empty()) return {};
    const std::optional<uint64_t> number = layout_.NumberOf(elements.back().key);
    if (!number) refuse(elements.back().key, "element");
    return {*number + 1, 0};
  }

 private:
  std::string name() const { return Concat(what_, " of '", Printable(key_), "'"); }

  std::vector<EtcdRange> RangesOf(const Missing& missing) const {
    std::vector<EtcdRange> ranges;
    Keys values;
    Keys queues;  // the first and the last element of each
    for (const std::string& key : missing.keys) {
      const EtcdRange queue = layout_.QueueOf(key);
      values.push_back(layout_.ValueOf(key));
      queues.insert(queues.end(), {queue.begin, queue.end});
      ranges.push_back({.begin = values.back()});
      if (missing.or_queues) ranges.push_back(queue);
    }
    if (missing.keys.size() <= kWatchesMax) return ranges;
    ranges = {Span(values)};
    if (missing.or_queues) ranges.push_back(Span(queues));
    return ranges;
  }

  EtcdCalls& calls_;
  const EtcdLayout& layout_;
  const int64_t lease_;
  const std::string_view what_;
  const std::string key_;
  const milliseconds limit_;
  const Instant deadline_;
};

class EtcdStore final : public Store {
 public:
  EtcdStore(std::shared_ptr<EtcdCalls> calls, std::string_view prefix, milliseconds timeout,
            int64_t lease)
      : calls_(std::move(calls)),
        prefix_(prefix),
        layout_(prefix),
        lease_(lease),
        timeout_(timeout) {}

  const std::string& prefix() const { return prefix_; }

  std::shared_ptr<Store> Clone() override {
    return OpenEtcdStore(calls_, prefix_, Timeout(), lease_);
  }
  bool HasExtendedApi() const override { return true; }
  milliseconds Timeout() const override { return timeout_; }
  void SetTimeout(milliseconds timeout) override { timeout_ = timeout; }

  // --- values
  void Set(std::string_view key, std::string_view value) override {
    const Operation operation = Begin("Set", key);
    operation.Commit({.then = {operation.Put(layout_.ValueOf(key), value, key)}});
  }

  std::string Get(std::string_view key) override {
    const Operation operation = Begin("Get", key);
    const std::string place = layout_.ValueOf(key);
    while (true) {
      const EtcdAnswer answer = operation.Commit({.then = {EtcdGet(place)}});
      if (const EtcdPair* found = answer.Pair()) return found->value;
      std::string value;
      const auto is_there = [&](const EtcdChange& change) {
        value = change.pair.value;
        return !change.deleted;
      };
      if (operation.AwaitChange({{.begin = place}}, answer.revision + 1, is_there,
                                {.keys = {std::string(key)}}))
        return value;
    }
  }

  int64_t Add(std::string_view key, int64_t delta) override {
    int64_t sum = 0;
    Begin("Add", key).Replace([&](const EtcdPair* present) {
      int64_t count = 0;
      if (present != nullptr && !present->value.empty()) {  // an empty value counts as 0
        const Result<int64_t> read = ParseCounter(present->value);
        if (!read) {
          Throw({read.error().code, Concat("Add to '", Printable(key), "': ", read.error().message,
                                           ": '", Printable(present->value, 40), "'")});
        }
        count = *read;
      }
      // Wraps in two's complement, as on all stores.
      sum = static_cast<int64_t>(static_cast<uint64_t>(count) + static_cast<uint64_t>(delta));
      return std::optional(Concat(sum));
    });
    return sum;
  }

  std::string CompareSet(std::string_view key, std::string_view expected,
                         std::string_view desired) override {
    std::string stored;
    Begin("CompareSet", key).Replace([&](const EtcdPair* present) {
      const std::string_view found = present == nullptr ? "" : std::string_view(present->value);
      const bool fits = found == expected;
      // An absent key equals nothing, but the failed expectation is returned.
      stored = fits ? desired : present == nullptr ? expected : found;
      return fits ? std::optional<std::string>(desired) : std::nullopt;
    });
    return stored;
  }

  void Append(std::string_view key, std::string_view suffix) override {
    Begin("Append", key).Replace([&](const EtcdPair* present) {
      return std::optional(Concat(present == nullptr ? "" : present->value, suffix));
    });
  }

  bool DeleteKey(std::string_view key) override {
    const EtcdTransaction erase{.then = {EtcdDelete({layout_.ValueOf(key)})}};
    return Begin("DeleteKey", key).Commit(erase).results.at(0).count > 0;
  }

  int64_t GetNumKeys() override {
    const EtcdRange range = EtcdFirstKey(layout_.Values());  // the count is that of all
    const Operation operation = Begin("GetNumKeys", range.begin);
    return operation.Commit({.then = {EtcdGet(range)}}).results.at(0).count;
  }

  std::vector<std::string> ListKeys() override {
    EtcdRange range = layout_.Values();
    range.limit = kKeysPerPage;
    range.keys_only = true;
    const Operation operation = Begin("ListKeys", range.begin);
    Keys keys;
    while (true) {
      const EtcdAnswer answer = operation.Commit({.then = {EtcdGet(range)}});
      const std::vector<EtcdPair>& pairs = answer.results.at(0).pairs;
      for (const EtcdPair& pair : pairs) {
        if (std::optional<std::string> key = layout_.KeyOfValue(pair.key))
          keys.push_back(*std::move(key));
      }
      if (std::ssize(pairs) < kKeysPerPage) return keys;
      range.begin = pairs.back().key + '\0';
    }
  }

  std::vector<std::string> MultiGet(const std::vector<std::string>& keys) override {
    const Operation operation = Begin("MultiGet", FirstOf(keys));
    std::vector<EtcdOperation> reads;
    for (const std::string& key : keys) reads.push_back(EtcdGet(layout_.ValueOf(key)));
    while (true) {
      int64_t revision = 0;
      auto found = operation.Read(reads, revision);
      Keys values;
      Missing missing;
      for (size_t i = 0; i < keys.size(); ++i) {
        if (found[i].pairs.empty())
          missing.keys.insert(keys[i]);
        else
          values.push_back(std::move(found[i].pairs.front().value));
      }
      if (missing.keys.empty()) return values;
      operation.WaitFor(std::move(missing));
    }
  }

  void MultiSet(const std::vector<std::string>& keys,
                const std::vector<std::string>& values) override {
    RequireValueForEach(keys, values);
    const Operation operation = Begin("MultiSet", FirstOf(keys));
    // The last of equal keys wins; etcd refuses a transaction that puts one twice.
    std::map<std::string, size_t> last;
    for (size_t i = 0; i < keys.size(); ++i) last[layout_.ValueOf(keys[i])] = i;
    EtcdTransaction batch;
    size_t bytes = 0;
    for (const auto& [place, index] : last) {
      const size_t size = place.size() + values[index].size();
      EtcdOperation put = operation.Put(place, values[index], keys[index]);
      if (batch.then.size() == kEtcdOperationsMax || bytes + size > kBatchBytesMax) {
        operation.Commit(std::exchange(batch, {}));
        bytes = 0;
      }
      batch.then.push_back(std::move(put));
      bytes += size;
    }
    if (!batch.then.empty()) operation.Commit(batch);
  }

  bool Check(const std::vector<std::string>& keys) override {
    Missing missing{.keys = {keys.begin(), keys.end()}, .or_queues = true};
    Begin("Wait", FirstOf(keys)).FindMissing(missing);
    return missing.keys.empty();
  }

  void Wait(const std::vector<std::string>& keys, milliseconds timeout) override {
    Operation(*calls_, layout_, lease_, "Wait", FirstOf(keys), timeout)
        .WaitFor({.keys = {keys.begin(), keys.end()}, .or_queues = true});
  }

  // --- queues
  // An element gets the tail's number, and the same transaction increments the tail. So the
  // elements of all clients are in the order of their transactions.
  void QueuePush(std::string_view key, std::string_view value) override {
    const Operation operation = Begin("QueuePush", key);
    const std::string place = layout_.TailOf(key);
    Backoff backoff = operation.NewBackoff();
    EtcdAnswer answer = operation.Commit({.then = operation.LookAtTail()});
    for (int64_t lost = 1;; ++lost) {
      const Operation::Tail tail = operation.TailIn(answer);
      const std::string element = layout_.ElementOf(key, tail.number);
      answer = operation.Commit(
          {.conditions = {IfChangedAt(place, tail.changed), IfCreatedAt(element, 0)},
           .then = {operation.Put(place, Concat(tail.number + 1), key),
                    operation.Put(element, value, key)},
           .otherwise = operation.LookAtTail()});
      if (answer.held) return;
      operation.PauseAfterLoss(backoff, lost);
    }
  }

  // A caller that loses the oldest element to another takes the next one, so some caller always
  // makes progress.
  std::string QueuePop(std::string_view key, PopMode mode) override {
    const Operation operation = Begin("QueuePop", key);
    EtcdRange range = layout_.QueueOf(key);
    range.limit = 1;
    const EtcdOperation first = EtcdGet(range);
    EtcdAnswer answer = operation.Commit({.then = {first}});
    while (true) {
      if (const EtcdPair* const found = answer.Pair()) {
        const EtcdPair element = *found;
        answer = operation.Commit({.conditions = {IfCreatedAt(element.key, element.created)},
                                   .then = {EtcdDelete({element.key})},
                                   .otherwise = {first}});
        if (answer.held) return element.value;
        continue;
      }
      if (mode == PopMode::kDoNotWait)
        throw QueueEmptyError(Concat("queue is empty: ", Printable(key)));
      operation.AwaitChange({range}, answer.revision + 1,
                            [](const EtcdChange& change) { return !change.deleted; },
                            {.keys = {std::string(key)}});
      answer = operation.Commit({.then = {first}});  // also after a compaction
    }
  }

  int64_t QueueLen(std::string_view key) override {
    const EtcdTransaction look{.then = {EtcdGet(EtcdFirstKey(layout_.QueueOf(key)))}};
    return Begin("QueueLen", key).Commit(look).results.at(0).count;
  }

 private:
  Operation Begin(std::string_view what, std::string_view key) const {
    return {*calls_, layout_, lease_, what, key, Timeout()};
  }

  const std::shared_ptr<EtcdCalls> calls_;
  const std::string prefix_;
  const EtcdLayout layout_;
  const int64_t lease_;
  std::atomic<milliseconds> timeout_;
};

}  // namespace

std::shared_ptr<Store> OpenEtcdStore(std::shared_ptr<EtcdCalls> calls, std::string_view prefix,
                                     milliseconds timeout, int64_t lease) {
  const EtcdTransaction look{.then = {EtcdGet(EtcdFirstKey(EtcdLayout(prefix).Values()))}};
  Result<EtcdAnswer> answer = calls->Commit(look, DeadlineAfter(calls->clock().Now(), timeout));
  if (answer) return std::make_shared<EtcdStore>(std::move(calls), prefix, timeout, lease);
  const Error& why = answer.error();
  Throw({why.code == Code::kTimeout ? Code::kUnavailable : why.code, why.message});
}

std::optional<std::string> EtcdStorePrefix(const Store& store) {
  const auto* const in_etcd = dynamic_cast<const EtcdStore*>(&store);
  return in_etcd == nullptr ? std::nullopt : std::optional(in_etcd->prefix());
}

}  // namespace muster
