#include "etcd/etcd_store.h"

#include <algorithm>
#include <map>
#include <stdexcept>
#include <utility>

#include "base/interruption.h"
#include "base/text.h"
#include "muster/etcd_store.h"
#include "store/throw.h"

namespace muster {

namespace {

// A caller with no time to wait still gets what is there, as from a TcpStore.
constexpr Duration kAnswerGrace = 5s;
// Between attempts of a write that other clients were faster at.
constexpr Duration kFirstPause = 1ms;
constexpr Duration kLongestPause = 100ms;
// More keys than this are watched as one range, from the first to the last.
constexpr size_t kWatchesMax = 4;
constexpr size_t kNamesShown = 16;
constexpr int64_t kKeysPerPage = 4096;
// Of a request, besides keys and values.
constexpr size_t kFrameBytes = 64 * 1024;
constexpr size_t kBatchBytesMax = kEtcdRequestBytesMax - kFrameBytes;

/// One range from the first to the last of `keys`.
EtcdRange Span(const std::vector<std::string>& keys) {
  const auto [first, last] = std::ranges::minmax(keys);
  return {.begin = first, .end = last + '\0'};
}

std::string_view FirstOf(const std::vector<std::string>& keys) {
  return keys.empty() ? "" : std::string_view(keys.front());
}

}  // namespace

EtcdStore::EtcdStore(std::shared_ptr<EtcdCalls> calls, std::string_view prefix,
                     milliseconds timeout, int64_t lease)
    : calls_(std::move(calls)), prefix_(prefix), layout_(prefix), lease_(lease), timeout_(timeout) {
  const EtcdTransaction look{.then = {EtcdGet(EtcdFirstKey(layout_.Values()))}};
  Result<EtcdAnswer> answer = calls_->Commit(look, Begin("", "").deadline);
  if (answer) return;
  const Error& why = answer.error();
  Throw({why.code == Code::kTimeout ? Code::kUnavailable : why.code, why.message});
}

std::shared_ptr<Store> EtcdStore::Clone() {
  return std::make_shared<EtcdStore>(calls_, prefix_, Timeout(), lease_);
}

std::optional<std::string> EtcdStorePrefix(const Store& store) {
  const auto* const in_etcd = dynamic_cast<const EtcdStore*>(&store);
  return in_etcd == nullptr ? std::nullopt : std::optional(in_etcd->prefix());
}

// ----------------------------------------------------------------------------------------------
// shared by all operations

EtcdStore::Operation EtcdStore::Begin(std::string_view what, std::string_view key,
                                      milliseconds limit) const {
  return {what, std::string(key), limit, DeadlineAfter(calls_->clock().Now(), limit)};
}

EtcdOperation EtcdStore::Put(std::string etcd_key, std::string_view value) const {
  return EtcdPut(std::move(etcd_key), std::string(value), lease_);
}

EtcdAnswer EtcdStore::Commit(const Operation& operation, const EtcdTransaction& transaction) const {
  const Instant deadline = std::max(operation.deadline, calls_->clock().Now() + kAnswerGrace);
  Result<EtcdAnswer> answer = calls_->Commit(transaction, deadline);
  if (answer) return *std::move(answer);
  // For a caller, kTimeout means that a key did not come. Here the cluster did not answer.
  const Code code = answer.error().code;
  const bool unanswered = code == Code::kTimeout;
  const bool open = (unanswered || code == Code::kInterrupted) && !OnlyReads(transaction);
  Throw({unanswered ? Code::kUnavailable : code,
         Concat(operation.what, " of '", Printable(operation.key), "': ", answer.error().message,
                open ? " (it may have happened: check before repeating)" : "")});
}

std::vector<EtcdAnswer::Result> EtcdStore::Read(const Operation& operation,
                                                const std::vector<EtcdOperation>& reads,
                                                int64_t& revision) const {
  std::vector<EtcdAnswer::Result> results;
  results.reserve(reads.size());
  while (results.size() < reads.size()) {
    const auto begin = reads.begin() + std::ssize(results);
    const auto count = std::min<std::ptrdiff_t>(reads.end() - begin, kEtcdOperationsMax);
    EtcdAnswer answer = Commit(operation, {.then = {begin, begin + count}});
    if (results.empty()) revision = answer.revision;
    std::ranges::move(answer.results, std::back_inserter(results));
  }
  return results;
}

void EtcdStore::MustFit(std::string_view what, std::string_view key, size_t bytes) {
  if (bytes <= kEtcdRequestBytesMax) return;
  throw std::invalid_argument(Concat(what, " of '", Printable(key), "': ", HumanBytes(bytes),
                                     ", but etcd takes at most ", HumanBytes(kEtcdRequestBytesMax),
                                     " in one request; keep large values elsewhere"));
}

Backoff EtcdStore::NewBackoff() const { return {kFirstPause, kLongestPause, calls_->NextSeed()}; }

void EtcdStore::PauseAfterLoss(const Operation& operation, Backoff& backoff, int64_t lost) const {
  const std::string name = Concat(operation.what, " of '", Printable(operation.key), "'");
  const Instant pause = calls_->clock().Now() + backoff.Next();
  if (pause >= operation.deadline) {
    Throw({Code::kTimeout,
           Concat(name, " at ", calls_->name(), ": timeout after ", operation.limit.count(),
                  "ms, others were faster ", lost, " times; let fewer write it at once")});
  }
  calls_->clock().SleepUntil(pause);
  if (IsInterrupted())
    ThrowInterrupted(Concat(name, ": interrupted after others were faster ", lost, " times"));
}

bool EtcdStore::AwaitChange(const Operation& operation, const std::vector<EtcdRange>& ranges,
                            int64_t revision, const std::function<bool(const EtcdChange&)>& enough,
                            const Missing& missing) const {
  const Status change = calls_->Await(ranges, revision, operation.deadline, enough);
  if (change) return true;
  const auto& [code, message] = change.error();
  if (code == Code::kNotFound) return false;
  if (code != Code::kTimeout && code != Code::kInterrupted) Throw(change.error());
  std::vector<std::string> names;
  for (const std::string& key : missing.keys) {
    if (names.size() < kNamesShown) names.push_back(Printable(key));
  }
  const std::string keys =
      Concat("keys: ", ListOf(names, kNamesShown, missing.keys.size()), " (", calls_->name(), ")");
  if (code == Code::kInterrupted) Throw({code, Concat(message, " while waiting, ", keys)});
  Throw({code, Concat("wait timeout after ", operation.limit.count(), "ms, ", keys,
                      message.empty() ? "" : Concat("; ", message))});
}

void EtcdStore::Replace(const Operation& operation, const Next& next) const {
  const std::string place = layout_.ValueOf(operation.key);
  Backoff backoff = NewBackoff();
  std::optional<EtcdPair> present;  // what was read last
  bool looked = false;
  for (int64_t lost = 0;; ++lost) {
    const std::optional<std::string> value = next(present ? &*present : nullptr);
    if (!value && looked) return;
    if (value) MustFit(operation.what, operation.key, place.size() + value->size());
    const EtcdAnswer answer =
        Commit(operation, {.conditions = {IfChangedAt(place, present ? present->changed : 0)},
                           .then = {value ? Put(place, *value) : EtcdGet(place)},
                           .otherwise = {EtcdGet(place)}});
    if (answer.held && value) return;
    const EtcdPair* found = answer.Pair();
    present = found == nullptr ? std::nullopt : std::optional(*found);
    // The first attempt was made without reading, so no other client was faster.
    if (std::exchange(looked, true)) PauseAfterLoss(operation, backoff, lost);
  }
}

// ----------------------------------------------------------------------------------------------
// values

void EtcdStore::Set(std::string_view key, std::string_view value) {
  std::string place = layout_.ValueOf(key);
  MustFit("Set", key, place.size() + value.size());
  Commit(Begin("Set", key), {.then = {Put(std::move(place), value)}});
}

std::string EtcdStore::Get(std::string_view key) {
  const Operation operation = Begin("Get", key);
  const std::string place = layout_.ValueOf(key);
  while (true) {
    const EtcdAnswer answer = Commit(operation, {.then = {EtcdGet(place)}});
    if (const EtcdPair* found = answer.Pair()) return found->value;
    std::string value;
    const auto is_there = [&](const EtcdChange& change) {
      value = change.pair.value;
      return !change.deleted;
    };
    if (AwaitChange(operation, {{.begin = place}}, answer.revision + 1, is_there,
                    {.keys = {operation.key}}))
      return value;
  }
}

int64_t EtcdStore::Add(std::string_view key, int64_t delta) {
  int64_t sum = 0;
  Replace(Begin("Add", key), [&](const EtcdPair* present) {
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

std::string EtcdStore::CompareSet(std::string_view key, std::string_view expected,
                                  std::string_view desired) {
  std::string stored;
  Replace(Begin("CompareSet", key), [&](const EtcdPair* present) {
    const std::string_view found = present == nullptr ? "" : std::string_view(present->value);
    const bool fits = found == expected;
    // An absent key equals nothing, but an expectation that it fails is given back.
    stored = fits ? desired : present == nullptr ? expected : found;
    return fits ? std::optional<std::string>(desired) : std::nullopt;
  });
  return stored;
}

void EtcdStore::Append(std::string_view key, std::string_view suffix) {
  Replace(Begin("Append", key), [&](const EtcdPair* present) {
    return std::optional(Concat(present == nullptr ? "" : present->value, suffix));
  });
}

bool EtcdStore::DeleteKey(std::string_view key) {
  const EtcdTransaction erase{.then = {EtcdDelete({layout_.ValueOf(key)})}};
  return Commit(Begin("DeleteKey", key), erase).results.at(0).count > 0;
}

int64_t EtcdStore::GetNumKeys() {
  const EtcdRange range = EtcdFirstKey(layout_.Values());  // the count is that of all
  return Commit(Begin("GetNumKeys", range.begin), {.then = {EtcdGet(range)}}).results.at(0).count;
}

std::vector<std::string> EtcdStore::ListKeys() {
  EtcdRange range = layout_.Values();
  range.limit = kKeysPerPage;
  range.keys_only = true;
  const Operation operation = Begin("ListKeys", range.begin);
  Keys keys;
  while (true) {
    const EtcdAnswer answer = Commit(operation, {.then = {EtcdGet(range)}});
    const std::vector<EtcdPair>& pairs = answer.results.at(0).pairs;
    for (const EtcdPair& pair : pairs) {
      if (std::optional<std::string> key = layout_.KeyOfValue(pair.key))
        keys.push_back(*std::move(key));
    }
    if (std::ssize(pairs) < kKeysPerPage) return keys;
    range.begin = pairs.back().key + '\0';
  }
}

std::vector<std::string> EtcdStore::MultiGet(const std::vector<std::string>& keys) {
  const Operation operation = Begin("MultiGet", FirstOf(keys));
  std::vector<EtcdOperation> reads;
  for (const std::string& key : keys) reads.push_back(EtcdGet(layout_.ValueOf(key)));
  while (true) {
    int64_t revision = 0;
    auto found = Read(operation, reads, revision);
    Keys values;
    Missing missing;
    for (size_t i = 0; i < keys.size(); ++i) {
      if (found[i].pairs.empty())
        missing.keys.insert(keys[i]);
      else
        values.push_back(std::move(found[i].pairs.front().value));
    }
    if (missing.keys.empty()) return values;
    WaitFor(operation, std::move(missing));
  }
}

void EtcdStore::MultiSet(const std::vector<std::string>& keys,
                         const std::vector<std::string>& values) {
  if (keys.size() != values.size()) {
    throw std::invalid_argument(Concat("multiSet keys and values vectors must be of same size: ",
                                       keys.size(), " keys, ", values.size(), " values"));
  }
  const Operation operation = Begin("MultiSet", FirstOf(keys));
  // The last of equal keys wins; etcd refuses a transaction that puts one twice.
  std::map<std::string, size_t> last;
  for (size_t i = 0; i < keys.size(); ++i) last[layout_.ValueOf(keys[i])] = i;
  EtcdTransaction batch;
  size_t bytes = 0;
  for (const auto& [place, index] : last) {
    const size_t size = place.size() + values[index].size();
    MustFit("MultiSet", keys[index], size);
    if (batch.then.size() == kEtcdOperationsMax || bytes + size > kBatchBytesMax) {
      Commit(operation, std::exchange(batch, {}));
      bytes = 0;
    }
    batch.then.push_back(Put(place, values[index]));
    bytes += size;
  }
  if (!batch.then.empty()) Commit(operation, batch);
}

// ----------------------------------------------------------------------------------------------
// waiting

int64_t EtcdStore::FindMissing(const Operation& operation, Missing& missing) const {
  const Keys keys{missing.keys.begin(), missing.keys.end()};
  std::vector<EtcdOperation> reads;
  for (const std::string& key : keys) {
    reads.push_back(EtcdGet(EtcdRange{.begin = layout_.ValueOf(key), .keys_only = true}));
    if (missing.or_queues) reads.push_back(EtcdGet(EtcdFirstKey(layout_.QueueOf(key))));
  }
  int64_t revision = 0;
  const auto found = Read(operation, reads, revision);
  const size_t places = missing.or_queues ? 2 : 1;
  for (size_t i = 0; i < found.size(); ++i) {
    if (found[i].count > 0) missing.keys.erase(keys[i / places]);
  }
  return revision;
}

std::vector<EtcdRange> EtcdStore::RangesOf(const Missing& missing) const {
  std::vector<EtcdRange> ranges;
  if (missing.keys.size() <= kWatchesMax) {
    for (const std::string& key : missing.keys) {
      ranges.push_back({.begin = layout_.ValueOf(key)});
      if (missing.or_queues) ranges.push_back(layout_.QueueOf(key));
    }
    return ranges;
  }
  std::vector<std::string> values;
  std::vector<std::string> queues;  // where they begin and end
  for (const std::string& key : missing.keys) {
    values.push_back(layout_.ValueOf(key));
    const EtcdRange queue = layout_.QueueOf(key);
    queues.insert(queues.end(), {queue.begin, queue.end});
  }
  ranges.push_back(Span(values));
  if (missing.or_queues) ranges.push_back(Span(queues));
  return ranges;
}

void EtcdStore::WaitFor(const Operation& operation, Missing missing) const {
  while (true) {
    const int64_t revision = FindMissing(operation, missing);
    if (missing.keys.empty()) return;
    const auto is_last = [&](const EtcdChange& change) {
      if (change.deleted) return false;
      std::optional<std::string> key = layout_.KeyOfValue(change.pair.key);
      if (!key && missing.or_queues) key = layout_.KeyOfElement(change.pair.key);
      if (key) missing.keys.erase(*key);
      return missing.keys.empty();
    };
    if (AwaitChange(operation, RangesOf(missing), revision + 1, is_last, missing)) return;
  }
}

bool EtcdStore::Check(const std::vector<std::string>& keys) {
  Missing missing{.keys = {keys.begin(), keys.end()}, .or_queues = true};
  FindMissing(Begin("Wait", FirstOf(keys)), missing);
  return missing.keys.empty();
}

void EtcdStore::Wait(const std::vector<std::string>& keys, milliseconds timeout) {
  WaitFor(Begin("Wait", FirstOf(keys), timeout),
          {.keys = {keys.begin(), keys.end()}, .or_queues = true});
}

}  // namespace muster
