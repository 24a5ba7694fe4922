#include "os/uv/peer_shares.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <cstring>

#include "base/assert.h"
#include "base/text.h"

namespace muster {

namespace {

constexpr uint8_t kMapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

bool IsMapped(const PeerGroup& group) {
  return std::equal(std::begin(kMapped), std::end(kMapped), group.begin());
}

}  // namespace

PeerGroup GroupOf(const sockaddr_storage& address) {
  PeerGroup group{};
  if (address.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(address);
    std::ranges::copy(kMapped, group.begin());
    std::memcpy(group.data() + sizeof kMapped, &v4.sin_addr, 4);
  } else if (address.ss_family == AF_INET6) {
    const auto& v6 = reinterpret_cast<const sockaddr_in6&>(address);
    std::memcpy(group.data(), &v6.sin6_addr, group.size());
    if (!IsMapped(group)) std::fill(group.begin() + 8, group.end(), uint8_t{0});
  }
  return group;
}

std::string ToString(const PeerGroup& group) {
  char text[INET6_ADDRSTRLEN] = "?";
  if (IsMapped(group)) {
    inet_ntop(AF_INET, group.data() + sizeof kMapped, text, sizeof text);
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
