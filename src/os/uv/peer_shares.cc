#include "os/uv/peer_shares.h"

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

std::string NameOf(const PeerGroup& group) {
  return Concat(ToString(group), IsMapped(group) ? "" : "/64");
}

void PeerShares::Count(const PeerGroup& from, int more) {
  const std::lock_guard lock(mutex_);
  size_t& held = held_[from];
  MUSTER_ASSERT(more > 0 || held > 0);
  by_count_.erase({held, from});
  held += static_cast<size_t>(more);
  total_ += static_cast<size_t>(more);
  if (held > 0) {
    by_count_.insert({held, from});
  } else {
    held_.erase(from);
  }
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
