// The base of handlers whose node has a link: the backends "muster" and "etcd".
//
//   handler (callers' threads) -> link (the loop's thread) -> wire
//
// The link reports to a SessionView, on which the handler's callers wait. Neither of them knows the
// handler. A derived handler adds how to connect, and where the round's store is.
#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "muster/rendezvous_events.h"
#include "muster/rendezvous_handler.h"
#include "os/ports/system.h"
#include "rendezvous/event_recorder.h"
#include "rendezvous/session/session_view.h"

namespace muster {

struct SessionHandlerOptions {
  std::string class_name;  ///< For events: "etcd_rendezvous:EtcdRendezvousHandler".
  std::string server;      ///< The link's other end, for messages: "the server at host:29400".
  Hello hello;             ///< Without the bootstrap port, which the handler reserves itself.
  std::chrono::milliseconds join_timeout{};
  std::chrono::milliseconds close_timeout{};
  RendezvousEventSink events{};
};

class SessionHandler : public RendezvousHandler {
 public:
  ~SessionHandler() override;

  /// The address may change with the first contact, to the one that the server sees.
  std::string node() const override;
  std::string GetRunId() const override { return options_.hello.run_id; }
  bool UseAgentStore() const override;
  std::string ActiveBackend() const override;
  bool AllowsConcurrentCalls() const override { return Replacement() == nullptr; }
  RendezvousInfo NextRendezvous() override;
  bool IsClosed() override;
  int64_t NumNodesWaiting() override;
  using RendezvousHandler::SetClosed;
  void SetClosed(std::string_view reason) override;
  std::optional<MembershipEvent> AwaitEvent(std::chrono::milliseconds time) override;
  bool StopWaiting() override;
  void Leave() override;
  bool Shutdown() override;
  WaitReport DescribeWait() const override;

 protected:
  /// Reserves the port of the workers' store.
  SessionHandler(SessionHandlerOptions options, System& system);

  /// Called before the first operation that needs a link.
  virtual std::unique_ptr<RendezvousLink> MakeLink(LoopThread& thread, const Hello& hello,
                                                   uint64_t seed,
                                                   RendezvousLinkListener& listener) = 0;
  /// The thread of the link, which outlives the session; called before MakeLink(). Null: the
  /// session starts its own thread.
  virtual LoopThread* SharedThread() { return nullptr; }
  /// The store that the nodes of this round share.
  virtual std::shared_ptr<Store> StoreOf(const Push& assignment) = 0;
  /// The handler that replaces this one. Called if the server has no coordinator.
  virtual RendezvousHandlerPtr MakeReplacement() { return nullptr; }

  /// Number of connections on which the session was opened or resumed.
  uint64_t connections() const;
  /// Destructors of derived classes begin with this call: the other nodes are notified that this
  /// node shuts down while its stores still exist.
  void EndSession() { session_.reset(); }

  System& system_;
  Clock& clock_ = system_.clock();
  const SessionHandlerOptions options_;
  const EventRecorder events_;

 private:
  struct Session {
    explicit Session(SessionHandler& handler);
    ~Session();
    /// Calls a function of the link on its thread, soon.
    void Request(auto work) {
      thread->loop().Post([this, work = std::move(work)] {
        if (link) work(*link);
      });
    }

    SessionView view;
    std::unique_ptr<LoopThread> own_thread;
    LoopThread* thread;
    std::unique_ptr<RendezvousLink> link;  // on the loop's thread only
  };

  /// Null: this handler does the work.
  RendezvousHandler* Replacement() const;
  RendezvousHandler& Replace();
  Session& Connected();
  /// Null before the first operation that needs a link.
  Session* IfConnected() const;
  JoinOutcome AwaitOutcome(Session& session) const;
  void GiveUp(Session& session, SessionView::Lock& lock) const;
  RendezvousInfo Enter(const JoinOutcome& outcome, Instant began);
  [[noreturn]] void Throw(const JoinOutcome& outcome, const Node& node) const;
  void ThrowIfInterrupted(Instant began, std::string_view awaited) const;
  template <typename T>
  T Read(T SessionView::*member, T before_contact) const;
  Node CurrentNode() const;

  /// The port at which this node serves the workers of the rounds in which it is rank 0. Reserved
  /// from the start, so that all nodes receive the port of rank 0 with their assignment.
  const std::unique_ptr<ReservedPort> workers_port_;
  mutable std::mutex mutex_;  // guards these until they are set
  std::unique_ptr<Session> session_;
  RendezvousHandlerPtr replacement_;
};

}  // namespace muster
