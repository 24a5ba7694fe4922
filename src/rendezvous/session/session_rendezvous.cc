#include "rendezvous/session/session_rendezvous.h"

#include <utility>

#include "base/interruption.h"
#include "base/text.h"
#include "muster/rendezvous_error.h"
#include "os/posix/process.h"
#include "rendezvous/bootstrap.h"
#include "store/throw.h"

namespace muster {

SessionRendezvous::SessionRendezvous(SessionRendezvousOptions options, System& its_surroundings)
    : around(its_surroundings),
      events(options.events, options.run_id,
             [] { return EventOrigin{.hostname = "localhost", .pid = ProcessId()}; }),
      session_options_(std::move(options)),
      next_(session_options_.class_name + ".next_rendezvous"),
      close_(session_options_.class_name + ".set_closed") {}

SessionRendezvous::~SessionRendezvous() = default;

SessionClient& SessionRendezvous::Client() {
  const std::lock_guard lock(mutex_);
  if (!client_) {
    SessionClientOptions options = ClientOptions();
    server_ = options.server;
    client_ = std::make_unique<SessionClient>(std::move(options), around);
  }
  return *client_;
}

SessionClient* SessionRendezvous::ClientIfAny() const {
  const std::lock_guard lock(mutex_);
  return client_.get();
}

std::optional<RendezvousInfo> SessionRendezvous::Next() {
  SessionClient& session = Client();
  events.Record(next_.c_str(), NodeState::kRunning, session.node(), [&] {
    return Concat("node '", session.node().ToString(),
                  "' wants to join the next round of rendezvous '", session_options_.run_id, "'");
  });
  const Instant began = clock.Now();
  const SessionClient::Outcome outcome = session.Join(session_options_.join_timeout);
  if (outcome.kind == SessionClient::Outcome::Kind::kPlain) return std::nullopt;
  try {
    if (outcome.kind == SessionClient::Outcome::Kind::kInterrupted) {
      ThrowInterrupted(Concat("rendezvous '", session_options_.run_id, "', node '",
                              session.node().ToString(),
                              "': ", InterruptedAfter(began, clock.Now()),
                              " while waiting for the next round (", server_, ")"));
    }
    if (outcome.kind != SessionClient::Outcome::Kind::kComplete) Throw(outcome, session);
    return Enter(outcome.assignment, session);
  } catch (const std::exception& error) {
    const auto what = [&] { return std::string(error.what()); };
    events.RecordFailure(next_.c_str(), session.node(), what, what);
    throw;
  }
}

RendezvousInfo SessionRendezvous::Enter(const Push& assignment, SessionClient& session) {
  RendezvousInfo info{.store = nullptr,
                      .rank = assignment.rank,
                      .world_size = assignment.world_size,
                      .round = assignment.round,
                      .bootstrap_store_info = {assignment.addr, assignment.port}};
  if (info.rank == 0) ServeWorkers();
  info.store = StoreOf(assignment, session);
  events.RecordJoined(next_.c_str(), session.node(), info.rank, [&] {
    return Concat("node '", session.node().ToString(), "' is rank ", info.rank, " of ",
                  info.world_size, " in round ", info.round, " of rendezvous '",
                  session_options_.run_id, "'");
  });
  return info;
}

// Every node has had a port of its own from the start, so that everybody could be told where rank 0
// will be without asking it.
void SessionRendezvous::ServeWorkers() {
  if (Bootstrap::IsShared()) return master->Serve();
  master->Free();  // worker 0 will serve there
}

void SessionRendezvous::Throw(const SessionClient::Outcome& outcome, SessionClient& session) const {
  using Kind = SessionClient::Outcome::Kind;
  const Node node = session.node();
  const std::string who = node.addr.empty() ? "this node" : Concat("node '", node.ToString(), "'");
  const std::string run = Concat("rendezvous '", session_options_.run_id, "'");
  const std::string not_joined = Concat(who, " could not join ", run);
  const std::string in_time =
      Concat(not_joined, " within ", session_options_.join_timeout.count(), " ms: ");
  switch (outcome.kind) {
    case Kind::kClosed:
      throw RendezvousClosedError(
          Concat(run, " is closed", outcome.why.empty() ? "" : " by " + outcome.why));
    case Kind::kGraceful:
      throw RendezvousGracefulExitError(Concat(run, " was closed",
                                               outcome.why.empty() ? "" : " by " + outcome.why,
                                               " while ", who, " was a spare"));
    case Kind::kTimedOut:
      throw RendezvousTimeoutError(Concat(in_time, outcome.why));
    case Kind::kUnreachable:
      throw RendezvousConnectionError(
          Concat(in_time, server_, " is out of reach: ", outcome.why, WhyOutOfReach()));
    case Kind::kFailed:
      if (outcome.failure == Code::kProtocol)
        throw RendezvousStateError(Concat(not_joined, ": ", outcome.why));
      throw RendezvousConnectionError(Concat(not_joined, ": ", outcome.why));
    default:
      throw RendezvousError(Concat(who, " may not join ", run, ": ", outcome.why));
  }
}

bool SessionRendezvous::Close(std::string_view reason) {
  SessionClient& session = Client();
  const bool closed = session.Close(std::string(reason), session_options_.close_timeout);
  if (!closed && session.plain()) return false;
  if (!closed) {
    throw RendezvousTimeoutError(
        Concat("rendezvous '", session_options_.run_id, "' could not be closed within ",
               session_options_.close_timeout.count(), " ms: ", server_, " did not confirm it"));
  }
  events.Record(close_.c_str(), NodeState::kSucceeded, session.node(), [&] {
    return Concat("node '", session.node().ToString(), "' has closed rendezvous '",
                  session_options_.run_id, "'");
  });
  return true;
}

}  // namespace muster
