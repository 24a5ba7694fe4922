// The status of a run, for people, dashboards and waiting nodes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/time.h"
#include "rendezvous/core/node.h"
#include "rendezvous/core/run_settings.h"
#include "rendezvous/core/session.h"

namespace muster {

struct MemberReport {
  enum class Role : uint8_t {
    kParticipant,
    kWaiting,  ///< For the next round.
    kSpare,
    kIdle,  ///< Has a session, but is in no list: between rounds.
  };
  Node node;
  Role role = Role::kIdle;
  int64_t rank = -1;      ///< Of a participant of a complete round.
  Duration silent_for{};  ///< Since its last message.
  bool connected = true;  ///< Otherwise its grace runs.
  bool late = false;      ///< Has missed a keep-alive, or its connection.
  std::string label{};

  bool operator==(const MemberReport&) const = default;
};

struct RunReport {
  enum class Phase : uint8_t { kForming, kLastCall, kComplete, kClosed, kEmpty };
  std::string id;
  Phase phase = Phase::kEmpty;
  int64_t round = 0;
  Generation generation{};  ///< All zeros: of a backend that has none.
  RunSettings settings{};
  int64_t world_size = 0;  ///< Of a complete round.
  int64_t participants = 0;
  int64_t waiting = 0;
  int64_t spares = 0;
  int64_t idle = 0;
  std::optional<Duration> last_call_left{};
  std::optional<Duration> held_left{};  ///< Of a complete round: how long nodes are held back.
  std::string closed_by{};
  /// By role, participants in the order of their ranks. Where not all of a role fit, late ones come
  /// first.
  std::vector<MemberReport> members{};

  bool operator==(const RunReport&) const = default;
};

}  // namespace muster
