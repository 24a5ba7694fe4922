#include "rendezvous/session/session_link.h"

#include <algorithm>
#include <chrono>
#include <utility>
#include <variant>

#include "base/assert.h"
#include "base/instrumented.h"
#include "base/text.h"

namespace muster {

namespace {

using Request = wire::SessionRequest::Kind;

constexpr Duration kFirstPause = 20ms;
constexpr Duration kLongestPause = 1s;
// Attempts without an answer until the port belongs to a program that is no server.
constexpr int kUnansweredMax = 4;
// A session that ends sooner than this may do so repeatedly: reconnect with pauses.
constexpr Duration kLasted = 1s;

// Whole milliseconds, as on the wire; a join without time would be refused at once.
Duration Rounded(Duration time) {
  return std::max<Duration>(std::chrono::ceil<std::chrono::milliseconds>(time), 1ms);
}

// For this long, another node with the same name may be this node itself before a restart.
Duration ForgottenAfter(const RunSettings& settings) {
  return settings.dead_after() + settings.grace + 1s;
}

}  // namespace

SessionLink::SessionLink(Loop& loop, Connector& connector, SessionLinkOptions options,
                         RendezvousLinkListener& listener)
    : loop_(loop), connector_(connector), options_(std::move(options)), listener_(listener) {}

SessionLink::~SessionLink() { MUSTER_ASSERT(loop_.IsCurrent()); }

void SessionLink::Start() {
  MUSTER_ASSERT(step_ == Step::kIdle);
  Connect();
}

// ----------------------------------------------------------------------------------------------
// the connection

void SessionLink::Connect() {
  step_ = Step::kConnecting;
  attempt_ = connector_.Connect(
      options_.server,
      {.patience = options_.attempt_max, .unanswered_max = options_.hello.settings.dead_after()},
      [this](Result<StreamPtr> stream) { OnConnected(std::move(stream)); });
}

void SessionLink::OnConnected(Result<StreamPtr> stream) {
  attempt_.reset();
  if (!stream) {
    std::string why = std::move(stream).error().message;
    if (!reached_ && options_.on_nobody_there) why += options_.on_nobody_there();
    return Drop(why);
  }
  reached_ = true;
  stream_ = std::move(*stream);
  stream_->Start(*this);
  timer_ = loop_.Every(options_.attempt_max, [this] {
    constexpr std::string_view kWhy = "it accepts connections, but does not answer";
    // A server may be paused or starved for a while.
    if (++unanswered_ < kUnansweredMax) return Drop(std::string(kWhy));
    OnForeign(std::string(kWhy));
  });
  step_ = Step::kGreeting;
  Write(wire::SessionGreeting(greet_first_));
  if (!greet_first_) Introduce();
}

void SessionLink::OnForeign(const std::string& why) {
  if (!options_.is_here || answered_) return Drop(why);
  Stop();
  listener_.OnFailed(
      {Code::kUnavailable,
       Concat("port ", options_.server.port,
              " of this machine is taken by a program that is no rendezvous server (", why,
              "); end it, or choose another port")});
}

void SessionLink::Disconnect() {
  attempt_.reset();
  timer_.reset();
  stream_.reset();
  input_.clear();
  report_.reset();
}

void SessionLink::Drop(const std::string& why) {
  const bool was_open = step_ == Step::kOpen;
  const bool lasted = was_open && loop_.Now() - opened_at_ >= kLasted;
  // The server may have opened a session without our knowledge: the next refusal may be due to it.
  if (step_ == Step::kOpening) refused_since_.reset();
  Disconnect();
  step_ = Step::kResting;
  if (!was_open) greet_first_ = true;
  if (lasted) {
    backoff_.reset();
    Connect();  // immediately: the grace for a reconnect is short
  } else {
    if (!backoff_) backoff_.emplace(kFirstPause, kLongestPause, options_.seed);
    timer_ = loop_.Every(backoff_->Next(), [this] {
      timer_.reset();
      Connect();
    });
  }
  listener_.OnTrouble(why);
}

void SessionLink::Stop() {
  Disconnect();
  step_ = Step::kStopped;
}

void SessionLink::OnClosed(const std::string& why) {
  Drop(why.empty() ? "the server has closed the connection" : why);
}

void SessionLink::OnBytes(std::string_view bytes) {
  bytes_ += bytes.size();
  input_ += bytes;
  const Result<size_t> done = Consume(input_);
  if (!stream_) return;  // a message has ended this connection
  if (!done) return Drop(done.error().message);
  input_.erase(0, *done);
}

// ----------------------------------------------------------------------------------------------
// what the node sends

void SessionLink::Write(const std::string& message) {
  stream_->Write(message);
  bytes_ += message.size();
  ++messages_;
}

void SessionLink::Introduce() {
  step_ = Step::kOpening;
  Send({.kind = Request::kOpen, .hello = options_.hello});
}

void SessionLink::Send(wire::SessionRequest request) {
  request.incarnation = request.kind == Request::kOpen ? 0 : incarnation_;
  request.token = token_;
  request.round = round_;
  std::string frame;
  wire::AppendSessionFrame(frame, request);
  Write(frame);
}

void SessionLink::SendJoin() {
  Send({.kind = Request::kJoin, .join_timeout = Rounded(join_->until - loop_.Now())});
}

void SessionLink::Join(Duration timeout) {
  join_ = JoinRequest{timeout, loop_.Now() + timeout};
  if (is_open()) SendJoin();
  if (step_ == Step::kStopped && !plain_) {
    refused_since_.reset();
    Connect();
  }
}

void SessionLink::Leave() {
  join_.reset();
  leave_ = true;
  if (is_open()) Send({.kind = Request::kLeave});
}

void SessionLink::Abandon() {
  MUSTER_PROBE("a join was abandoned without an answer");
  join_.reset();
  leave_ = true;
  if (is_open()) Drop("it did not answer in time");
}

void SessionLink::Close(std::string reason) {
  close_ = std::move(reason);
  if (is_open()) Send({.kind = Request::kClose, .reason = *close_});
}

void SessionLink::RequestReport(uint32_t names_max) {
  if (!is_open()) return;
  Send({.kind = Request::kStatus, .run_id = options_.hello.run_id, .names_max = names_max});
}

// ----------------------------------------------------------------------------------------------
// what the node receives

Result<size_t> SessionLink::Consume(std::string_view bytes) {
  size_t done = 0;
  while (stream_ && done < bytes.size()) {
    if (step_ == Step::kGreeting) {
      ++messages_;
      const char answer = bytes[done++];
      if (answer != wire::kSessionsSpoken && answer != wire::kSessionsUnknown) {
        OnForeign("its answer is not a store's");
        return done;
      }
      answered_ = true;
      unanswered_ = 0;
      if (answer != wire::kSessionsSpoken) {
        Stop();
        plain_ = true;
        listener_.OnPlainServer();
        return done;
      }
      Introduce();
      continue;
    }
    MUSTER_TRY(const size_t size, wire::SessionFrameSize(bytes.substr(done)));
    if (size == 0 || bytes.size() - done < size) break;
    MUSTER_TRY(auto reply, wire::ReadSessionReply(bytes.substr(done, size)));
    done += size;
    ++messages_;
    if (const auto* push = std::get_if<Push>(&reply)) {
      OnMessage(*push);
    } else {
      OnMessage(std::move(std::get<wire::StatusPart>(reply)));
    }
  }
  return done;
}

void SessionLink::OnMessage(const Push& push) {
  using Kind = Push::Kind;
  if (push.kind == Kind::kOpened) return OnOpened(push);
  if (push.kind == Kind::kRefused) return OnRefused(push);
  if (push.token != token_ || push.incarnation != incarnation_)
    return;  // the message is of another session or incarnation
  switch (push.kind) {
    case Kind::kComplete:
      if (push.generation == generation_ && push.round <= round_ &&
          !Planted(Bug::kStalePushAccepted)) {
        MUSTER_PROBE("a node received a round again that it knew");
        return;  // sent again after a reconnect: the listener knows it, or has timed out
      }
      round_ = push.round;
      generation_ = push.generation;
      if (!join_) MUSTER_PROBE("a place came too late, and was given back");
      if (!join_) return Send({.kind = Request::kLeave});
      join_.reset();
      leave_ = false;  // it concerned the previous round
      break;
    case Kind::kTimedOut:
      join_.reset();
      break;
    case Kind::kClosed:
      join_.reset();
      close_.reset();
      break;
    case Kind::kSpare:
      if (join_) join_->until = Instant::Never();  // a spare waits without limit
      break;
    case Kind::kAdmitted:
    case Kind::kWaiting:
      if (join_ && join_->until == Instant::Never()) join_->until = loop_.Now() + join_->timeout;
      break;
    case Kind::kLeft:
      leave_ = false;
      break;
    default:  // kEnded: the connection ends, too; the token shows the server the run of this node
      break;
  }
  listener_.OnPush(push);
}

void SessionLink::OnOpened(const Push& push) {
  if (push.version < kSessionVersionOldest || push.version > kSessionVersion) {
    return Drop(Concat("it wants to speak version ", push.version,
                       " of the session protocol, which was not offered"));
  }
  token_ = push.token;
  incarnation_ = push.incarnation;
  // it does not change, whatever address later connections have
  options_.hello.node.addr = push.addr;
  step_ = Step::kOpen;
  opened_at_ = loop_.Now();
  greet_first_ = false;
  refused_since_.reset();
  timer_ = loop_.Every(options_.hello.settings.keep_alive_interval,
                       [this] { Send({.kind = Request::kKeepAlive}); });
  if (join_ && join_->until == Instant::Never()) join_->until = loop_.Now() + join_->timeout;
  if (leave_ && push.resumed) MUSTER_PROBE("a node left with its next connection");
  if (leave_ && push.resumed) Send({.kind = Request::kLeave});
  leave_ = leave_ && push.resumed;
  if (join_) SendJoin();  // idempotent: it may have been received before
  if (close_) MUSTER_PROBE("a node closed with its next connection");
  if (close_) Send({.kind = Request::kClose, .reason = *close_});
  listener_.OnPush(push);
}

void SessionLink::OnRefused(const Push& push) {
  if (step_ == Step::kOpen) {
    leave_ = false;  // there was nothing to leave
    return listener_.OnPush(push);
  }
  const Instant now = loop_.Now();
  const Instant since = refused_since_.value_or(now);
  const bool passes = push.refusal == Push::Refusal::kLimit ||
                      (push.refusal == Push::Refusal::kIdentity &&
                       now - since < ForgottenAfter(options_.hello.settings));
  if (!passes) {
    Stop();
    return listener_.OnPush(push);
  }
  // A server that still has our session resumes it.
  listener_.OnPlaceLost(Concat("the server did not resume its session: ", push.why));
  Drop(push.why);
  refused_since_ = since;
}

void SessionLink::OnMessage(wire::StatusPart part) {
  using Kind = wire::StatusPart::Kind;
  switch (part.kind) {
    case Kind::kRun:
      report_ = std::move(part.run);
      return;
    case Kind::kMember:
      if (report_) report_->members.push_back(std::move(part.member));
      return;
    case Kind::kDone:
      return listener_.OnReport(std::exchange(report_, std::nullopt));
  }
}

}  // namespace muster
