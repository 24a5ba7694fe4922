#include "rendezvous/session/session_view.h"

#include <algorithm>
#include <utility>

#include "base/instrumented.h"
#include "base/text.h"
#include "rendezvous/wait_report.h"

namespace muster {

namespace {

// The queue of a caller that never asks for events must not grow without limit.
constexpr size_t kEventsMax = 1024;
constexpr Duration kReportAgeMax = 1s;

}  // namespace

SessionView::SessionView(Hello its_hello, System& system)
    : hello(std::move(its_hello)),
      clock(system.clock()),
      monitor(system.MakeMonitor()),
      node(hello.node) {}

std::optional<JoinOutcome> SessionView::BeginJoin(Instant until) {
  outcome.reset();
  assignment.reset();
  events.clear();
  waiting = 0;
  is_spare = false;
  report.reset();
  stands.reset();
  if (closed) return JoinOutcome{.kind = JoinOutcome::Kind::kClosed, .why = closed_by};
  if (plain) return JoinOutcome{.kind = JoinOutcome::Kind::kPlain};
  refused.reset();  // the cause may be gone
  joining = true;
  join_by = until;
  return std::nullopt;
}

void SessionView::BeginLeave() {
  assignment.reset();
  events.clear();
  waiting = 0;
  left = false;
}

void SessionView::Finish(JoinOutcome its_outcome) {
  if (joining && !outcome) outcome = std::move(its_outcome);
}

// --- For people

bool SessionView::NeedsReport(Instant now) const {
  const auto is_old = [&](const std::optional<Instant>& at) {
    return !at || now - *at > kReportAgeMax;
  };
  return (!report || is_old(reported_at)) && is_old(requested_at);
}

WaitReport SessionView::Describe(Instant now, const std::string& server) const {
  using Phase = WaitReport::Phase;
  if (!joining && !assignment && !closed) return {};
  WaitReport described{.phase = Phase::kContact, .run_id = hello.run_id};
  if (open) {
    if (!report && stands) described = ReportOn(AsReport(*stands));
    if (report) {
      described = ReportOn(*report, node);
      for (auto* time : {&described.last_call_left, &described.held_left}) {
        if (*time) *time = TimeLeft(**time - (now - *reported_at));
      }
    }
    if (described.held_left && hello.settings.forming) {
      described.held_for = TimeLeft(hello.settings.forming->rejoin_window - *described.held_left);
    }
    if (is_spare) described.phase = Phase::kSpare;
    if (assignment && !joining) described.phase = closed ? Phase::kClosed : Phase::kComplete;
  } else {
    described.trouble = Concat(server, " is out of reach",
                               trouble.empty() ? "" : Concat(" (", trouble, ")"), ", trying again");
  }
  const bool is_limited = joining && !is_spare && join_by != Instant::Never();
  if (is_limited) described.time_left = TimeLeft(join_by - now);
  return described;
}

// Used until the server's report has arrived; contains no names.
RunReport SessionView::AsReport(const Push& push) const {
  using Phase = RunReport::Phase;
  const Phase forming = push.count < hello.settings.min_nodes ? Phase::kForming : Phase::kLastCall;
  return {.id = hello.run_id,
          .phase = push.kind == Push::Kind::kAdmitted ? forming : Phase::kComplete,
          .round = push.round,
          .settings = hello.settings,
          .participants = push.count};
}

// --- What the link reports

void SessionView::AddEvent(MembershipEvent event) {
  if (events.size() == kEventsMax) events.pop_front();
  events.push_back(std::move(event));
}

// A message about another round was sent before this node left that round.
bool SessionView::InRound(int64_t round) const { return assignment && assignment->round == round; }

void SessionView::LosePlace(const std::string& why) {
  // A node that joins has no assignment. If there is one, the caller may not have returned from its
  // join yet, and must find this event afterwards.
  if (!assignment || Planted(Bug::kPlaceLostUntold)) return;
  if (place_lost == assignment->round) return;
  place_lost = assignment->round;
  MUSTER_PROBE("a node received that it had lost its place");
  waiting = std::max<int64_t>(waiting, 1);  // this node itself has to join again
  AddEvent({.kind = MembershipEvent::Kind::kPlaceLost, .round = assignment->round, .why = why});
}

void SessionView::OnRefused(const Push& push) {
  if (push.refusal == Push::Refusal::kPast) {
    left = true;  // the node is no longer where it was
    return;
  }
  refused = push.why;
  open = false;
  LosePlace(push.why);  // the link has stopped, and no other message will report it
  Finish({.kind = JoinOutcome::Kind::kRefused, .why = push.why});
}

void SessionView::OnClosed(const Push& push) {
  if (!closed)
    AddEvent({.kind = MembershipEvent::Kind::kClosed, .round = push.round, .who = push.who});
  closed = true;
  closed_by = push.who;
  Finish({.kind = push.graceful ? JoinOutcome::Kind::kGraceful : JoinOutcome::Kind::kClosed,
          .why = push.who});
}

void SessionView::OnComplete(const Push& push) {
  is_spare = false;
  if (!joining) return;
  assignment = push;
  stands = push;
  report.reset();
  requested_at.reset();
  Finish({.kind = JoinOutcome::Kind::kComplete, .assignment = push});
}

void SessionView::OnPush(const Push& push) {
  using Kind = Push::Kind;
  const Lock lock(*monitor);
  switch (push.kind) {
    case Kind::kOpened:
      open = true;
      ++connections;
      trouble.clear();
      node.addr = push.addr;
      if (!push.resumed && connections > 1)
        LosePlace("the server had declared it lost, or had forgotten it");
      break;
    case Kind::kRefused:
      OnRefused(push);
      break;
    case Kind::kAdmitted:
    case Kind::kWaiting:
    case Kind::kSpare:
      is_spare = push.kind == Kind::kSpare;
      stands = push;
      requested_at.reset();  // the last report is out of date
      break;
    case Kind::kComplete:
      OnComplete(push);
      break;
    case Kind::kLost:
      if (!InRound(push.round)) break;
      AddEvent({.kind = MembershipEvent::Kind::kMemberLost,
                .round = push.round,
                .who = push.who,
                .why = push.why});
      break;
    case Kind::kNodesWaiting:
      if (!InRound(push.round)) break;
      waiting = push.count;
      if (waiting > 0) {
        AddEvent({.kind = MembershipEvent::Kind::kNodesWaiting,
                  .round = push.round,
                  .waiting = waiting});
      }
      break;
    case Kind::kClosed:
      OnClosed(push);
      break;
    case Kind::kTimedOut:
      Finish({.kind = JoinOutcome::Kind::kTimedOut, .why = push.why});
      break;
    case Kind::kLeft:
      left = true;
      break;
    case Kind::kEnded:  // notified now, and not only when the server can be reached again
      LosePlace(push.why);
      break;
  }
  monitor->NotifyAll();
}

void SessionView::OnReport(std::optional<RunReport> given) {
  const Lock lock(*monitor);
  report = std::move(given);
  reported_at = clock.Now();
}

void SessionView::OnTrouble(const std::string& why) {
  const Lock lock(*monitor);
  open = false;
  trouble = why;
  requested_at.reset();
  report.reset();
  stands.reset();
  monitor->NotifyAll();
}

void SessionView::OnPlaceLost(const std::string& why) {
  const Lock lock(*monitor);
  open = false;
  LosePlace(why);
  monitor->NotifyAll();
}

void SessionView::OnFailed(const Error& why) {
  const Lock lock(*monitor);
  open = false;
  trouble = why.message;
  refused = why.message;
  LosePlace(why.message);
  Finish({.kind = JoinOutcome::Kind::kFailed, .failure = why.code, .why = why.message});
  monitor->NotifyAll();
}

void SessionView::OnPlainServer() {
  const Lock lock(*monitor);
  plain = true;
  open = false;
  LosePlace("the server there now has no coordinator");
  Finish({.kind = JoinOutcome::Kind::kPlain});
  monitor->NotifyAll();
}

}  // namespace muster
