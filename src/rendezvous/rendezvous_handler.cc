#include "muster/rendezvous_handler.h"

#include <algorithm>
#include <utility>

#include "base/interruption.h"
#include "base/text.h"
#include "os/posix/posix_clock.h"
#include "store/throw.h"

namespace muster {

// Names and reasons come from other nodes.
std::string MembershipEvent::ToString() const {
  const std::string because = why.empty() ? "" : Concat(": ", OneLine(why));
  switch (kind) {
    case Kind::kMemberLost:
      return Concat("round ", round, " has lost ", OneLine(who), because);
    case Kind::kNodesWaiting:
      return Concat(waiting, waiting == 1 ? " node is" : " nodes are",
                    " waiting for the next round");
    case Kind::kPlaceLost:
      return Concat("this node has lost its place in round ", round, because);
    case Kind::kClosed:
      return Concat("the rendezvous is closed", who.empty() ? "" : Concat(" by ", OneLine(who)));
  }
  return "";
}

std::optional<MembershipEvent> RendezvousHandler::AwaitEvent(std::chrono::milliseconds time) {
  PosixClock clock;
  return PollForEvent(clock, time, [this] { return NumNodesWaiting(); });
}

std::optional<MembershipEvent> RendezvousHandler::PollForEvent(
    Clock& clock, std::chrono::milliseconds time, const std::function<int64_t()>& count_waiting) {
  constexpr Duration kPause = 200ms;
  const Instant began = clock.Now();
  const Instant until = After(began, time);
  while (true) {
    if (!closed_reported_ && IsClosed()) {
      closed_reported_ = true;
      return MembershipEvent{.kind = MembershipEvent::Kind::kClosed};
    }
    const int64_t waiting = count_waiting();
    if (std::exchange(waiting_reported_, waiting) != waiting && waiting != 0)
      return MembershipEvent{.kind = MembershipEvent::Kind::kNodesWaiting, .waiting = waiting};
    const Instant now = clock.Now();
    if (now >= until) return std::nullopt;
    clock.SleepUntil(std::min(until, now + kPause));
    if (IsInterrupted()) Throw(Interrupted(began, clock.Now(), "waiting for a membership event"));
  }
}

}  // namespace muster
