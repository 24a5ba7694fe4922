// What handlers have in common whose node talks through a session: joining, the errors, closing.
// Who is at the other end, and where the store is, each of them knows itself.
#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "muster/rendezvous_handler.h"
#include "os/ports/system.h"
#include "rendezvous/event_recorder.h"
#include "rendezvous/session/session_client.h"

namespace muster {

struct SessionRendezvousOptions {
  std::string class_name;  ///< Of the handler, for events: "coordinated_rendezvous:Coordinated...".
  std::string run_id;
  std::chrono::milliseconds join_timeout{};
  std::chrono::milliseconds close_timeout{};
  RendezvousEventSink events{};
};

class SessionRendezvous {
 public:
  SessionRendezvous(SessionRendezvousOptions options, System& its_surroundings);
  virtual ~SessionRendezvous();

  /// Joins the next round. nullopt: the server is PyTorch's.
  std::optional<RendezvousInfo> Next();
  /// False: the server is PyTorch's.
  bool Close(std::string_view reason);

  SessionClient& Client();
  /// Null before the first call that needs it.
  SessionClient* ClientIfAny() const;

  System& around;
  Clock& clock = around.clock();
  EventRecorder events;
  Node self{};
  /// Where this node serves the workers of the rounds whose rank 0 it is.
  const std::unique_ptr<ReservedPort> master = around.ReservePort();

 protected:
  virtual SessionClientOptions ClientOptions() = 0;
  /// Shared by the nodes of the round.
  virtual std::shared_ptr<Store> StoreOf(const Push& assignment, const SessionClient& session) = 0;
  /// More about why it is out of reach, if there is: " (...)".
  virtual std::string WhyOutOfReach() const { return ""; }

  /// Whoever derives calls this first of all when it is destroyed.
  void EndSession() { client_.reset(); }

  const SessionRendezvousOptions session_options_;
  mutable std::mutex mutex_;

 private:
  RendezvousInfo Enter(const Push& assignment, SessionClient& session);
  void ServeWorkers();
  [[noreturn]] void Throw(const SessionClient::Outcome& outcome, SessionClient& session) const;

  const std::string next_;  // names of events
  const std::string close_;
  std::string server_;                     // as ClientOptions() has it
  std::unique_ptr<SessionClient> client_;  // guarded by mutex_ until it is there
};

}  // namespace muster
