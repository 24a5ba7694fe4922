#include "rendezvous/session/session_handler.h"

#include <utility>

#include "base/interruption.h"
#include "base/text.h"
#include "muster/rendezvous_error.h"
#include "rendezvous/bootstrap.h"
#include "rendezvous/wait_report.h"
#include "store/throw.h"

namespace muster {

namespace {

using std::chrono::milliseconds;
using Lock = SessionView::Lock;

constexpr std::string_view kNext = ".next_rendezvous";  // the last part of an event's name
constexpr uint32_t kNamesRequested = 8;
// The server ends a join in time, by its own clock; its message may take this long to arrive.
constexpr Duration kAnswerGrace = 500ms;
// The time for the delivery of the message that this node shuts down. Without it, the others detect
// that themselves.
constexpr Duration kShutdownMax = 1s;

}  // namespace

// --- The session: a view, a thread and its link

SessionHandler::Session::Session(SessionHandler& handler)
    : view(
          [&] {
            Hello hello = handler.options_.hello;
            hello.bootstrap_port = handler.workers_port_->port();
            return hello;
          }(),
          handler.system_),
      thread(handler.SharedThread()) {
  const uint64_t seed = handler.system_.Seed() ^ static_cast<uint64_t>(view.hello.node.local_id);
  if (thread == nullptr) {
    own_thread = handler.system_.StartLoop();
    thread = own_thread.get();
  }
  thread->RunAndWait([&] {
    link = handler.MakeLink(*thread, view.hello, seed, view);
    link->Start();
  });
}

SessionHandler::Session::~Session() {
  const ScopedUninterrupted meanwhile;
  bool is_delivered = false;
  bool is_sent = false;
  thread->RunAndWait([&] {
    is_sent = link->Shutdown([this, &is_delivered] {
      const Lock lock(*view.monitor);
      is_delivered = true;
      view.monitor->NotifyAll();
    });
  });
  if (is_sent) {
    Lock lock(*view.monitor);
    view.AwaitUntil(lock, view.clock.Now() + kShutdownMax, [&] { return is_delivered; });
  }
  thread->RunAndWait([this] { link.reset(); });
}

SessionHandler::SessionHandler(SessionHandlerOptions options, System& system)
    : system_(system),
      options_(std::move(options)),
      events_(options_.events, options_.hello.run_id, "localhost"),
      workers_port_(system.ReservePort()) {}

SessionHandler::~SessionHandler() = default;

SessionHandler::Session& SessionHandler::Connected() {
  const std::lock_guard lock(mutex_);
  if (!session_) session_ = std::make_unique<Session>(*this);
  return *session_;
}

SessionHandler::Session* SessionHandler::IfConnected() const {
  const std::lock_guard lock(mutex_);
  return session_.get();
}

template <typename T>
T SessionHandler::Read(T SessionView::*member, T before_contact) const {
  const Session* session = IfConnected();
  if (session == nullptr) return before_contact;
  const Lock lock(*session->view.monitor);
  return session->view.*member;
}

Node SessionHandler::CurrentNode() const { return Read(&SessionView::node, options_.hello.node); }
uint64_t SessionHandler::connections() const {
  return Read(&SessionView::connections, uint64_t{0});
}

// --- Joining

RendezvousHandler* SessionHandler::Replacement() const {
  const std::lock_guard lock(mutex_);
  return replacement_.get();
}

RendezvousHandler& SessionHandler::Replace() {
  RendezvousHandlerPtr made = MakeReplacement();
  const std::lock_guard lock(mutex_);
  if (!replacement_) replacement_ = std::move(made);  // else another thread was faster
  return *replacement_;
}

RendezvousInfo SessionHandler::NextRendezvous() {
  if (RendezvousHandler* other = Replacement()) return other->NextRendezvous();
  Session& session = Connected();
  events_.Record({options_.class_name, kNext}, NodeState::kRunning, CurrentNode(),
                 "wants to join the next round of");
  const Instant began = clock_.Now();
  const JoinOutcome outcome = AwaitOutcome(session);
  if (outcome.kind == JoinOutcome::Kind::kPlain) return Replace().NextRendezvous();
  try {
    return Enter(outcome, began);
  } catch (const std::exception& error) {
    const Node node = CurrentNode();
    events_.RecordFailure({options_.class_name, kNext}, &node, error.what());
    throw;
  }
}

RendezvousInfo SessionHandler::Enter(const JoinOutcome& outcome, Instant began) {
  if (outcome.kind == JoinOutcome::Kind::kInterrupted) {
    ThrowInterrupted(Concat("rendezvous '", GetRunId(), "', node '", CurrentNode().ToString(),
                            "': ", InterruptedAfter(began, clock_.Now()),
                            " while waiting for the next round (", options_.server, ")"));
  }
  if (outcome.kind != JoinOutcome::Kind::kComplete) Throw(outcome, CurrentNode());
  const Push& round = outcome.assignment;
  if (round.rank == 0 && Bootstrap::IsShared()) workers_port_->Serve();
  if (round.rank == 0 && !Bootstrap::IsShared())
    workers_port_->Free();  // worker 0 will serve there
  RendezvousInfo info{.store = StoreOf(round),
                      .rank = round.rank,
                      .world_size = round.world_size,
                      .round = round.round,
                      .bootstrap_store_info = {round.addr, round.port}};
  events_.RecordJoined({options_.class_name, kNext}, CurrentNode(), info.rank, info.world_size,
                       info.round);
  return info;
}

JoinOutcome SessionHandler::AwaitOutcome(Session& session) const {
  SessionView& view = session.view;
  const Duration timeout = options_.join_timeout;
  Lock lock(*view.monitor);
  if (auto known = view.BeginJoin(clock_.Now() + timeout)) return *std::move(known);
  session.Request([timeout](RendezvousLink& link) { link.Join(timeout); });
  // The time of a spare begins when it is no longer a spare, or loses the server.
  const auto waits_without_limit = [&] { return view.is_spare && view.open; };
  const auto settled = [&] { return view.outcome.has_value() || waits_without_limit(); };
  while (!view.outcome) {
    if (IsInterrupted()) {
      GiveUp(session, lock);
      return {.kind = JoinOutcome::Kind::kInterrupted};
    }
    if (waits_without_limit()) {
      view.AwaitUntil(lock, Instant::Never(), [&] { return !settled() || view.outcome; });
      view.join_by = clock_.Now() + timeout;
    } else if (!view.AwaitUntil(lock, view.join_by, settled) &&
               !(view.open && view.AwaitUntil(lock, view.join_by + kAnswerGrace, settled)) &&
               !IsInterrupted()) {
      view.Finish({.kind = JoinOutcome::Kind::kUnreachable,
                   .why = view.trouble.empty() ? "it does not answer" : view.trouble});
    }
  }
  view.joining = false;
  if (view.outcome->kind == JoinOutcome::Kind::kUnreachable)
    session.Request([](RendezvousLink& link) { link.Abandon(); });
  return *std::exchange(view.outcome, std::nullopt);
}

// The others are notified immediately. A late answer to this join must not be mistaken for the
// answer to the next one: if the server does not confirm that the node has left, the connection is
// dropped.
void SessionHandler::GiveUp(Session& session, Lock& lock) const {
  SessionView& view = session.view;
  const ScopedUninterrupted once;
  view.joining = false;
  view.left = false;
  session.Request([](RendezvousLink& link) { link.Leave(); });
  const auto is_over = [&] { return view.left || !view.open; };
  const Instant until = clock_.Now() + kInterruptionGrace;
  if (view.open && view.AwaitUntil(lock, until, is_over) && view.left) return;
  session.Request([](RendezvousLink& link) { link.Abandon(); });
}

void SessionHandler::Throw(const JoinOutcome& outcome, const Node& node) const {
  using Kind = JoinOutcome::Kind;
  // The server's texts: exceptions may be printed without further escapes.
  const std::string why = OneLine(outcome.why);
  const std::string who =
      node.addr.empty() ? "this node" : Concat("node '", OneLine(node.ToString()), "'");
  const std::string run = Concat("rendezvous '", GetRunId(), "'");
  const std::string not_joined = Concat(who, " could not join ", run);
  const std::string in_time =
      Concat(not_joined, " within ", options_.join_timeout.count(), " ms: ");
  const std::string by = why.empty() ? "" : " by " + why;
  switch (outcome.kind) {
    case Kind::kClosed:
      throw RendezvousClosedError(Concat(run, " is closed", by, NoteOnSharedId(GetRunId())));
    case Kind::kGraceful:
      throw RendezvousGracefulExitError(
          Concat(run, " was closed", by, " while ", who, " was a spare"));
    case Kind::kTimedOut:
      throw RendezvousTimeoutError(Concat(in_time, why));
    case Kind::kUnreachable:
      throw RendezvousConnectionError(Concat(in_time, options_.server, " is out of reach: ", why));
    case Kind::kFailed:
      if (outcome.failure == Code::kProtocol)
        throw RendezvousStateError(Concat(not_joined, ": ", why));
      throw RendezvousConnectionError(Concat(not_joined, ": ", why));
    default:
      throw RendezvousError(
          Concat(who, " may not join ", run, ": ", why, NoteOnSharedId(GetRunId())));
  }
}

// --- The other operations

// The request is sent even so; `awaited` is what the caller no longer waits for.
void SessionHandler::ThrowIfInterrupted(Instant began, std::string_view awaited) const {
  if (!IsInterrupted()) return;
  muster::Throw(Interrupted(began, clock_.Now(),
                            Concat("waiting for ", awaited, " (", options_.server, ")")));
}

std::string SessionHandler::node() const { return CurrentNode().ToString(); }
std::string SessionHandler::ActiveBackend() const {
  const RendezvousHandler* other = Replacement();
  return other ? other->ActiveBackend() : GetBackend();
}
bool SessionHandler::UseAgentStore() const { return Bootstrap::IsShared(); }

bool SessionHandler::IsClosed() {
  if (RendezvousHandler* other = Replacement()) return other->IsClosed();
  return Read(&SessionView::closed, false);
}
int64_t SessionHandler::NumNodesWaiting() {
  if (RendezvousHandler* other = Replacement()) return other->NumNodesWaiting();
  return Read(&SessionView::waiting, int64_t{0});
}

void SessionHandler::SetClosed(std::string_view reason) {
  if (RendezvousHandler* other = Replacement()) return other->SetClosed(reason);
  Session& session = Connected();
  SessionView& view = session.view;
  Lock lock(*view.monitor);
  const Instant began = clock_.Now();
  session.Request([reason = std::string(reason)](RendezvousLink& link) { link.Close(reason); });
  const auto is_answered = [&] { return view.closed || view.plain || view.refused; };
  if (!view.AwaitUntil(lock, began + options_.close_timeout, is_answered))
    ThrowIfInterrupted(began, "the end of the rendezvous to be confirmed");
  if (!view.closed && view.plain) {
    lock.unlock();
    return Replace().SetClosed(reason);
  }
  if (!view.closed) {
    throw RendezvousTimeoutError(Concat("rendezvous '", GetRunId(), "' could not be closed within ",
                                        options_.close_timeout.count(), " ms: ", options_.server,
                                        " did not confirm it"));
  }
  const Node node = view.node;
  lock.unlock();
  events_.Record({options_.class_name, ".set_closed"}, NodeState::kSucceeded, node, "has closed");
}

bool SessionHandler::Shutdown() {
  try {
    SetClosed("shut down");
    return true;
  } catch (const RendezvousError&) {
    return false;
  }
}

std::optional<MembershipEvent> SessionHandler::AwaitEvent(milliseconds time) {
  if (RendezvousHandler* other = Replacement()) return other->AwaitEvent(time);
  const Instant until = After(clock_.Now(), time);
  SessionView& view = Connected().view;
  Lock lock(*view.monitor);
  const Instant began = clock_.Now();
  if (!view.AwaitUntil(lock, until, [&] { return view.stop_waiting || !view.events.empty(); }))
    ThrowIfInterrupted(began, "a membership event");
  view.stop_waiting = false;
  if (view.events.empty()) return std::nullopt;
  MembershipEvent event = std::move(view.events.front());
  view.events.pop_front();
  return event;
}

bool SessionHandler::StopWaiting() {
  if (RendezvousHandler* other = Replacement()) return other->StopWaiting();
  SessionView& view = Connected().view;
  const Lock lock(*view.monitor);
  view.stop_waiting = true;
  view.monitor->NotifyAll();
  return true;
}

// If it is not confirmed in time, the server detects it itself.
void SessionHandler::Leave() {
  if (RendezvousHandler* other = Replacement()) return other->Leave();
  Session* session = IfConnected();
  if (session == nullptr) return;
  SessionView& view = session->view;
  Lock lock(*view.monitor);
  const Instant began = clock_.Now();
  view.BeginLeave();
  session->Request([](RendezvousLink& link) { link.Leave(); });
  const auto is_over = [&] { return view.left || !view.open; };
  if (view.open && !view.AwaitUntil(lock, began + options_.close_timeout, is_over))
    ThrowIfInterrupted(began, "the end of its membership to be confirmed");
}

// Requests a report if the last one is old, but does not wait for the answer.
WaitReport SessionHandler::DescribeWait() const {
  if (const RendezvousHandler* other = Replacement()) return other->DescribeWait();
  Session* session = IfConnected();
  if (session == nullptr) return {};
  SessionView& view = session->view;
  const Lock lock(*view.monitor);
  const Instant now = clock_.Now();
  const bool waits = view.joining || view.assignment || view.closed;
  if (waits && view.open && view.NeedsReport(now)) {
    view.requested_at = now;
    session->Request([](RendezvousLink& link) { link.RequestReport(kNamesRequested); });
  }
  return view.Describe(now, options_.server);
}

}  // namespace muster
