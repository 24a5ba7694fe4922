// Observes the wire between the nodes and the coordinator: which nodes were sent that they are out,
// and which connections are of the past.
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

/// What a message can change of a run.
struct RunPicture {
  RendezvousState state{};
  std::string members{};  ///< Their sessions, and what they are waited for until when.
};
RunPicture PictureOf(const Coordinator::Run& run);

class Watch {
 public:
  /// `notified_out` is called when a process receives that its session has ended, or is a new one,
  /// with the last round that it was given a place in (-1: none): whatever it was in before is
  /// over.
  using NotifiedOut = std::function<void(SimProcess&, int64_t round)>;
  explicit Watch(NotifiedOut notified_out) : notified_out_(std::move(notified_out)) {}

  void OnArrival(Connection& connection, size_t side, std::string_view bytes);
  /// Whether the member's node has a connection on which it knows that its session is open.
  bool IsConnected(const Coordinator::Member& member) const;
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
    std::weak_ptr<Connection> connection{};
  };
  void Read(Session& session, SimProcess& node);

  const NotifiedOut notified_out_;
  std::map<const SimProcess*, int64_t>
      placed_in_;  ///< The last round of each that it was notified of.
  std::map<uint64_t, Session> sessions_;
};

}  // namespace muster::sim
