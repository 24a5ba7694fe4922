// Observes the wire between the nodes and the coordinator: which nodes were sent that they are out,
// and which connections are outdated.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "rendezvous/core/coordinator.h"
#include "sim/network.h"

namespace muster::sim {

/// The parts of a run that a message can change.
struct RunPicture {
  RendezvousState state{};
  std::string members{};  ///< Their sessions, and until when the server waits for them.
};
RunPicture PictureOf(const Coordinator::Run& run);

class Watch {
 public:
  /// `notified_out` is called when a process receives that its session has ended, is a new one, or
  /// is refused. Its argument is the last round in which it was given a place (-1: none), which is
  /// over then.
  using NotifiedOut = std::function<void(SimProcess&, int64_t round)>;
  explicit Watch(NotifiedOut notified_out) : notified_out_(std::move(notified_out)) {}

  void OnArrival(Connection& connection, size_t side, std::string_view bytes);
  /// Whether the member's node has a connection on which it knows that its session is open.
  bool IsConnected(const Coordinator::Member& member) const;
  /// Whether the connection's session has been resumed on another one, or is over.
  bool IsStale(const Connection& connection, const Coordinator& coordinator,
               std::string_view run) const;

 private:
  struct Session {
    std::string pending{};  // the server's bytes, from the beginning of a frame
    bool greeted = false;
    bool ignored = false;  // a store's connection
    uint64_t token = 0;
    uint32_t incarnation = 0;
    std::weak_ptr<Connection> connection{};
  };
  void Read(Session& session, SimProcess& node);

  const NotifiedOut notified_out_;
  std::map<const SimProcess*, int64_t>
      placed_in_;  ///< The last round of each process that it was notified of.
  std::map<uint64_t, Session> sessions_;
};

}  // namespace muster::sim
