#include "rendezvous/bootstrap.h"

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <string_view>
#include <utility>

#include "base/text.h"
#include "muster/network.h"
#include "muster/prefix_store.h"
#include "store/tcp_store_on.h"

namespace muster {

namespace {

// Rank 0 publishes within a round trip or two. PyTorch's rank 0 publishes only when it starts its
// server, not in every round: after this time its last address is used.
constexpr milliseconds kPatience{3000};
constexpr milliseconds kPatienceWithTheSame{200};  // it has not published again in earlier rounds
constexpr milliseconds kProbe{1000};
constexpr int64_t kRoundsBack = 256;
constexpr int kProbesMax = 3;  // probes of stores that do not answer, each with the timeout above

// muster publishes in every round, with a signature: its address of an earlier round is out of
// date.
constexpr std::string_view kSignature = "MUSTER_RANK_0";

std::vector<std::string> KeysOf(const std::string& prefix) {
  return {Concat(prefix, "/", RendezvousStoreInfo::kMasterAddrKey),
          Concat(prefix, "/", RendezvousStoreInfo::kMasterPortKey)};
}

std::string SignatureOf(const std::string& prefix) { return Concat(prefix, "/", kSignature); }

std::string ReadAddress(Store& store) {
  std::string address = store.Get(RendezvousStoreInfo::kMasterAddrKey);
  // An address that Printable() changes is not text, and would get into environments and logs.
  if (address.empty() || Printable(address, address.size()) != address) {
    throw RendezvousStateError(Concat("key ", RendezvousStoreInfo::kMasterAddrKey, " holds '",
                                      Printable(address),
                                      "', expected the address of rank 0 as UTF-8 text"));
  }
  return address;
}

uint16_t ReadPort(Store& store) {
  const std::string text = store.Get(RendezvousStoreInfo::kMasterPortKey);
  const std::optional<int> port = TryParsePort(text);
  if (!port || *port > std::numeric_limits<uint16_t>::max()) {
    throw RendezvousStateError(Concat("key ", RendezvousStoreInfo::kMasterPortKey, " holds '",
                                      Printable(text),
                                      "', expected the port of rank 0's store, 0 to 65535"));
  }
  return static_cast<uint16_t>(*port);
}

// Whether a store is served there now.
bool Answers(const RendezvousStoreInfo& info, System& system) {
  try {
    OpenTcpStore(info.master_addr, {.port = info.master_port, .timeout = kProbe}, system)->Ping();
    return true;
  } catch (const InterruptedError&) {
    throw;
  } catch (const std::exception&) {
    return false;
  }
}

}  // namespace

RendezvousStoreInfo RendezvousStoreInfo::Build(int64_t rank, Store& store,
                                               std::string_view local_addr, uint16_t server_port) {
  if (rank == 0) {
    // The address first: others wait for the keys in this order, and so do PyTorch's agents.
    store.Set(kMasterAddrKey, local_addr.empty() ? FullyQualifiedName() : std::string(local_addr));
    store.Set(kMasterPortKey, Concat(server_port != 0 ? server_port : FreePort()));
  }
  // Rank 0 reads back what it wrote: if two nodes believe that they are rank 0, all still agree.
  RendezvousStoreInfo info;
  info.master_addr = ReadAddress(store);
  info.master_port = ReadPort(store);
  return info;
}

Bootstrap::Bootstrap(std::shared_ptr<Store> store, std::function<std::string(int64_t)> prefix_of,
                     std::string local_addr, System& around)
    : store_(std::move(store)),
      prefix_of_(std::move(prefix_of)),
      local_addr_(std::move(local_addr)),
      around_(around),
      clock_(around.clock()) {}

bool Bootstrap::IsShared() {
  const char* disabled = std::getenv("TORCH_DISABLE_SHARE_RDZV_TCP_STORE");
  return disabled == nullptr || std::string_view(disabled) != "1";
}

RendezvousStoreInfo Bootstrap::Of(int64_t round, int64_t rank, const std::optional<Node>& first) {
  return rank == 0 ? Publish(round) : Await(round, first);
}

RendezvousStoreInfo Bootstrap::Publish(int64_t round) {
  uint16_t port = 0;  // not shared: worker 0 will serve, on a port that is free now
  if (IsShared()) {
    if (!server_) server_ = around_.ReservePort();
    server_->Serve();
    port = server_->port();
  }
  PrefixStore store(prefix_of_(round), store_);
  store.Set(kSignature, local_addr_);
  return RendezvousStoreInfo::Build(0, store, local_addr_, port);
}

RendezvousStoreInfo Bootstrap::Await(int64_t round, const std::optional<Node>& first) {
  const Instant deadline = DeadlineAfter(clock_.Now(), store_->Timeout());
  milliseconds patience = first && first == publishes_once_ ? kPatienceWithTheSame : kPatience;
  while (true) {
    try {
      const auto left = std::chrono::duration_cast<milliseconds>(deadline - clock_.Now());
      store_->Wait(KeysOf(prefix_of_(round)), std::clamp(left, milliseconds{1}, patience));
      if (!store_->Check({SignatureOf(prefix_of_(round))})) publishes_once_ = first;
      return Read(round);
    } catch (const StoreTimeoutError&) {
      if (const auto earlier = Earlier(round, first)) {
        publishes_once_ = first;
        return *earlier;
      }
      if (clock_.Now() >= deadline) {
        throw RendezvousTimeoutError(
            Concat("rank 0 of round ", round, " has not published its store's address (keys ",
                   prefix_of_(round), "/MASTER_ADDR and /MASTER_PORT) within ",
                   store_->Timeout().count(), " ms; is it still alive?"));
      }
      patience *= 2;
    }
  }
}

std::optional<RendezvousStoreInfo> Bootstrap::Earlier(int64_t round,
                                                      const std::optional<Node>& first) {
  int probes = 0;
  for (int64_t back = round - 1; back >= 0 && back >= round - kRoundsBack; --back) {
    const std::string prefix = prefix_of_(back);
    if (!store_->Check(KeysOf(prefix))) continue;
    if (store_->Check({SignatureOf(prefix)})) continue;
    RendezvousStoreInfo info = Read(back);
    // Each rank 0 publishes its own address. Another node's store may be alive, too: that node was
    // rank 0 while the present rank 0 was away, or the present one is slow to publish.
    if (first && info.master_addr != first->addr) continue;
    if (Answers(info, around_)) return info;
    if (++probes == kProbesMax) break;
  }
  return std::nullopt;
}

RendezvousStoreInfo Bootstrap::Read(int64_t round) {
  PrefixStore store(prefix_of_(round), store_);
  constexpr int64_t kNotTheFirst = 1;
  return RendezvousStoreInfo::Build(kNotTheFirst, store, local_addr_);
}

}  // namespace muster
