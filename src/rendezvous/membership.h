// AwaitEvent() for backends that are not notified of events: they poll.
#pragma once

#include <chrono>
#include <functional>
#include <optional>

#include "muster/rendezvous_handler.h"
#include "os/ports/clock.h"

namespace muster {

/// Calls `look` every 200 ms until it has an event or `time` is up. InterruptedError.
std::optional<MembershipEvent> PollForEvent(
    Clock& clock, std::chrono::milliseconds time,
    const std::function<std::optional<MembershipEvent>()>& look);

}  // namespace muster
