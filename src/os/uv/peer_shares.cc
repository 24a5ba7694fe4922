#include "os/uv/peer_shares.h"

#include <arpa/inet.h>

#include <algorithm>

#include "base/assert.h"
#include "base/text.h"
#include "os/posix/address.h"

namespace muster {

PeerGroup GroupOf(const sockaddr_storage& address) {
  PeerGroup group = BytesOf(*Raw(address));
  if (!IsMapped(group)) std::fill(group.begin() + 8, group.end(), uint8_t{0});
  return group;
}

std::string ToString(const PeerGroup& group) {
  char text[INET6_ADDRSTRLEN] = "?";
  if (IsMapped(group)) {
    inet_ntop(AF_INET, group.data() + group.size() - 4, text, sizeof text);
    return text;
  }
  inet_ntop(AF_INET6, group.data(), text, sizeof text);
  return Concat(std::string_view(text), "/64");
}

void PeerShares::Add(const PeerGroup& from) {
  const std::lock_guard lock(mutex_);
  size_t& held = held_[from];
  by_count_.erase({held, from});
  by_count_.insert({++held, from});
  ++total_;
}

void PeerShares::Remove(const PeerGroup& from) {
  const std::lock_guard lock(mutex_);
  const auto found = held_.find(from);
  MUSTER_ASSERT(found != held_.end());
  by_count_.erase({found->second, from});
  if (--found->second == 0) {
    held_.erase(found);
  } else {
    by_count_.insert({found->second, from});
  }
  --total_;
}

size_t PeerShares::HeldBy(const PeerGroup& from) const {
  const std::lock_guard lock(mutex_);
  const auto found = held_.find(from);
  return found == held_.end() ? 0 : found->second;
}

PeerShares::Largest PeerShares::FindLargest() const {
  const std::lock_guard lock(mutex_);
  if (by_count_.empty()) return {};
  const auto& [held, from] = *by_count_.rbegin();
  return {.from = from, .held = held, .total = total_};
}

PeerHold::PeerHold(std::shared_ptr<PeerShares> shares, const PeerGroup& from)
    : shares_(std::move(shares)), from_(from) {
  shares_->Add(from_);
}

PeerHold::~PeerHold() {
  if (shares_) shares_->Remove(from_);
}

}  // namespace muster
