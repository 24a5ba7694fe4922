// The address of the workers' store in a round: published by rank 0, read by all nodes.
#include <limits>
#include <optional>

#include "base/text.h"
#include "muster/network.h"
#include "muster/rendezvous_handler.h"

namespace muster {

namespace {

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

}  // namespace muster
