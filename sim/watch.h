// Reads along on the wire between the nodes and the coordinator: who has been told that it is out,
// and which connections are of the past.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "core/rendezvous/coordinator.h"
#include "sim/network.h"

namespace muster::sim {

/// What a message can change of a run.
struct RunPicture {
  RendezvousState state{};
  std::string members{};  ///< Their sessions, and what they are waited for until when.
};
RunPicture PictureOf(const Coordinator::Run& run);

class Watch {
 public:
  /// `told_out` is called when a process hears that its session has ended, or is a new one:
  /// whatever it was in before is over.
  explicit Watch(std::function<void(SimProcess&)> told_out) : told_out_(std::move(told_out)) {}

  void OnArrival(Connection& connection, size_t side, std::string_view bytes);
  /// Whether the connection carries a session that has been taken up elsewhere, or is over.
  bool IsStale(const Connection& connection, const Coordinator& coordinator,
               std::string_view run) const;

 private:
  struct Session {
    std::string pending{};  // the server's bytes, from the beginning of a frame
    bool greeted = false;
    bool ignored = false;  // a store's connection
    uint64_t token = 0;
    uint32_t incarnation = 0;
  };
  void Read(Session& session, SimProcess& node);

  const std::function<void(SimProcess&)> told_out_;
  std::map<uint64_t, Session> sessions_;
};

}  // namespace muster::sim
