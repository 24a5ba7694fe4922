// A node's knowledge of its rendezvous: its link writes it on the loop's thread; callers of the
// handler read it and wait for changes.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "base/interruption.h"
#include "muster/rendezvous_handler.h"
#include "os/ports/system.h"
#include "rendezvous/session/rendezvous_link.h"

namespace muster {

/// How a join ended.
struct JoinOutcome {
  enum class Kind {
    kComplete,
    kClosed,
    kGraceful,     ///< Closed while this node was a spare.
    kTimedOut,     ///< Reported by the server, which names what was missing.
    kUnreachable,  ///< No answer in time.
    kRefused,
    kInterrupted,  ///< By the caller; the node has released its place.
    kPlain,        ///< The server has no coordinator.
    kFailed,       ///< `failure`: a retry would not help.
  };
  Kind kind{};
  Push assignment{};  ///< kComplete.
  Code failure{};
  std::string why{};
};

/// The members are guarded by `monitor`, which the On...() functions take themselves.
struct SessionView final : RendezvousLinkListener {
  SessionView(Hello its_hello, System& system);

  using Lock = std::unique_lock<Monitor>;

  /// Waits until `ready` or until `until`; returns whether it is ready. An interruption ends the
  /// wait as well.
  bool AwaitUntil(Lock& lock, Instant until, const auto& ready) {
    while (!ready()) {
      if (until != Instant::Never() && clock.Now() >= until) return false;
      if (IsInterrupted()) return false;
      lock.mutex()->WaitUntil(until);
    }
    return true;
  }

  /// Forgets the last round, and expects the answer to a new join. Returns an outcome if it is
  /// known without a request.
  std::optional<JoinOutcome> BeginJoin(Instant until);
  /// Forgets the round that the node leaves.
  void BeginLeave();
  /// Ends the current join, if there is one without an outcome.
  void Finish(JoinOutcome outcome);
  /// Whether the last report is too old to be shown, and no newer one has been requested.
  bool NeedsReport(Instant now) const;
  WaitReport Describe(Instant now, const std::string& server) const;

  void OnPush(const Push& push) override;
  void OnReport(std::optional<RunReport> given) override;
  void OnTrouble(const std::string& why) override;
  void OnPlainServer() override;
  void OnPlaceLost(const std::string& why) override;
  void OnFailed(const Error& why) override;

  const Hello hello;
  Clock& clock;
  const std::unique_ptr<Monitor> monitor;

  // The connection.
  Node node;
  bool open = false;
  bool plain = false;
  std::string trouble;
  std::optional<std::string> refused;
  uint64_t connections = 0;  ///< Connections on which the session was opened or resumed.

  // The run.
  bool closed = false;  ///< Permanent: a restarted server may not know it.
  std::string closed_by;

  // The current join, or the last one.
  bool joining = false;
  bool is_spare = false;
  Instant join_by = Instant::Never();
  std::optional<JoinOutcome> outcome;

  // The round that the node is in.
  std::optional<Push> assignment;
  bool left = false;
  std::optional<int64_t> place_lost;  ///< The round in which the place is known to be lost.
  int64_t waiting = 0;
  std::deque<MembershipEvent> events;
  bool stop_waiting = false;  ///< For an event.

  // For people.
  std::optional<Push> stands;  ///< The last push about the current join.
  std::optional<RunReport> report;
  std::optional<Instant> reported_at;
  std::optional<Instant> requested_at;

 private:
  void OnRefused(const Push& push);
  void OnClosed(const Push& push);
  void OnComplete(const Push& push);
  void AddEvent(MembershipEvent event);
  bool InRound(int64_t round) const;
  void LosePlace(const std::string& why);
  RunReport AsReport(const Push& push) const;
};

}  // namespace muster
