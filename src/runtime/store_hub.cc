#include "runtime/store_hub.h"

#include <algorithm>

#include "base/limits.h"

namespace muster {

StoreHub::StoreHub(const StoreMachineOptions& options, uint64_t queued_bytes_max, size_t loops,
                   std::function<void(size_t loop)> knock)
    : reply_bytes_max_(options.reply_bytes_max),
      queued_bytes_max_(queued_bytes_max),
      knock_(std::move(knock)),
      machine_(options),
      mailboxes_(loops) {}

uint64_t StoreHub::ReplyRoom() const {
  const uint64_t queued = queued_bytes_.load(std::memory_order_relaxed);
  const uint64_t room = queued_bytes_max_ - std::min(queued, queued_bytes_max_);
  return std::min(reply_bytes_max_, std::max(room, kSmallReplyBytes));
}

std::string StoreHub::Peek(std::string_view key) {
  const std::lock_guard lock(mutex_);
  Released nobody;
  machine_.LimitReplies(reply_bytes_max_);
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

StoreHub::Turn::Turn(StoreHub& hub, size_t loop) : hub_(hub), loop_(loop), lock_(hub.mutex_) {
  arrived_.swap(hub_.mailboxes_[loop_]);
  hub_.machine_.LimitReplies(hub_.ReplyRoom());
}

bool StoreHub::Turn::TakeArrived(ClientId client) {
  if (arrived_.empty()) return false;
  const auto found = std::find(arrived_.begin(), arrived_.end(), client);
  if (found == arrived_.end()) return false;
  arrived_.erase(found);
  return true;
}

Reply StoreHub::Turn::Step(ClientId client, const Request& request, Instant now, bool* let_go) {
  const auto before = static_cast<std::ptrdiff_t>(released_.size());
  const Reply reply = hub_.machine_.Step(client, request, now, released_);
  const auto own = std::find(released_.begin() + before, released_.end(), client);
  *let_go = own != released_.end();
  if (*let_go) released_.erase(own);
  return reply;
}

Released StoreHub::Turn::Finish() {
  std::vector<size_t> to_knock;
  for (const ClientId client : released_) {
    const size_t loop = LoopOf(client);
    if (loop == loop_) {
      arrived_.push_back(client);
      continue;
    }
    // A mailbox that already holds something has been knocked for.
    if (hub_.mailboxes_[loop].empty()) to_knock.push_back(loop);
    hub_.mailboxes_[loop].push_back(client);
  }
  lock_.unlock();
  for (const size_t loop : to_knock) hub_.knock_(loop);
  return std::move(arrived_);
}

}  // namespace muster
