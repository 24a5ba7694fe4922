#include "server/store_hub.h"

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

StoreHub::StoreHub(const StoreMachineOptions& options, uint64_t store_bytes_max, size_t loops,
                   std::function<void(size_t loop)> wake)
    : reply_bytes_max_(options.reply_bytes_max),
      hasher_(options.hash_secret),
      account_(store_bytes_max),
      wake_(std::move(wake)),
      machine_(CountedIn(options, account_)),
      mailboxes_(loops) {}

uint64_t StoreHub::ReplyRoom() const {
  return std::min(reply_bytes_max_, std::max(account_.Room(), kSmallReplyBytes));
}

std::string StoreHub::Peek(std::string_view key) {
  const std::lock_guard lock(mutex_);
  Released nobody;
  const Reply reply = machine_.Step({}, {.op = Op::kGet, .key = key}, {}, nobody);
  return std::string(reply.value);
}

bool StoreHub::Contains(std::string_view key) {
  const std::lock_guard lock(mutex_);
  Released nobody;
  const Request check{.op = Op::kCheck, .keys = {&key, 1}};
  return machine_.Step({}, check, {}, nobody).kind == Reply::Kind::kReady;
}

void StoreHub::OpenScope(std::string_view scope) {
  const std::lock_guard lock(mutex_);
  machine_.OpenScope(scope);
}

void StoreHub::DropScope(std::string_view scope) {
  bool more = true;
  while (more) {
    const std::lock_guard lock(mutex_);
    more = machine_.DropScope(scope, kKeysPerPiece);
  }
}

Duration StoreHub::TakeLongestTurn() {
  const std::lock_guard lock(mutex_);
  return std::exchange(longest_turn_, Duration{});
}

StoreHub::Turn::Turn(StoreHub& hub, size_t loop) : hub_(hub), loop_(loop), lock_(hub.mutex_) {
  if (hub_.clock_) began_ = hub_.clock_();
  arrived_.swap(hub_.mailboxes_[loop_]);
}

bool StoreHub::Turn::TakeArrived(ClientId client) {
  if (arrived_.empty()) return false;
  const auto found = std::find(arrived_.begin(), arrived_.end(), client);
  if (found == arrived_.end()) return false;
  arrived_.erase(found);
  return true;
}

bool StoreHub::Turn::TakeOwn(ClientId client, size_t before) {
  const auto first = released_.begin() + static_cast<std::ptrdiff_t>(before);
  const auto own = std::find(first, released_.end(), client);
  if (own == released_.end()) return false;
  released_.erase(own);
  return true;
}

bool StoreHub::Turn::Advance(LongStep& step, ClientId client, Instant now,
                             const LongStep::Take& take, bool* let_go) {
  const size_t before = released_.size();
  const bool done = step.Advance(hub_.machine_, now, take, released_);
  *let_go = TakeOwn(client, before);
  return done;
}

Released StoreHub::Turn::Finish() {
  if (released_.empty() && !hub_.machine_.has_garbage() && !hub_.clock_) {
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
    // A mailbox that already holds something has been knocked for.
    if (hub_.mailboxes_[loop].empty()) to_wake.push_back(loop);
    hub_.mailboxes_[loop].push_back(client);
  }
  // Destroyed behind the unlock: the memory of large values is given back page by page.
  StoreMachine::Garbage garbage;
  if (hub_.machine_.has_garbage()) garbage = hub_.machine_.TakeGarbage();
  if (hub_.clock_) hub_.longest_turn_ = std::max(hub_.longest_turn_, hub_.clock_() - began_);
  lock_.unlock();
  for (const size_t loop : to_wake) hub_.wake_(loop);
  return std::move(arrived_);
}

}  // namespace muster
