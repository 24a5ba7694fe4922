#include "rendezvous/session/session_client.h"

#include <utility>

#include "base/interruption.h"
#include "base/planted.h"
#include "base/probe.h"
#include "base/text.h"
#include "rendezvous/wait_report.h"
#include "store/throw.h"

namespace muster {

namespace {

// Somebody who never asks for events must not pay for them.
constexpr size_t kEventsMax = 1024;
constexpr Duration kReportMax = 1s;
constexpr uint32_t kNamesAsked = 8;
// The server ends a join in time, by its clock; this is for its message to arrive.
constexpr Duration kLastWord = 500ms;
// For the others to be told that this node goes; they notice by themselves, too.
constexpr Duration kFarewell = 1s;

}  // namespace

SessionClient::SessionClient(SessionClientOptions options, System& around)
    : options_(std::move(options)),
      clock_(around.clock()),
      monitor_(around.MakeMonitor()),
      node_(options_.hello.node),
      own_thread_(options_.thread == nullptr ? around.StartLoop() : nullptr),
      thread_(own_thread_ ? own_thread_.get() : options_.thread) {
  thread_->RunAndWait([this] {
    RendezvousLinkOwner& owner = *this;
    link_ = options_.make_link(*thread_, owner);
    link_->Start();
  });
}

template <typename Ready>
bool SessionClient::AwaitUntil(Lock& lock, Instant until, const Ready& ready) {
  while (!ready()) {
    if (until != Instant::Never() && clock_.Now() >= until) return false;
    if (IsInterrupted()) return false;
    lock.mutex()->WaitUntil(until);
  }
  return true;
}

SessionClient::~SessionClient() {
  const ScopedUninterrupted meanwhile;
  bool said = false;
  bool waits = false;
  thread_->RunAndWait([&] {
    waits = link_->Farewell([this, &said] {
      const Lock lock(*monitor_);
      said = true;
      monitor_->NotifyAll();
    });
  });
  if (waits) {
    Lock lock(*monitor_);
    AwaitUntil(lock, clock_.Now() + kFarewell, [&] { return said; });
  }
  thread_->RunAndWait([this] { link_.reset(); });
}

// ----------------------------------------------------------------------------------------------
// what callers want

SessionClient::Outcome SessionClient::Join(Duration timeout) {
  Lock lock(*monitor_);
  outcome_.reset();
  assignment_.reset();
  events_.clear();
  waiting_ = 0;
  is_spare_ = false;
  report_.reset();
  stands_.reset();
  // For good, also where the server has been started anew and does not know.
  if (closed_) return {.kind = Outcome::Kind::kClosed, .why = closed_by_};
  if (plain_) return {.kind = Outcome::Kind::kPlain};
  refused_.reset();  // what was refused then may be granted now
  joining_ = true;
  join_by_ = clock_.Now() + timeout;
  thread_->loop().Post([this, timeout] {
    if (link_) link_->Join(timeout);
  });
  // The time of a spare begins when it stops being one, or loses the server.
  const auto settled = [&] { return outcome_.has_value() || (is_spare_ && open_); };
  while (!outcome_) {
    if (IsInterrupted()) {
      GiveUp(lock);
      return {.kind = Outcome::Kind::kInterrupted};
    }
    if (is_spare_ && open_) {
      AwaitUntil(lock, Instant::Never(), [&] { return !settled() || outcome_; });
      join_by_ = clock_.Now() + timeout;
    } else if (!AwaitUntil(lock, join_by_, settled) &&
               !(open_ && AwaitUntil(lock, join_by_ + kLastWord, settled)) && !IsInterrupted()) {
      Finish({.kind = Outcome::Kind::kUnreachable,
              .why = trouble_.empty() ? "it does not answer" : trouble_});
    }
  }
  joining_ = false;
  if (outcome_->kind == Outcome::Kind::kUnreachable) {
    thread_->loop().Post([this] {
      if (link_) link_->Abandon();
    });
  }
  return *std::exchange(outcome_, std::nullopt);
}

// The others are to know at once; and what is still said of this join must not be taken for the
// answer to another one, so it is left in order or not at all.
void SessionClient::GiveUp(Lock& lock) {
  const ScopedUninterrupted once;
  joining_ = false;
  left_ = false;
  thread_->loop().Post([this] {
    if (link_) link_->Leave();
  });
  const auto over = [&] { return left_ || !open_; };
  if (open_ && AwaitUntil(lock, clock_.Now() + kInterruptionGrace, over) && left_) return;
  thread_->loop().Post([this] {
    if (link_) link_->Abandon();
  });
}

// `said`: what the other end hears of all the same.
void SessionClient::ThrowIfInterrupted(Instant began, std::string_view said) const {
  if (IsInterrupted())
    Throw(
        Interrupted(began, clock_.Now(), Concat("waiting for ", said, " (", options_.server, ")")));
}

bool SessionClient::Leave(Duration timeout) {
  Lock lock(*monitor_);
  const Instant began = clock_.Now();
  assignment_.reset();
  events_.clear();
  waiting_ = 0;
  left_ = false;
  thread_->loop().Post([this] {
    if (link_) link_->Leave();
  });
  if (!open_) return false;
  if (!AwaitUntil(lock, began + timeout, [&] { return left_ || !open_; })) {
    ThrowIfInterrupted(began, "the end of its membership to be confirmed");
    return false;
  }
  return left_;
}

bool SessionClient::Close(std::string reason, Duration timeout) {
  Lock lock(*monitor_);
  const Instant began = clock_.Now();
  thread_->loop().Post([this, reason = std::move(reason)] {
    if (link_) link_->Close(reason);
  });
  if (!AwaitUntil(lock, began + timeout, [&] { return closed_ || plain_ || refused_; })) {
    ThrowIfInterrupted(began, "the end of the rendezvous to be confirmed");
    return false;
  }
  return closed_;
}

bool SessionClient::closed() const {
  const Lock lock(*monitor_);
  return closed_;
}

int64_t SessionClient::nodes_waiting() const {
  const Lock lock(*monitor_);
  return waiting_;
}

Node SessionClient::node() const {
  const Lock lock(*monitor_);
  return node_;
}

uint64_t SessionClient::connections() const {
  const Lock lock(*monitor_);
  return connections_;
}

bool SessionClient::plain() const {
  const Lock lock(*monitor_);
  return plain_;
}

std::optional<MembershipEvent> SessionClient::AwaitEvent(Instant until) {
  Lock lock(*monitor_);
  const Instant began = clock_.Now();
  if (!AwaitUntil(lock, until, [&] { return stop_waiting_ || !events_.empty(); }))
    ThrowIfInterrupted(began, "a membership event");
  stop_waiting_ = false;
  if (events_.empty()) return std::nullopt;
  MembershipEvent event = std::move(events_.front());
  events_.pop_front();
  return event;
}

void SessionClient::StopWaiting() {
  const Lock lock(*monitor_);
  stop_waiting_ = true;
  monitor_->NotifyAll();
}

WaitReport SessionClient::Describe() {
  using Phase = WaitReport::Phase;
  const Lock lock(*monitor_);
  const Instant now = clock_.Now();
  WaitReport report{.phase = Phase::kContact, .run_id = options_.hello.run_id};
  if (!joining_ && !assignment_ && !closed_) return {};
  if (open_) {
    const auto is_old = [&](const std::optional<Instant>& at) {
      return !at || now - *at > kReportMax;
    };
    if ((!report_ || is_old(reported_at_)) && is_old(asked_at_)) {
      asked_at_ = now;
      thread_->loop().Post([this] {
        if (link_) link_->AskHowItStands(kNamesAsked);
      });
    }
    if (report_) {
      report = ReportOn(*report_, node_);
    } else if (stands_) {
      report = ReportOn(AsReport(*stands_), std::nullopt);
    }
    if (report_ && report.last_call_left) {
      const auto age = std::chrono::duration_cast<std::chrono::milliseconds>(now - *reported_at_);
      report.last_call_left = std::max(*report.last_call_left - age, std::chrono::milliseconds(0));
    }
    if (is_spare_) report.phase = Phase::kSpare;
    if (assignment_ && !joining_) report.phase = closed_ ? Phase::kClosed : Phase::kComplete;
  } else {
    report.trouble = Concat(options_.server, " is out of reach",
                            trouble_.empty() ? "" : Concat(" (", trouble_, ")"), ", trying again");
  }
  const bool limited = joining_ && !is_spare_ && join_by_ != Instant::Never();
  if (limited) {
    report.time_left = std::chrono::duration_cast<std::chrono::milliseconds>(
        std::max<Duration>(join_by_ - now, 0s));
  }
  return report;
}

// Without names, until the server has been asked for them.
RunReport SessionClient::AsReport(const Push& push) const {
  const RunSettings& settings = options_.hello.settings;
  using Phase = RunReport::Phase;
  const Phase forming = push.count < settings.min_nodes ? Phase::kForming : Phase::kLastCall;
  RunReport report{.id = options_.hello.run_id,
                   .phase = push.kind == Push::Kind::kAdmitted ? forming : Phase::kComplete,
                   .round = push.round,
                   .settings = settings,
                   .participants = push.count};
  return report;
}

// ----------------------------------------------------------------------------------------------
// what the link hears

void SessionClient::AddEvent(MembershipEvent event) {
  if (events_.size() == kEventsMax) events_.pop_front();
  events_.push_back(std::move(event));
}

// What is said of another round was said before this node left that.
bool SessionClient::InRound(int64_t round) const {
  return assignment_ && assignment_->round == round;
}

void SessionClient::LosePlace(const std::string& why) {
  // Nobody who joins has an assignment. If there is one, the caller may still have to wake up for
  // it, and must find this when it does.
  if (!assignment_ || Planted(Bug::kPlaceLostUntold)) return;
  if (place_lost_ == assignment_->round) return;
  place_lost_ = assignment_->round;
  MUSTER_PROBE("a node heard that it had lost its place");
  waiting_ = std::max<int64_t>(waiting_, 1);  // it is this node that has to come
  AddEvent({.kind = MembershipEvent::Kind::kPlaceLost, .round = assignment_->round, .why = why});
}

void SessionClient::Finish(Outcome outcome) {
  if (joining_ && !outcome_) outcome_ = std::move(outcome);
}

void SessionClient::OnRefused(const Push& push) {
  if (push.refusal == Push::Refusal::kPast) {
    left_ = true;  // where it was, it is not any more
    return;
  }
  refused_ = push.why;
  open_ = false;
  Finish({.kind = Outcome::Kind::kRefused, .why = push.why});
}

void SessionClient::OnClosed(const Push& push) {
  if (!closed_)
    AddEvent({.kind = MembershipEvent::Kind::kClosed, .round = push.round, .who = push.who});
  closed_ = true;
  closed_by_ = push.who;
  Finish(
      {.kind = push.graceful ? Outcome::Kind::kGraceful : Outcome::Kind::kClosed, .why = push.who});
}

void SessionClient::OnPush(const Push& push) {
  using Kind = Push::Kind;
  const Lock lock(*monitor_);
  switch (push.kind) {
    case Kind::kOpened:
      open_ = true;
      ++connections_;
      trouble_.clear();
      node_.addr = push.addr;
      if (!push.resumed && connections_ > 1)
        LosePlace("the server had given it up, or forgotten it");
      break;
    case Kind::kRefused:
      OnRefused(push);
      break;
    case Kind::kAdmitted:
    case Kind::kWaiting:
    case Kind::kSpare:
      is_spare_ = push.kind == Kind::kSpare;
      stands_ = push;
      asked_at_.reset();  // things have changed
      break;
    case Kind::kComplete:
      is_spare_ = false;
      if (!joining_) break;
      if (push.generation == last_generation_ && push.round <= last_round_ &&
          !Planted(Bug::kStalePushAccepted))
        break;  // said again
      last_round_ = push.round;
      last_generation_ = push.generation;
      assignment_ = push;
      stands_ = push;
      report_.reset();
      asked_at_.reset();
      Finish({.kind = Outcome::Kind::kComplete, .assignment = push});
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
      waiting_ = push.count;
      if (waiting_ > 0) {
        AddEvent({.kind = MembershipEvent::Kind::kNodesWaiting,
                  .round = push.round,
                  .waiting = waiting_});
      }
      break;
    case Kind::kClosed:
      OnClosed(push);
      break;
    case Kind::kTimedOut:
      Finish({.kind = Outcome::Kind::kTimedOut, .why = push.why});
      break;
    case Kind::kLeft:
      left_ = true;
      break;
    case Kind::kEnded:  // now, and not only when the server can be reached again
      LosePlace(push.why);
      break;
  }
  monitor_->NotifyAll();
}

void SessionClient::OnReport(std::optional<RunReport> report) {
  const Lock lock(*monitor_);
  report_ = std::move(report);
  reported_at_ = clock_.Now();
}

void SessionClient::OnTrouble(const std::string& why) {
  const Lock lock(*monitor_);
  open_ = false;
  trouble_ = why;
  asked_at_.reset();
  report_.reset();
  stands_.reset();
  monitor_->NotifyAll();
}

void SessionClient::OnPlaceLost(const std::string& why) {
  const Lock lock(*monitor_);
  open_ = false;
  LosePlace(why);
  monitor_->NotifyAll();
}

void SessionClient::OnFailed(const Error& why) {
  const Lock lock(*monitor_);
  open_ = false;
  trouble_ = why.message;
  refused_ = why.message;
  LosePlace(why.message);
  Finish({.kind = Outcome::Kind::kFailed, .failure = why.code, .why = why.message});
  monitor_->NotifyAll();
}

void SessionClient::OnPlainServer() {
  const Lock lock(*monitor_);
  plain_ = true;
  open_ = false;
  LosePlace("the server there now has no coordinator");
  Finish({.kind = Outcome::Kind::kPlain});
  monitor_->NotifyAll();
}

}  // namespace muster
