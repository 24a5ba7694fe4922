// The queues of a store in etcd.
#include <optional>
#include <utility>

#include "base/text.h"
#include "etcd/etcd_store.h"
#include "store/throw.h"

namespace muster {

/// The number of a queue's next element, and the revision at which that was written; 0: never.
struct EtcdStore::Tail {
  uint64_t number = 0;
  int64_t changed = 0;
};

// The first two results are those of LookAtTail().
EtcdStore::Tail EtcdStore::TailIn(const Operation& operation, const EtcdAnswer& answer) const {
  const auto refuse = [&](const std::string& etcd_key, std::string_view what) {
    Throw({Code::kProtocol,
           Concat("QueuePush of '", Printable(operation.key), "': the key '", etcd_key, "' at ",
                  calls_->name(), " is no ", what, "; delete it")});
  };
  if (const EtcdPair* tail = answer.Pair()) {
    const Result<int64_t> number = ParseCounter(tail->value);
    if (!number || *number < 0) refuse(tail->key, "number");
    return {static_cast<uint64_t>(*number), tail->changed};
  }
  if (answer.results.at(1).count == 0) return {};
  // The tail was deleted, by hand or with its lease, and elements are left. They are older.
  EtcdRange range = layout_.QueueOf(operation.key);
  range.keys_only = true;
  const EtcdAnswer all = Commit(operation, {.then = {EtcdGet(range)}});
  const std::vector<EtcdPair>& elements = all.results.at(0).pairs;
  if (elements.empty()) return {};
  const std::optional<uint64_t> number = layout_.NumberOf(elements.back().key);
  if (!number) refuse(elements.back().key, "element");
  return {*number + 1, 0};
}

std::vector<EtcdOperation> EtcdStore::LookAtTail(std::string_view key) const {
  return {EtcdGet(layout_.TailOf(key)), EtcdGet(EtcdFirstKey(layout_.QueueOf(key)))};
}

// An element gets the tail's number, and the same transaction increments the tail. So the elements
// of all clients are in the order of their transactions.
void EtcdStore::QueuePush(std::string_view key, std::string_view value) {
  const Operation operation = Begin("QueuePush", key);
  const std::string place = layout_.TailOf(key);
  Backoff backoff = NewBackoff();
  EtcdAnswer answer = Commit(operation, {.then = LookAtTail(key)});
  for (int64_t lost = 1;; ++lost) {
    const Tail tail = TailIn(operation, answer);
    std::string element = layout_.ElementOf(key, tail.number);
    MustFit("QueuePush", key, element.size() + value.size());
    answer = Commit(operation,
                    {.conditions = {IfChangedAt(place, tail.changed), IfCreatedAt(element, 0)},
                     .then = {Put(place, Concat(tail.number + 1)), Put(std::move(element), value)},
                     .otherwise = LookAtTail(key)});
    if (answer.held) return;
    PauseAfterLoss(operation, backoff, lost);
  }
}

// A caller that loses the oldest element to another takes the next one, so some caller always makes
// progress.
std::string EtcdStore::QueuePop(std::string_view key, PopMode mode) {
  const Operation operation = Begin("QueuePop", key);
  EtcdRange range = layout_.QueueOf(key);
  range.limit = 1;
  const EtcdOperation first = EtcdGet(range);
  EtcdAnswer answer = Commit(operation, {.then = {first}});
  while (true) {
    if (const EtcdPair* const found = answer.Pair()) {
      const EtcdPair element = *found;
      answer = Commit(operation, {.conditions = {IfCreatedAt(element.key, element.created)},
                                  .then = {EtcdDelete({element.key})},
                                  .otherwise = {first}});
      if (answer.held) return element.value;
      continue;
    }
    if (mode == PopMode::kDoNotWait)
      throw QueueEmptyError(Concat("queue is empty: ", Printable(key)));
    AwaitChange(operation, {range}, answer.revision + 1,
                [](const EtcdChange& change) { return !change.deleted; },
                {.keys = {operation.key}});
    answer = Commit(operation, {.then = {first}});  // also after a compaction
  }
}

int64_t EtcdStore::QueueLen(std::string_view key) {
  const EtcdTransaction look{.then = {EtcdGet(EtcdFirstKey(layout_.QueueOf(key)))}};
  return Commit(Begin("QueueLen", key), look).results.at(0).count;
}

}  // namespace muster
