#include "runtime/etcd_outbox.h"

#include <utility>

#include "base/planted.h"
#include "base/probe.h"

namespace muster {

namespace {

constexpr Duration kPatience = 5s;
constexpr Duration kFirstPause = 20ms;
constexpr Duration kLongestPause = 1s;
// Room for keys and whatever else stands around the values.
constexpr size_t kBatchBytesMax = kEtcdRequestBytesMax * 2 / 3;

size_t SizeOf(const EtcdOperation& operation) {
  return operation.range.begin.size() + operation.value.size() + 64;
}

}  // namespace

EtcdOutbox::EtcdOutbox(Etcd& etcd, Loop& loop, EtcdCondition fence, uint64_t seed, Owner& owner)
    : etcd_(etcd), loop_(loop), fence_(std::move(fence)), seed_(seed), owner_(owner) {}

EtcdOutbox::Batch& EtcdOutbox::Open() {
  // What is under way does not change any more.
  if (sealed_ || (batches_.size() == 1 && !sent_.empty())) batches_.emplace_back();
  sealed_ = false;
  if (!posted_ && sent_.empty() && !timer_) {
    posted_ = true;
    // Later in this turn there may be more of it.
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
  operation = {.kind = EtcdOperation::Kind::kPut,
               .range = {.begin = std::move(key)},
               .value = std::move(value),
               .lease = lease};
}

void EtcdOutbox::Delete(EtcdRange range) {
  Batch& batch = Open();
  EtcdOperation& operation = batch[range.begin];
  operation = {.kind = EtcdOperation::Kind::kDelete, .range = std::move(range)};
}

void EtcdOutbox::Seal() { sealed_ = true; }

void EtcdOutbox::Send() {
  if (over_ || batches_.empty() || !sent_.empty()) return;
  EtcdTransaction transaction;
  if (!Planted(Bug::kUnfencedLeader)) transaction.conditions.push_back(fence_);
  size_t bytes = 0;
  for (const auto& [key, operation] : batches_.front()) {
    bytes += SizeOf(operation);
    const bool full = sent_.size() == kEtcdOperationsMax || bytes > kBatchBytesMax;
    if (full && !sent_.empty()) break;
    transaction.then.push_back(operation);
    sent_.push_back(key);
  }
  etcd_.Commit(std::move(transaction), kPatience,
               lifetime_.Guard([this](Result<EtcdAnswer> answer) { OnSent(std::move(answer)); }));
}

void EtcdOutbox::OnSent(Result<EtcdAnswer> answer) {
  const std::vector<std::string> sent = std::exchange(sent_, {});
  if (!answer) {
    MUSTER_PROBE("a leader's write failed");
    // Once more, the same: what may have been written changes nothing when it is written again.
    if (!backoff_) backoff_.emplace(kFirstPause, kLongestPause, seed_);
    timer_ = loop_.Every(backoff_->Next(), [this] {
      timer_.reset();
      Send();
    });
    return owner_.OnWriteFailed(answer.error());
  }
  backoff_.reset();
  if (!answer->held) {
    MUSTER_PROBE("a leader learned from a write that it does not lead any more");
    over_ = true;
    return owner_.OnDeposed();
  }
  Batch& batch = batches_.front();
  for (const std::string& key : sent) batch.erase(key);
  const bool done = batch.empty();
  if (done) batches_.pop_front();
  if (batches_.empty()) sealed_ = true;
  Send();
  owner_.OnWritten();
}

}  // namespace muster
