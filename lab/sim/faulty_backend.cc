#include "sim/faulty_backend.h"

#include <utility>

#include "muster/rendezvous_error.h"
#include "sim/world.h"

namespace muster::sim {

FaultyBackend::FaultyBackend(std::unique_ptr<RendezvousBackend> backend, World& world,
                             SimProcess& process, uint64_t seed)
    : backend_(std::move(backend)), world_(world), process_(process), prng_(seed) {}

std::optional<StoredState> FaultyBackend::SetState(std::string_view bytes, const std::any& token) {
  const Faults& faults = world_.plan().faults;
  const bool troubled = world_.is_troubled();
  if (troubled && faults.slow_write && prng_.Below(4) == 0) {
    const auto longest = static_cast<uint64_t>(Duration(1s).count());
    process_.clock().SleepUntil(process_.Now() +
                                Duration(static_cast<int64_t>(prng_.Below(longest))));
  }
  const bool fails = troubled && faults.lost_write && prng_.Below(8) == 0;
  if (fails && prng_.Below(2) == 0) throw RendezvousConnectionError("the write was not sent");
  std::optional<StoredState> result = backend_->SetState(bytes, token);
  if (fails) throw RendezvousConnectionError("the answer to the write was lost");
  return result;
}

}  // namespace muster::sim
