#include "etcd/store_client.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "base/interruption.h"
#include "base/text.h"

namespace muster {

namespace {

using Kind = EtcdOperation::Kind;

// As a TcpStore's server: who has no time to wait is still told what is there.
constexpr Duration kAnswerGrace = 5s;
constexpr Duration kFirstPause = 1ms;
constexpr Duration kLongestPause = 100ms;
// More keys than this are watched as one range, from the first to the last of them.
constexpr size_t kWatchesMax = 4;
constexpr size_t kNamesShown = 16;
constexpr int64_t kKeysPerPage = 4096;
// For what a request holds besides keys and values.
constexpr size_t kFrameBytes = 64 * 1024;
constexpr size_t kBatchBytesMax = kEtcdRequestBytesMax - kFrameBytes;

EtcdOperation GetOf(std::string etcd_key) {
  return {.kind = Kind::kGet, .range = {.begin = std::move(etcd_key)}};
}

EtcdCondition Absent(std::string etcd_key) {
  return {.kind = EtcdCondition::Kind::kCreatedAt, .key = std::move(etcd_key)};
}

EtcdCondition Unchanged(std::string etcd_key, int64_t revision) {
  return {
      .kind = EtcdCondition::Kind::kChangedAt, .key = std::move(etcd_key), .revision = revision};
}

const EtcdPair* OnlyPair(const EtcdAnswer& answer) {
  const std::vector<EtcdPair>& pairs = answer.results.at(0).pairs;
  return pairs.empty() ? nullptr : &pairs.front();
}

/// One range from the first to the last of `keys`, which are sorted.
EtcdRange Span(const std::vector<std::string>& keys) {
  return {.begin = keys.front(), .end = keys.back() + '\0'};
}

bool EndsWait(const Error& error) {
  return error.code == Code::kTimeout || error.code == Code::kInterrupted;
}

Error Beaten(std::string_view what, std::string_view key, int64_t lost) {
  return {Code::kInterrupted, Concat(what, " of '", Printable(key),
                                     "': interrupted after others were faster ", lost, " times")};
}

Status MustFit(std::string_view what, std::string_view key, size_t bytes) {
  if (bytes <= kEtcdRequestBytesMax) return Ok();
  return Error{Code::kInvalid, Concat(what, " of '", Printable(key), "': ", HumanBytes(bytes),
                                      ", but etcd takes at most ", HumanBytes(kEtcdRequestBytesMax),
                                      " in one request; keep large values elsewhere")};
}

}  // namespace

/// Keys that have not been seen yet.
struct EtcdStoreClient::Missing {
  std::set<std::string, std::less<>> keys;
  bool or_queues = false;

