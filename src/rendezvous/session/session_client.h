// A session for those who may block: the link lives on a thread of its own, callers wait here for
// what it hears. Any thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "muster/rendezvous_handler.h"
#include "os/ports/system.h"
#include "rendezvous/session/rendezvous_link.h"

namespace muster {

struct SessionClientOptions {
  Hello hello;
  std::string server;  ///< "the server at host:29400": whom the link talks to, for messages.
  std::function<std::unique_ptr<RendezvousLink>(LoopThread&, RendezvousLinkOwner&)> make_link;
  LoopThread* thread = nullptr;  ///< For the link; it outlives the client. Null: one of its own.
};

class SessionClient final : private RendezvousLinkOwner {
 public:
  /// Starts to connect. StoreError, NetworkError: no thread or descriptor to be had.
  SessionClient(SessionClientOptions options, System& around);
  ~SessionClient() override;

  /// How a join ended.
  struct Outcome {
    enum class Kind {
      kComplete,
      kClosed,
      kGraceful,
      kTimedOut,     ///< The server says so: who was missing.
      kUnreachable,  ///< Nobody said anything in time.
      kRefused,
      kInterrupted,  ///< As the caller wished; the node has given up its place.
      kPlain,        ///< The server has no coordinator.
      kFailed,       ///< `failure`: trying again would not help.
    };
    Kind kind{};
    Push assignment{};  ///< kComplete.
    Code failure{};
    std::string why{};
  };
  /// Blocks until the node is in the next round, or cannot be.
  Outcome Join(Duration timeout);

  // These three: InterruptedError.
  /// False: the server did not confirm it in time, and notices by itself.
  bool Leave(Duration timeout);
  bool Close(std::string reason, Duration timeout);

  /// The server has no coordinator.
  bool plain() const;
  // As the server has told so far.
  bool closed() const;
  int64_t nodes_waiting() const;
  /// "addr_pid_id", and whether the server knows it by this.
  Node node() const;
  /// Counts connections on which the session was opened or resumed.
  uint64_t connections() const;
  std::optional<MembershipEvent> AwaitEvent(Instant until);
  /// The one under way, or the next, comes back at once.
  void StopWaiting();
  /// Asks the server if what it said last is older than a second; does not wait for the answer.
  WaitReport Describe();

 private:
  void OnPush(const Push& push) override;
  void OnReport(std::optional<RunReport> report) override;
  void OnTrouble(const std::string& why) override;
  void OnPlainServer() override;
  void OnPlaceLost(const std::string& why) override;
  void OnFailed(const Error& why) override;

  RunReport AsReport(const Push& push) const;

  using Lock = std::unique_lock<Monitor>;
  /// Waits until `ready` or until `until`; whether it is.
  template <typename Ready>
  bool AwaitUntil(Lock& lock, Instant until, const Ready& ready);
  void OnRefused(const Push& push);
  void OnClosed(const Push& push);
  void GiveUp(Lock& lock);
  void ThrowIfInterrupted(Instant began, std::string_view said) const;
  void AddEvent(MembershipEvent event);
  bool InRound(int64_t round) const;
  void LosePlace(const std::string& why);
  void Finish(Outcome outcome);

  const SessionClientOptions options_;
  Clock& clock_;
  const std::unique_ptr<Monitor> monitor_;
  // Guarded by it.
  Node node_;
  bool open_ = false;
  bool plain_ = false;
  bool closed_ = false;
  bool joining_ = false;
  bool is_spare_ = false;
  bool left_ = false;
  std::string closed_by_;
  std::string trouble_;
  std::optional<std::string> refused_;
  std::optional<int64_t> place_lost_;  // the round whose place is lost, and that is known
  std::optional<Push> assignment_;     // of the round that the node is in
  int64_t last_round_ = -1;
  Generation last_generation_{};
  std::optional<Outcome> outcome_;  // of the join under way
  Instant join_by_ = Instant::Never();
  int64_t waiting_ = 0;
  uint64_t connections_ = 0;
  std::deque<MembershipEvent> events_;
  bool stop_waiting_ = false;   // for an event
  std::optional<Push> stands_;  // the last one about a join under way
  std::optional<RunReport> report_;
  std::optional<Instant> reported_at_;
  std::optional<Instant> asked_at_;

  const std::unique_ptr<LoopThread> own_thread_;
  LoopThread* const thread_;
  std::unique_ptr<RendezvousLink> link_;  // on the loop's thread only
};

}  // namespace muster
