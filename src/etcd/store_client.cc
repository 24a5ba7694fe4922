#include "etcd/store_client.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "base/interruption.h"
#include "base/text.h"

namespace muster {

namespace {

// A caller with no time to wait still gets what is there, as from a TcpStore.
constexpr Duration kAnswerGrace = 5s;
// More keys than this are watched as one range, from the first to the last.
constexpr size_t kWatchesMax = 4;
constexpr size_t kNamesShown = 16;
constexpr int64_t kKeysPerPage = 4096;
// Of a request, besides keys and values.
constexpr size_t kFrameBytes = 64 * 1024;
constexpr size_t kBatchBytesMax = kEtcdRequestBytesMax - kFrameBytes;

/// One range from the first to the last of `keys`, which are sorted.
EtcdRange Span(const std::vector<std::string>& keys) {
  return {.begin = keys.front(), .end = keys.back() + '\0'};
}

}  // namespace

/// Keys that do not exist yet.
struct EtcdStoreClient::Missing {
  std::set<std::string, std::less<>> keys;
  bool or_queues = false;

  Keys List() const { return {keys.begin(), keys.end()}; }
};

EtcdStoreClient::EtcdStoreClient(std::shared_ptr<EtcdCalls> calls, std::string_view prefix,
                                 int64_t lease)
    : calls_(std::move(calls)), layout_(prefix), lease_(lease) {}

// ----------------------------------------------------------------------------------------------
// shared by all operations

Instant EtcdStoreClient::Deadline(Time limit) const {
  return DeadlineAfter(calls_->clock().Now(), limit);
}

Instant EtcdStoreClient::AnswerBy(Instant deadline) const {
  return std::max(deadline, calls_->clock().Now() + kAnswerGrace);
}

EtcdOperation EtcdStoreClient::Put(std::string etcd_key, std::string_view value) const {
  return EtcdPut(std::move(etcd_key), std::string(value), lease_);
}

Result<EtcdAnswer> EtcdStoreClient::Commit(const EtcdTransaction& transaction, Instant deadline,
                                           std::string_view what, std::string_view key) const {
  Result<EtcdAnswer> answer = calls_->Commit(transaction, AnswerBy(deadline));
  if (answer) return answer;
  // For a caller, kTimeout means that a key did not come. Here the cluster did not answer.
  const Code code = answer.error().code;
  const bool unanswered = code == Code::kTimeout;
  const bool open = (unanswered || code == Code::kInterrupted) && !OnlyReads(transaction);
  return Error{unanswered ? Code::kUnavailable : code,
               Concat(what, " of '", Printable(key), "': ", answer.error().message,
                      open ? " (it may have happened: check before repeating)" : "")};
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

Status EtcdStoreClient::MustFit(std::string_view what, std::string_view key, size_t bytes) {
  if (bytes <= kEtcdRequestBytesMax) return Ok();
  return Error{Code::kInvalid, Concat(what, " of '", Printable(key), "': ", HumanBytes(bytes),
                                      ", but etcd takes at most ", HumanBytes(kEtcdRequestBytesMax),
                                      " in one request; keep large values elsewhere")};
}

Status EtcdStoreClient::PauseAfterLoss(Backoff& backoff, std::string_view what,
                                       std::string_view key, Time limit, Instant deadline,
                                       int64_t lost) const {
  const Instant pause = calls_->clock().Now() + backoff.Next();
  if (pause >= deadline) {
    return Error{Code::kTimeout,
                 Concat(what, " of '", Printable(key), "' at ", calls_->name(), ": timeout after ",
                        limit.count(), "ms, others were faster ", lost,
                        " times; let fewer write it at once")};
  }
  calls_->clock().SleepUntil(pause);
  if (!IsInterrupted()) return Ok();
  return Error{Code::kInterrupted,
               Concat(what, " of '", Printable(key), "': interrupted after others were faster ",
                      lost, " times")};
}

Result<bool> EtcdStoreClient::AwaitChange(
    const std::vector<EtcdRange>& ranges, int64_t revision, Time limit, Instant deadline,
    const std::function<Keys()>& missing,
    const std::function<bool(const EtcdChange&)>& enough) const {
  const Status change = calls_->Await(ranges, revision, deadline, enough);
  if (change) return true;
  const Error& why = change.error();
  if (why.code == Code::kTimeout || why.code == Code::kInterrupted)
    return TimedOut(limit, missing(), why);
  if (why.code != Code::kNotFound) return why;
  return false;
}

Status EtcdStoreClient::Reach(Time limit) {
  const Result<EtcdAnswer> answer =
      calls_->Commit({.then = {EtcdGet(EtcdFirstKey(layout_.Values()))}}, Deadline(limit));
  if (answer) return Ok();
  const Code code = answer.error().code;
  return Error{code == Code::kTimeout ? Code::kUnavailable : code, answer.error().message};
}

Status EtcdStoreClient::Replace(std::string_view key, std::string_view what, Time limit,
                                const Next& next) const {
  const Instant deadline = Deadline(limit);
  const std::string place = layout_.ValueOf(key);
  Backoff backoff(kFirstPause, kLongestPause, calls_->NextSeed());
  std::optional<EtcdPair> present;  // what was read last
  bool looked = false;
  for (int64_t lost = 0;; ++lost) {
    MUSTER_TRY(const std::optional<std::string> value, next(present ? &*present : nullptr));
    if (!value && looked) return Ok();
    EtcdTransaction transaction{.otherwise = {EtcdGet(place)}};
    if (value) {
      MUSTER_CHECK_OK(MustFit(what, key, place.size() + value->size()));
      transaction.then = {Put(place, *value)};
    } else {
      transaction.then = {EtcdGet(place)};
    }
    transaction.conditions = {IfChangedAt(place, present ? present->changed : 0)};
    MUSTER_TRY(const EtcdAnswer answer, Commit(transaction, deadline, what, key));
    if (answer.held && value) return Ok();
    const EtcdPair* found = answer.Pair();
    present = found == nullptr ? std::nullopt : std::optional(*found);
    // The first attempt was made without reading, so nobody has won against it.
    if (std::exchange(looked, true))
      MUSTER_CHECK_OK(PauseAfterLoss(backoff, what, key, limit, deadline, lost));
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
  const auto only_key = [key] { return Keys{std::string(key)}; };
  while (true) {
    MUSTER_TRY(const EtcdAnswer answer, Commit({.then = {EtcdGet(place)}}, deadline, "Get", key));
    if (const EtcdPair* found = answer.Pair()) return found->value;
    std::string value;
    MUSTER_TRY(const bool came, AwaitChange({{.begin = place}}, answer.revision + 1, limit,
                                            deadline, only_key, [&](const EtcdChange& change) {
                                              value = change.pair.value;
                                              return !change.deleted;
                                            }));
    if (came) return value;
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
  MUSTER_TRY(const EtcdAnswer answer, Commit({.then = {EtcdDelete({layout_.ValueOf(key)})}},
                                             Deadline(limit), "DeleteKey", key));
  return answer.results.at(0).count > 0;
}

Result<int64_t> EtcdStoreClient::Count(Time limit) {
  const EtcdRange range = EtcdFirstKey(layout_.Values());  // the count is that of all
  MUSTER_TRY(const EtcdAnswer answer,
             Commit({.then = {EtcdGet(range)}}, Deadline(limit), "GetNumKeys", range.begin));
  return answer.results.at(0).count;
}

Result<EtcdStoreClient::Keys> EtcdStoreClient::ListKeys(Time limit) {
  const Instant deadline = Deadline(limit);
  EtcdRange range = layout_.Values();
  range.limit = kKeysPerPage;
  range.keys_only = true;
  Keys keys;
  while (true) {
    MUSTER_TRY(const EtcdAnswer answer,
               Commit({.then = {EtcdGet(range)}}, deadline, "ListKeys", range.begin));
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
    for (size_t i = at; i < end; ++i) transaction.then.push_back(EtcdGet(layout_.ValueOf(keys[i])));
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

// Removes the keys that exist. At `revision` all others did not.
Status EtcdStoreClient::FindMissing(Missing& missing, Instant deadline, int64_t& revision) const {
  const size_t places = missing.or_queues ? 2 : 1;
  const Keys keys = missing.List();
  revision = 0;
  for (size_t at = 0; at < keys.size();) {
    const size_t end = std::min(keys.size(), at + kEtcdOperationsMax / places);
    EtcdTransaction transaction;
    for (size_t i = at; i < end; ++i) {
      EtcdRange value{.begin = layout_.ValueOf(keys[i]), .keys_only = true};
      transaction.then.push_back(EtcdGet(std::move(value)));
      if (!missing.or_queues) continue;
      transaction.then.push_back(EtcdGet(EtcdFirstKey(layout_.QueueOf(keys[i]))));
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
    MUSTER_CHECK_OK(FindMissing(missing, deadline, revision));
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
    const auto is_last = [&](const EtcdChange& change) {
      if (change.deleted) return false;
      std::optional<std::string> key = layout_.KeyOfValue(change.pair.key);
      if (!key && missing.or_queues) key = layout_.KeyOfElement(change.pair.key);
      if (key) missing.keys.erase(*key);
      return missing.keys.empty();
    };
    MUSTER_TRY(const bool came,
               AwaitChange(
                   ranges, revision + 1, limit, deadline, [&] { return missing.List(); }, is_last));
    if (came) return Ok();
  }
}

Result<bool> EtcdStoreClient::Check(const Keys& keys, Time limit) {
  Missing missing{.keys = {keys.begin(), keys.end()}, .or_queues = true};
  int64_t revision = 0;
  MUSTER_CHECK_OK(FindMissing(missing, Deadline(limit), revision));
  return missing.keys.empty();
}

Status EtcdStoreClient::Wait(const Keys& keys, Time limit) {
  return WaitFor({.keys = {keys.begin(), keys.end()}, .or_queues = true}, limit, Deadline(limit));
}

}  // namespace muster
