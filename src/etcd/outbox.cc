#include "etcd/outbox.h"

#include <utility>

#include "base/instrumented.h"
#include "base/text.h"

namespace muster {

namespace {

// The rest is for keys and framing.
constexpr size_t kBatchBytesMax = kEtcdRequestBytesMax * 2 / 3;

size_t SizeOf(const EtcdOperation& operation) {
  return operation.range.begin.size() + operation.value.size() + 64;
}

}  // namespace

std::vector<EtcdCondition> IfLeading(const EtcdPair& fence) {
  return {IfCreatedAt(fence.key, fence.created),
          {.kind = EtcdCondition::Kind::kValueIs, .key = fence.key, .value = fence.value}};
}

EtcdOutbox::EtcdOutbox(Etcd& etcd, Loop& loop, EtcdPair fence, EtcdTurn turn, uint64_t seed,
                       OnWrite on_write)
    : etcd_(etcd),
      loop_(loop),
      fence_(std::move(fence)),
      turn_(std::move(turn)),
      seed_(seed),
      on_write_(std::move(on_write)) {}

EtcdOutbox::Batch& EtcdOutbox::Open() {
  // A batch that is being sent does not change any more.
  if (sealed_ || (batches_.size() == 1 && !sent_.empty())) batches_.emplace_back();
  sealed_ = false;
  if (!posted_ && sent_.empty() && !timer_) {
    posted_ = true;
    // At the end of the turn: until then there may be more to write.
    loop_.Post(lifetime_.Guard([this] {
      posted_ = false;
      Send();
    }));
  }
  return batches_.back();
}

void EtcdOutbox::Put(std::string key, std::string value, int64_t lease) {
  Batch& batch = Open();
  EtcdOperation& operation = batch[key];
  operation = EtcdPut(std::move(key), std::move(value), lease);
}

void EtcdOutbox::Delete(EtcdRange range) {
  Batch& batch = Open();
  EtcdOperation& operation = batch[range.begin];
  operation = EtcdDelete(std::move(range));
}

void EtcdOutbox::Send() {
  if (over_ || batches_.empty() || !sent_.empty()) return;
  pending_ = {};
  size_t bytes = 0;
  for (const auto& [key, operation] : batches_.front()) {
    bytes += SizeOf(operation);
    const bool full = sent_.size() + 1 == kEtcdOperationsMax || bytes > kBatchBytesMax;
    if (full && !sent_.empty()) break;
    pending_.then.push_back(operation);
    sent_.push_back(key);
  }
  pending_.then.push_back(EtcdPut(turn_.key, Concat(turn_.name, "-", ++serial_), turn_.lease));
  pending_.otherwise = {EtcdGet(fence_.key), EtcdGet(turn_.key)};
  if (!Planted(Bug::kUnfencedLeader) && !Planted(Bug::kFenceIgnored))
    pending_.conditions = IfLeading(fence_);
  if (!Planted(Bug::kUnfencedLeader) && !Planted(Bug::kTurnIgnored))
    pending_.conditions.push_back(IfChangedAt(turn_.key, turn_.changed));
  Try();
}

void EtcdOutbox::Try() {
  etcd_.Commit(pending_, kEtcdPatience,
               lifetime_.Guard(std::bind_front(&EtcdOutbox::OnSent, this)));
}

bool EtcdOutbox::WasApplied(const EtcdAnswer& answer) {
  const EtcdPair* const leader = answer.Pair(0);
  const EtcdPair* const turn = answer.Pair(1);
  const bool leads =
      leader != nullptr && leader->created == fence_.created && leader->value == fence_.value;
  if (leads && turn != nullptr && turn->value == pending_.then.back().value) {
    MUSTER_ETCD_PROBE("a leader's write had been made, and its answer was lost");
    turn_.changed = turn->changed;
    return true;
  }
  over_ = true;
  if (leads) {
    MUSTER_ETCD_PROBE("a leader was overtaken by an earlier write of its own");
    on_write_(Error{Code::kConflict, "an earlier write of this leader was applied late"});
  } else {
    MUSTER_ETCD_PROBE("a leader learned from a write that it was deposed");
    on_write_(Error{Code::kClosed, "this node no longer leads"});
  }
  return false;
}

void EtcdOutbox::OnSent(Result<EtcdAnswer> answer) {
  if (!answer) {
    MUSTER_ETCD_PROBE("a leader's write failed");
    // Sent again unchanged: the first attempt may have been applied.
    if (!backoff_) backoff_.emplace(kEtcdFirstPause, kEtcdLongestPause, seed_);
    timer_ = loop_.After(backoff_->Next(), [this] {
      timer_.reset();
      Try();
    });
    return on_write_(answer.error());
  }
  backoff_.reset();
  if (answer->held) {
    turn_.changed = answer->revision;
  } else if (!WasApplied(*answer)) {
    return;
  }
  Batch& batch = batches_.front();
  for (const std::string& key : std::exchange(sent_, {})) batch.erase(key);
  if (batch.empty()) batches_.pop_front();
  if (batches_.empty()) sealed_ = true;
  Send();
  on_write_(Ok());
}

}  // namespace muster