  Keys List() const { return {keys.begin(), keys.end()}; }
};

/// The number of a queue's next element, and when that last changed; 0: it is not written down.
struct EtcdStoreClient::Tail {
  uint64_t number = 0;
  int64_t changed = 0;
};

/// The oldest element of a queue; null if there is none.
struct EtcdStoreClient::First {
  std::optional<EtcdPair> element;
  int64_t revision = 0;
};

EtcdStoreClient::EtcdStoreClient(std::shared_ptr<EtcdCalls> calls, std::string_view prefix,
                                 int64_t lease)
    : calls_(std::move(calls)), layout_(prefix), lease_(lease) {}

// ----------------------------------------------------------------------------------------------
// what they have in common

Instant EtcdStoreClient::Deadline(Time limit) const {
  return DeadlineAfter(calls_->clock().Now(), limit);
}

Instant EtcdStoreClient::AnswerBy(Instant deadline) const {
  return std::max(deadline, calls_->clock().Now() + kAnswerGrace);
}

EtcdOperation EtcdStoreClient::Put(std::string etcd_key, std::string_view value) const {
  return {.kind = Kind::kPut,
          .range = {.begin = std::move(etcd_key)},
          .value = std::string(value),
          .lease = lease_};
}

Result<EtcdAnswer> EtcdStoreClient::Commit(const EtcdTransaction& transaction, Instant deadline,
                                           std::string_view what, std::string_view key) const {
  Result<EtcdAnswer> answer = calls_->Commit(transaction, AnswerBy(deadline));
  if (answer) return answer;
  // To a caller, a timeout is a key that did not come. This is a cluster that did not answer.
  const Code code = answer.error().code;
  const bool unheard = code == Code::kTimeout;
  const bool open = (unheard || code == Code::kInterrupted) && !OnlyReads(transaction);
  return Error{unheard ? Code::kUnavailable : code,
               Concat(what, " of '", Printable(key), "': ", answer.error().message,
                      open ? " (it may have happened all the same: look before repeating)" : "")};
}

Error EtcdStoreClient::TimedOut(Time limit, const Keys& keys, const Error& why) const {
  std::vector<std::string> names;
  for (const std::string& key : keys) {
    if (names.size() == kNamesShown) break;
    names.push_back(Printable(key));
  }
  if (why.code == Code::kInterrupted) {
    return {why.code, Concat(why.message, " while waiting, keys: ",
                             ListOf(names, kNamesShown, keys.size()), " (", calls_->name(), ")")};
  }
  return {Code::kTimeout, Concat("wait timeout after ", limit.count(), "ms, keys: ",
                                 ListOf(names, kNamesShown, keys.size()), " (", calls_->name(), ")",
                                 why.message.empty() ? "" : Concat("; ", why.message))};
}

Status EtcdStoreClient::Reach(Time limit) {
  EtcdRange range = layout_.Values();
  range.limit = 1;
  range.keys_only = true;
  const Result<EtcdAnswer> answer =
      calls_->Commit({.then = {{.kind = Kind::kGet, .range = std::move(range)}}}, Deadline(limit));
  if (answer) return Ok();
  const Code code = answer.error().code;
  return Error{code == Code::kTimeout ? Code::kUnavailable : code, answer.error().message};
}

Status EtcdStoreClient::Replace(std::string_view key, std::string_view what, Time limit,
                                const Next& next) const {
  const Instant deadline = Deadline(limit);
  const std::string place = layout_.ValueOf(key);
  Backoff backoff(kFirstPause, kLongestPause, calls_->NextSeed());
  std::optional<EtcdPair> present;  // none: as far as we know
  bool looked = false;
  for (int64_t lost = 0;; ++lost) {
    MUSTER_TRY(const std::optional<std::string> value, next(present ? &*present : nullptr));
    if (!value && looked) return Ok();
    EtcdTransaction transaction{.otherwise = {GetOf(place)}};
    if (value) {
      MUSTER_CHECK_OK(MustFit(what, key, place.size() + value->size()));
      transaction.then = {Put(place, *value)};
    } else {
      transaction.then = {GetOf(place)};
    }
    transaction.conditions = {Unchanged(place, present ? present->changed : 0)};
    MUSTER_TRY(const EtcdAnswer answer, Commit(transaction, deadline, what, key));
    if (answer.held && value) return Ok();
    const EtcdPair* found = OnlyPair(answer);
    present = found == nullptr ? std::nullopt : std::optional(*found);
    // The first try, blind, is lost to nobody.
    if (std::exchange(looked, true)) {
      const Instant pause = calls_->clock().Now() + backoff.Next();
      if (pause >= deadline) {
        return Error{Code::kTimeout,
                     Concat(what, " of '", Printable(key), "' at ", calls_->name(),
                            ": timeout after ", limit.count(), "ms, others were faster ", lost,
                            " times; let fewer write it at once")};
      }
      calls_->clock().SleepUntil(pause);
      if (IsInterrupted()) return Beaten(what, key, lost);
    }
  }
}

// ----------------------------------------------------------------------------------------------
// values

Status EtcdStoreClient::Set(std::string_view key, std::string_view value, Time limit) {
  std::string place = layout_.ValueOf(key);
  MUSTER_CHECK_OK(MustFit("Set", key, place.size() + value.size()));
  MUSTER_TRY(const EtcdAnswer done,
             Commit({.then = {Put(std::move(place), value)}}, Deadline(limit), "Set", key));
  static_cast<void>(done);
  return Ok();
}

Result<std::string> EtcdStoreClient::Get(std::string_view key, Time limit) {
  const Instant deadline = Deadline(limit);
  const std::string place = layout_.ValueOf(key);
  while (true) {
    MUSTER_TRY(const EtcdAnswer answer, Commit({.then = {GetOf(place)}}, deadline, "Get", key));
    if (const EtcdPair* found = OnlyPair(answer)) return found->value;
    std::string value;
    const Status come =
        calls_->Await({{.begin = place}}, answer.revision + 1, deadline, [&](const auto& change) {
          value = change.pair.value;
          return !change.deleted;
        });
    if (come) return value;
    if (EndsWait(come.error())) return TimedOut(limit, {std::string(key)}, come.error());
    if (come.error().code != Code::kNotFound) return come.error();
  }
}

Result<int64_t> EtcdStoreClient::Add(std::string_view key, int64_t delta, Time limit) {
  int64_t sum = 0;
  MUSTER_CHECK_OK(Replace(
      key, "Add", limit, [&](const EtcdPair* present) -> Result<std::optional<std::string>> {
        int64_t count = 0;
        if (present != nullptr && !present->value.empty()) {
          const Result<int64_t> read = ParseCounter(present->value);
          if (!read) {
            return Error{read.error().code,
                         Concat("Add to '", Printable(key), "': ", read.error().message, ": '",
                                Printable(present->value, 40), "'")};
          }
          count = *read;
        }
        // Wraps in two's complement, as on all stores.
        sum = static_cast<int64_t>(static_cast<uint64_t>(count) + static_cast<uint64_t>(delta));
        return std::optional(Concat(sum));
      }));
  return sum;
}

Result<std::string> EtcdStoreClient::CompareSet(std::string_view key, std::string_view expected,
                                                std::string_view desired, Time limit) {
  std::string stored;
  MUSTER_CHECK_OK(Replace(
      key, "CompareSet", limit, [&](const EtcdPair* present) -> Result<std::optional<std::string>> {
        const std::string_view found = present == nullptr ? "" : std::string_view(present->value);
        const bool fits = found == expected;
        // An absent key equals nothing, but an expectation that it fails is given back.
        stored = fits ? desired : present == nullptr ? expected : found;
        if (!fits) return std::optional<std::string>();
        return std::optional<std::string>(desired);
      }));
  return stored;
}

Status EtcdStoreClient::Append(std::string_view key, std::string_view suffix, Time limit) {
  return Replace(key, "Append", limit, [&](const EtcdPair* present) {
    return Result(std::optional(Concat(present == nullptr ? "" : present->value, suffix)));
  });
}

Result<bool> EtcdStoreClient::Delete(std::string_view key, Time limit) {
  MUSTER_TRY(const EtcdAnswer answer,
             Commit({.then = {{.kind = Kind::kDelete, .range = {.begin = layout_.ValueOf(key)}}}},
                    Deadline(limit), "DeleteKey", key));
  return answer.results.at(0).count > 0;
}

Result<int64_t> EtcdStoreClient::Count(Time limit) {
  EtcdRange range = layout_.Values();
  range.limit = 1;  // the count is that of all
  range.keys_only = true;
  MUSTER_TRY(const EtcdAnswer answer, Commit({.then = {{.kind = Kind::kGet, .range = range}}},
                                             Deadline(limit), "GetNumKeys", range.begin));
  return answer.results.at(0).count;
}

Result<EtcdStoreClient::Keys> EtcdStoreClient::ListKeys(Time limit) {
  const Instant deadline = Deadline(limit);
  EtcdRange range = layout_.Values();
  range.limit = kKeysPerPage;
  range.keys_only = true;
  Keys keys;
  while (true) {
    MUSTER_TRY(const EtcdAnswer answer, Commit({.then = {{.kind = Kind::kGet, .range = range}}},
                                               deadline, "ListKeys", range.begin));
    const std::vector<EtcdPair>& pairs = answer.results.at(0).pairs;
    for (const EtcdPair& pair : pairs) {
      if (std::optional<std::string> key = layout_.KeyOfValue(pair.key))
        keys.push_back(*std::move(key));
    }
    if (static_cast<int64_t>(pairs.size()) < kKeysPerPage) return keys;
    range.begin = pairs.back().key + '\0';
  }
}

Result<std::vector<std::optional<std::string>>> EtcdStoreClient::Read(const Keys& keys,
                                                                      Instant deadline) const {
  std::vector<std::optional<std::string>> values;
  values.reserve(keys.size());
  for (size_t at = 0; at < keys.size();) {
    const size_t end = std::min(keys.size(), at + kEtcdOperationsMax);
    EtcdTransaction transaction;
    for (size_t i = at; i < end; ++i) transaction.then.push_back(GetOf(layout_.ValueOf(keys[i])));
    MUSTER_TRY(EtcdAnswer answer, Commit(transaction, deadline, "MultiGet", keys[at]));
    for (EtcdAnswer::Result& each : answer.results) {
      if (each.pairs.empty()) {
        values.push_back(std::nullopt);
      } else {
        values.push_back(std::move(each.pairs.front().value));
      }
    }
    at = end;
  }
  return values;
}

Result<EtcdStoreClient::Keys> EtcdStoreClient::MultiGet(const Keys& keys, Time limit) {
  const Instant deadline = Deadline(limit);
  while (true) {
    MUSTER_TRY(auto found, Read(keys, deadline));
    Missing missing;
    for (size_t i = 0; i < keys.size(); ++i) {
      if (!found[i]) missing.keys.insert(keys[i]);
    }
    if (missing.keys.empty()) {
      Keys values;
      for (std::optional<std::string>& each : found) values.push_back(*std::move(each));
      return values;
    }
    MUSTER_CHECK_OK(WaitFor(std::move(missing), limit, deadline));
  }
}

Status EtcdStoreClient::MultiSet(const Keys& keys, const Keys& values, Time limit) {
  const Instant deadline = Deadline(limit);
  // The last of equal keys wins; etcd refuses a transaction that puts one twice.
  std::map<std::string, size_t> last;
  for (size_t i = 0; i < keys.size(); ++i) last[layout_.ValueOf(keys[i])] = i;
  EtcdTransaction batch;
  size_t bytes = 0;
  const auto send = [&]() -> Status {
    if (batch.then.empty()) return Ok();
    MUSTER_TRY(const EtcdAnswer done, Commit(batch, deadline, "MultiSet", keys.front()));
    static_cast<void>(done);
    batch.then.clear();
    bytes = 0;
    return Ok();
  };
  for (const auto& [place, index] : last) {
    const size_t size = place.size() + values[index].size();
    MUSTER_CHECK_OK(MustFit("MultiSet", keys[index], size));
    if (batch.then.size() == kEtcdOperationsMax || bytes + size > kBatchBytesMax)
      MUSTER_CHECK_OK(send());
    batch.then.push_back(Put(place, values[index]));
    bytes += size;
  }
  return send();
}

// ----------------------------------------------------------------------------------------------
// waiting

// Takes those that are there off the list; `revision` is when it was certain about all others.
Status EtcdStoreClient::Look(Missing& missing, Instant deadline, int64_t& revision) const {
  const size_t places = missing.or_queues ? 2 : 1;
  const Keys keys = missing.List();
  revision = 0;
  for (size_t at = 0; at < keys.size();) {
    const size_t end = std::min(keys.size(), at + kEtcdOperationsMax / places);
    EtcdTransaction transaction;
    for (size_t i = at; i < end; ++i) {
      EtcdRange value{.begin = layout_.ValueOf(keys[i]), .keys_only = true};
      transaction.then.push_back({.kind = Kind::kGet, .range = std::move(value)});
      if (!missing.or_queues) continue;
      EtcdRange queue = layout_.QueueOf(keys[i]);
      queue.limit = 1;
      queue.keys_only = true;
      transaction.then.push_back({.kind = Kind::kGet, .range = std::move(queue)});
    }
    MUSTER_TRY(const EtcdAnswer answer, Commit(transaction, deadline, "Wait", keys[at]));
    if (revision == 0) revision = answer.revision;
    for (size_t i = 0; i < answer.results.size(); ++i) {
      if (answer.results[i].count > 0) missing.keys.erase(keys[at + i / places]);
    }
    at = end;
  }
  return Ok();
}

Status EtcdStoreClient::WaitFor(Missing missing, Time limit, Instant deadline) const {
  while (true) {
    int64_t revision = 0;
    MUSTER_CHECK_OK(Look(missing, deadline, revision));
    if (missing.keys.empty()) return Ok();
    std::vector<std::string> values;
    std::vector<EtcdRange> queues;
    for (const std::string& key : missing.keys) {
      values.push_back(layout_.ValueOf(key));
      if (missing.or_queues) queues.push_back(layout_.QueueOf(key));
    }
    std::vector<EtcdRange> ranges;
    if (values.size() <= kWatchesMax) {
      for (const std::string& each : values) ranges.push_back({.begin = each});
      ranges.insert(ranges.end(), queues.begin(), queues.end());
    } else {
      std::sort(values.begin(), values.end());
      ranges.push_back(Span(values));
      std::vector<std::string> ends;
      for (const EtcdRange& each : queues) ends.insert(ends.end(), {each.begin, each.end});
      std::sort(ends.begin(), ends.end());
      if (!ends.empty()) ranges.push_back(Span(ends));
    }
    const Status come =
        calls_->Await(ranges, revision + 1, deadline, [&](const EtcdChange& change) {
          if (change.deleted) return false;
          std::optional<std::string> key = layout_.KeyOfValue(change.pair.key);
          if (!key && missing.or_queues) key = layout_.KeyOfElement(change.pair.key);
          if (key) missing.keys.erase(*key);
          return missing.keys.empty();
        });
    if (come) return Ok();
    if (EndsWait(come.error())) return TimedOut(limit, missing.List(), come.error());
    if (come.error().code != Code::kNotFound) return come.error();
  }
}

Result<bool> EtcdStoreClient::Check(const Keys& keys, Time limit) {
  Missing missing{.keys = {keys.begin(), keys.end()}, .or_queues = true};
  int64_t revision = 0;
  MUSTER_CHECK_OK(Look(missing, Deadline(limit), revision));
  return missing.keys.empty();
}

Status EtcdStoreClient::Wait(const Keys& keys, Time limit) {
  return WaitFor({.keys = {keys.begin(), keys.end()}, .or_queues = true}, limit, Deadline(limit));
}

// ----------------------------------------------------------------------------------------------
// queues

// The first two results are those of LookAtTail().
Result<EtcdStoreClient::Tail> EtcdStoreClient::TailIn(const EtcdAnswer& answer,
                                                      std::string_view key,
                                                      Instant deadline) const {
  if (const EtcdPair* tail = OnlyPair(answer)) {
    const Result<int64_t> number = ParseCounter(tail->value);
    if (number && *number >= 0) return Tail{static_cast<uint64_t>(*number), tail->changed};
    return Error{Code::kProtocol,
                 Concat("QueuePush of '", Printable(key), "': the key '", tail->key, "' at ",
                        calls_->name(), " is no number; delete it")};
  }
  if (answer.results.at(1).count == 0) return Tail{};
  // The tail went with somebody's lease, or by hand, and left elements. Those are older.
  EtcdRange range = layout_.QueueOf(key);
  range.keys_only = true;
  MUSTER_TRY(const EtcdAnswer all,
             Commit({.then = {{.kind = Kind::kGet, .range = range}}}, deadline, "QueuePush", key));
  const EtcdPair* last =
      all.results.at(0).pairs.empty() ? nullptr : &all.results.at(0).pairs.back();
  if (last == nullptr) return Tail{};
  const std::optional<uint64_t> number = layout_.NumberOf(last->key);
  if (number) return Tail{*number + 1, 0};
  return Error{Code::kProtocol, Concat("QueuePush of '", Printable(key), "': the key '", last->key,
                                       "' at ", calls_->name(), " is no element; delete it")};
}

std::vector<EtcdOperation> EtcdStoreClient::LookAtTail(std::string_view key) const {
  EtcdRange oldest = layout_.QueueOf(key);
  oldest.limit = 1;
  oldest.keys_only = true;
  return {GetOf(layout_.TailOf(key)), {.kind = Kind::kGet, .range = std::move(oldest)}};
}

// An element's number is the tail's, which moves on in the same transaction: so they are in the
// order in which they came, whoever brought them.
Status EtcdStoreClient::Push(std::string_view key, std::string_view value, Time limit) {
  const Instant deadline = Deadline(limit);
  const std::string place = layout_.TailOf(key);
  Backoff backoff(kFirstPause, kLongestPause, calls_->NextSeed());
  MUSTER_TRY(EtcdAnswer answer, Commit({.then = LookAtTail(key)}, deadline, "QueuePush", key));
  for (int64_t lost = 1;; ++lost) {
    MUSTER_TRY(const Tail tail, TailIn(answer, key, deadline));
    std::string element = layout_.ElementOf(key, tail.number);
    MUSTER_CHECK_OK(MustFit("QueuePush", key, element.size() + value.size()));
    const EtcdTransaction transaction{
        .conditions = {Unchanged(place, tail.changed), Absent(element)},
        .then = {Put(place, Concat(tail.number + 1)), Put(std::move(element), value)},
        .otherwise = LookAtTail(key)};
    MUSTER_TRY(answer, Commit(transaction, deadline, "QueuePush", key));
    if (answer.held) return Ok();
    const Instant pause = calls_->clock().Now() + backoff.Next();
    if (pause >= deadline) {
      return Error{Code::kTimeout, Concat("QueuePush of '", Printable(key), "' at ", calls_->name(),
                                          ": timeout after ", limit.count(),
                                          "ms, others were faster ", lost, " times")};
    }
    calls_->clock().SleepUntil(pause);
    if (IsInterrupted()) return Beaten("QueuePush", key, lost);
  }
}

Result<EtcdStoreClient::First> EtcdStoreClient::FirstOf(std::string_view key,
                                                        Instant deadline) const {
  EtcdRange range = layout_.QueueOf(key);
  range.limit = 1;
  MUSTER_TRY(EtcdAnswer answer, Commit({.then = {{.kind = Kind::kGet, .range = std::move(range)}}},
                                       deadline, "QueuePop", key));
  First first;
  first.revision = answer.revision;
  std::vector<EtcdPair>& pairs = answer.results.at(0).pairs;
  if (!pairs.empty()) first.element = std::move(pairs.front());
  return first;
}

// Whoever loses the oldest element to another takes the next one, so somebody always gets on. The
// revision is when the queue was empty.
Result<std::optional<std::string>> EtcdStoreClient::Take(std::string_view key, First first,
                                                         Instant deadline,
                                                         int64_t& revision) const {
  while (first.element) {
    EtcdRange range = layout_.QueueOf(key);
    range.limit = 1;
    const std::string& place = first.element->key;
    MUSTER_TRY(EtcdAnswer answer,
               Commit({.conditions = {{.kind = EtcdCondition::Kind::kCreatedAt,
                                       .key = place,
                                       .revision = first.element->created}},
                       .then = {{.kind = Kind::kDelete, .range = {.begin = place}}},
                       .otherwise = {{.kind = Kind::kGet, .range = std::move(range)}}},
                      deadline, "QueuePop", key));
    if (answer.held) return std::optional(std::move(first.element->value));
    std::vector<EtcdPair>& pairs = answer.results.at(0).pairs;
    first.element.reset();
    if (!pairs.empty()) first.element = std::move(pairs.front());
    first.revision = answer.revision;
  }
  revision = first.revision;
  return std::optional<std::string>();
}

Result<std::optional<std::string>> EtcdStoreClient::TryPop(std::string_view key, Time limit) {
  const Instant deadline = Deadline(limit);
  int64_t revision = 0;
  MUSTER_TRY(First first, FirstOf(key, deadline));
  return Take(key, std::move(first), deadline, revision);
}

Result<std::string> EtcdStoreClient::Pop(std::string_view key, Time limit) {
  const Instant deadline = Deadline(limit);
  while (true) {
    int64_t revision = 0;
    MUSTER_TRY(First first, FirstOf(key, deadline));
    MUSTER_TRY(std::optional<std::string> taken, Take(key, std::move(first), deadline, revision));
    if (taken) return *std::move(taken);
    const Status come = calls_->Await({layout_.QueueOf(key)}, revision + 1, deadline,
                                      [](const EtcdChange& change) { return !change.deleted; });
    if (come || come.error().code == Code::kNotFound) continue;
    if (EndsWait(come.error())) return TimedOut(limit, {std::string(key)}, come.error());
    return come.error();
  }
}

Result<int64_t> EtcdStoreClient::QueueLength(std::string_view key, Time limit) {
  EtcdRange range = layout_.QueueOf(key);
  range.limit = 1;
  range.keys_only = true;
  MUSTER_TRY(const EtcdAnswer answer,
             Commit({.then = {{.kind = Kind::kGet, .range = std::move(range)}}}, Deadline(limit),
                    "QueueLen", key));
  return answer.results.at(0).count;
}

}  // namespace muster
