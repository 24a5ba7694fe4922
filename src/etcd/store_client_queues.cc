// The queues of a store in etcd.
#include <optional>
#include <utility>

#include "base/text.h"
#include "etcd/store_client.h"

namespace muster {

/// The number of a queue's next element, and the revision at which that was written; 0: never.
struct EtcdStoreClient::Tail {
  uint64_t number = 0;
  int64_t changed = 0;
};

/// The oldest element of a queue; null if there is none.
struct EtcdStoreClient::First {
  std::optional<EtcdPair> element;
  int64_t revision = 0;
};

// The first two results are those of LookAtTail().
Result<EtcdStoreClient::Tail> EtcdStoreClient::TailIn(const EtcdAnswer& answer,
                                                      std::string_view key,
                                                      Instant deadline) const {
  if (const EtcdPair* tail = answer.Pair()) {
    const Result<int64_t> number = ParseCounter(tail->value);
    if (number && *number >= 0) return Tail{static_cast<uint64_t>(*number), tail->changed};
    return Error{Code::kProtocol,
                 Concat("QueuePush of '", Printable(key), "': the key '", tail->key, "' at ",
                        calls_->name(), " is no number; delete it")};
  }
  if (answer.results.at(1).count == 0) return Tail{};
  // The tail was deleted, by hand or with its lease, and elements are left. They are older.
  EtcdRange range = layout_.QueueOf(key);
  range.keys_only = true;
  MUSTER_TRY(const EtcdAnswer all, Commit({.then = {EtcdGet(range)}}, deadline, "QueuePush", key));
  const EtcdPair* last =
      all.results.at(0).pairs.empty() ? nullptr : &all.results.at(0).pairs.back();
  if (last == nullptr) return Tail{};
  const std::optional<uint64_t> number = layout_.NumberOf(last->key);
  if (number) return Tail{*number + 1, 0};
  return Error{Code::kProtocol, Concat("QueuePush of '", Printable(key), "': the key '", last->key,
                                       "' at ", calls_->name(), " is no element; delete it")};
}

std::vector<EtcdOperation> EtcdStoreClient::LookAtTail(std::string_view key) const {
  return {EtcdGet(layout_.TailOf(key)), EtcdGet(EtcdFirstKey(layout_.QueueOf(key)))};
}

// An element gets the tail's number, and the same transaction increments the tail. So the elements
// of all clients are in the order of their transactions.
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
        .conditions = {IfChangedAt(place, tail.changed), IfCreatedAt(element, 0)},
        .then = {Put(place, Concat(tail.number + 1)), Put(std::move(element), value)},
        .otherwise = LookAtTail(key)};
    MUSTER_TRY(answer, Commit(transaction, deadline, "QueuePush", key));
    if (answer.held) return Ok();
    MUSTER_CHECK_OK(PauseAfterLoss(backoff, "QueuePush", key, limit, deadline, lost));
  }
}

Result<EtcdStoreClient::First> EtcdStoreClient::FirstOf(std::string_view key,
                                                        Instant deadline) const {
  EtcdRange range = layout_.QueueOf(key);
  range.limit = 1;
  MUSTER_TRY(EtcdAnswer answer,
             Commit({.then = {EtcdGet(std::move(range))}}, deadline, "QueuePop", key));
  First first;
  first.revision = answer.revision;
  std::vector<EtcdPair>& pairs = answer.results.at(0).pairs;
  if (!pairs.empty()) first.element = std::move(pairs.front());
  return first;
}

// A caller that loses the oldest element to another takes the next one, so some caller always makes
// progress. At `revision` the queue was empty.
Result<std::optional<std::string>> EtcdStoreClient::Take(std::string_view key, First first,
                                                         Instant deadline,
                                                         int64_t& revision) const {
  while (first.element) {
    EtcdRange range = layout_.QueueOf(key);
    range.limit = 1;
    const std::string& place = first.element->key;
    MUSTER_TRY(EtcdAnswer answer,
               Commit({.conditions = {IfCreatedAt(place, first.element->created)},
                       .then = {EtcdDelete({place})},
                       .otherwise = {EtcdGet(std::move(range))}},
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
    MUSTER_TRY(const bool came, AwaitChange(
                                    {layout_.QueueOf(key)}, revision + 1, limit, deadline,
                                    [key] { return Keys{std::string(key)}; },
                                    [](const EtcdChange& change) { return !change.deleted; }));
    static_cast<void>(came);  // either way, read again
  }
}

Result<int64_t> EtcdStoreClient::QueueLength(std::string_view key, Time limit) {
  MUSTER_TRY(const EtcdAnswer answer,
             Commit({.then = {EtcdGet(EtcdFirstKey(layout_.QueueOf(key)))}}, Deadline(limit),
                    "QueueLen", key));
  return answer.results.at(0).count;
}

}  // namespace muster
