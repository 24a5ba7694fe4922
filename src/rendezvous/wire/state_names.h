// The attributes of a serialized rendezvous state and of its nodes, in the order in which they are
// written.
#pragma once

#include <array>
#include <cstddef>
#include <string_view>

namespace muster::wire {

enum class StateAttribute : size_t {
  kRound,
  kComplete,
  kDeadline,
  kClosed,
  kParticipants,
  kWaitList,
  kRedundancyList,
  kLastHeartbeats,
  // muster's own. PyTorch's agents do not know them, but keep them.
  kClosedBy,
  kCompletedRound,
  kWorldSize,
};

inline constexpr std::array<std::string_view, 11> kStateAttributes = {"round",
                                                                      "complete",
                                                                      "deadline",
                                                                      "closed",
                                                                      "participants",
                                                                      "wait_list",
                                                                      "redundancy_list",
                                                                      "last_heartbeats",
                                                                      "muster_closed_by",
                                                                      "muster_completed_round",
                                                                      "muster_world_size"};

constexpr std::string_view NameOf(StateAttribute which) {
  return kStateAttributes[static_cast<size_t>(which)];
}

inline constexpr std::array<std::string_view, 3> kNodeAttributes = {"addr", "pid", "local_id"};

}  // namespace muster::wire
