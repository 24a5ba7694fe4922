#include "server/shared_store.h"

#include <algorithm>
#include <utility>

#include "base/limits.h"

namespace muster {

namespace {
StoreMachineOptions CountedIn(StoreMachineOptions options, MemoryAccount& account) {
  options.account = &account;
  return options;
}
}  // namespace

SharedStore::SharedStore(const StoreMachineOptions& options, uint64_t store_bytes_max, size_t loops,
                         std::function<void(size_t loop)> wake)
    : reply_bytes_max_(options.reply_bytes_max),
      hasher_(options.hash_secret),
      account_(store_bytes_max),
      wake_(std::move(wake)),
      machine_(CountedIn(options, account_)),
      mailboxes_(loops) {}

SharedStore::AddedBytes SharedStore::AddedBy(const PeerGroup& address) {
  const std::lock_guard lock(added_mutex_);
  if (added_by_.size() >= addresses_swept_at_) {
    const bool is_full = added_by_.size() >= kAddressesMax;
    std::erase_if(added_by_, [is_full](const auto& known) {
      return known.second.use_count() == 1 && (is_full || *known.second <= 0);
    });
    addresses_swept_at_ = std::clamp<size_t>(2 * added_by_.size(), 1024, kAddressesMax);
  }
  if (const auto known = added_by_.find(address); known != added_by_.end()) return known->second;
  const bool is_full = added_by_.size() >= kAddressesMax;
  if (is_full) return added_by_.begin()->second;  // the addresses without a counter share one
  return added_by_.emplace(address, std::make_shared<std::atomic<int64_t>>(0)).first->second;
}

uint64_t SharedStore::ReplyRoom() const {
  return std::min(reply_bytes_max_, std::max(account_.Room(), kSmallReplyBytes));
}

std::optional<std::string> SharedStore::Peek(std::string_view key, size_t bytes_max) {
  const std::lock_guard lock(mutex_);
  Released none;
  const Reply reply = machine_.Step({}, {.op = Op::kGet, .key = key}, {}, none);
  if (reply.value.size() > bytes_max) return std::nullopt;
  return std::string(reply.value);
}

bool SharedStore::HasDeadlines() {
  const std::lock_guard lock(mutex_);
  return machine_.HasDeadlines();
}

void SharedStore::OpenScope(std::string_view scope) {
  const std::lock_guard lock(mutex_);
  machine_.OpenScope(scope);
}

void SharedStore::DropScope(std::string_view scope) {
  bool more = true;
  for (int pieces = 1; more; ++pieces) {
    std::unique_lock lock(mutex_);
    more = machine_.DropScope(scope, kKeysPerPiece);
    const bool is_enough = more && pieces == kPiecesDroppedAtOnce;
    if (is_enough) machine_.ExpireScope(scope);
    Garbage garbage = machine_.TakeGarbage();
    lock.unlock();
    Destroy(std::move(garbage), 0);
    if (is_enough) return wake_(0);
  }
}

void SharedStore::Destroy(Garbage garbage, size_t loop) {
  if (!garbage.DestroySome(kDestroyedPerTurn)) return;
  try {
    {
      const std::lock_guard lock(garbage_mutex_);
      garbage_.push_back(std::move(garbage));
      has_garbage_ = true;
    }
    wake_(loop);
  } catch (const std::bad_alloc&) {
    // It is destroyed now, or after the next turn.
  }
}

void SharedStore::DestroyMore(size_t loop) {
  std::list<Garbage> taken;
  {
    const std::lock_guard lock(garbage_mutex_);
    if (!garbage_.empty()) taken.splice(taken.begin(), garbage_, garbage_.begin());
    has_garbage_ = !garbage_.empty();
  }
  if (taken.empty()) return;
  bool more = taken.front().DestroySome(kDestroyedPerTurn);
  // If memory is scarce, the next request may need this memory.
  while (more && account_.Room() < account_.limit() / 4) {
    more = taken.front().DestroySome(kDestroyedPerTurn);
  }
  {
    const std::lock_guard lock(garbage_mutex_);
    if (more) garbage_.splice(garbage_.end(), taken);
    has_garbage_ = more = !garbage_.empty();
  }
  try {
    if (more) wake_(loop);
  } catch (const std::bad_alloc&) {
    // The next turn destroys more.
  }
}

SharedStore::Turn::Turn(SharedStore& store, size_t loop)
    : store_(store),
      loop_(loop),
      lock_(store.mutex_),
      cleared_before_(store.machine_.places_cleared()) {
  arrived_.swap(store_.mailboxes_[loop_]);
}

bool SharedStore::Turn::Take(Released& from, size_t begin, ClientId client) {
  const auto first = from.begin() + static_cast<std::ptrdiff_t>(begin);
  const auto found = std::find(first, from.end(), client);
  if (found == from.end()) return false;
  from.erase(found);
  return true;
}

bool SharedStore::Turn::Advance(LongStep& step, ClientId client, Instant now,
                                const LongStep::Take& take, bool* wait_ended) {
  const size_t before = released_.size();
  const bool done = step.Advance(store_.machine_, now, take, released_);
  *wait_ended = Take(released_, before, client);
  return done;
}

Released SharedStore::Turn::Finish() {
  const bool has_more_garbage = store_.has_garbage_.load(std::memory_order_relaxed);
  if (released_.empty() && !store_.machine_.has_garbage() && !has_more_garbage) {
    lock_.unlock();
    return std::move(arrived_);
  }
  std::vector<size_t> to_wake;
  for (const ClientId client : released_) {
    const size_t loop = LoopOf(client);
    if (loop == loop_) {
      arrived_.push_back(client);
      continue;
    }
    // The loop of a mailbox that already holds something has been woken.
    if (store_.mailboxes_[loop].empty()) to_wake.push_back(loop);
    store_.mailboxes_[loop].push_back(client);
  }
  Garbage garbage = store_.machine_.TakeGarbage();
  lock_.unlock();
  for (const size_t loop : to_wake) store_.wake_(loop);
  if (!garbage.empty()) store_.Destroy(std::move(garbage), loop_);
  if (has_more_garbage) store_.DestroyMore(loop_);
  return std::move(arrived_);
}

}  // namespace muster
