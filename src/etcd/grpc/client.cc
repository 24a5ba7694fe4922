#include "etcd/grpc/client.h"

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "os/posix/process.h"

namespace muster::etcd {

namespace {

// A member that has said nothing for so long, though somebody waits, is asked whether it lives...
constexpr Duration kSilence = 1s;
// ...and has this long to answer. Together: when a cut-off member is noticed.
constexpr Duration kProbeAnswer = 1500ms;
constexpr Duration kPatrol = 500ms;
// What one member gets of the patience for what another one could do as well: it answers probes,
// but may have no quorum. Doubled in each round, should all of them be slow.
constexpr Duration kAttempt = 2s;
constexpr Duration kAuthentication = 5s;
constexpr size_t kStaleMax = 3;
constexpr Duration kPauseMin = 50ms;
constexpr Duration kPauseMax = 1s;

gpr_timespec GrpcDeadline(Duration from_now) {
  return gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                      gpr_time_from_nanos(from_now.count(), GPR_TIMESPAN));
}

}  // namespace

Client::Client(EtcdAccess access, std::unique_ptr<Members> members, Loop& loop)
    : loop_(loop),
      access_(std::move(access)),
      members_(std::move(members)),
      prng_((uint64_t{ProcessId()} << 40) ^ reinterpret_cast<uintptr_t>(this)),
      has_token_(access_.user.empty()),
      arrivals_(loop) {}

Client::~Client() {
  for (const auto& exchange : exchanges_) {
    exchange->ended = true;
    exchange->timer.reset();
    if (exchange->context) exchange->context->TryCancel();
  }
  for (const auto& probe : probes_) probe->TryCancel();
  arrivals_.Close();
}

void Client::Start(std::shared_ptr<Exchange> exchange, Duration patience) {
  exchange->deadline = loop_.Now() + patience;
  exchanges_.insert(exchange);
  StartPatrol();
  // The end comes later, also that of a call which had no chance.
  if (patience <= Duration::zero())
    exchange->timer = After(1ms, [this, exchange] { GiveUp(exchange); });
  else
    Attempt(exchange);
}

void Client::Attempt(const std::shared_ptr<Exchange>& exchange) {
  exchange->timer.reset();
  // A connection that was lost while nobody used it.
  if (Current()->channel->GetState(false) != GRPC_CHANNEL_READY) ForgetToken();
  if (exchange->anonymous || has_token_) return Send(exchange);
  const Duration left = exchange->deadline - loop_.Now();
  if (left <= Duration::zero()) return GiveUp(exchange);
  exchange->timer = After(left, [this, exchange] { GiveUp(exchange); });
  WithToken([this, exchange](const Status& status) {
    if (exchange->ended) return;
    exchange->timer.reset();
    if (status) return Send(exchange);
    if (status.error().code == Code::kInvalid) return End(exchange, status.error());
    exchange->trouble = status.error().message;
    Repeat(exchange, kPauseMin);
  });
}

void Client::Send(const std::shared_ptr<Exchange>& exchange) {
  Duration left = exchange->deadline - loop_.Now();
  if (left <= Duration::zero()) return GiveUp(exchange);
  if (exchange->repeatable && members() > 1)
    left = std::min<Duration>(
        left, kAttempt * (1 << std::min<size_t>(exchange->attempts / members(), 4)));
  exchange->attempts += 1;
  exchange->over = Current();
  exchange->context = std::make_unique<grpc::ClientContext>();
  exchange->context->set_deadline(GrpcDeadline(left));
  if (!exchange->anonymous) Introduce(*exchange->context);
  exchange->Send(arrivals_.queue(), arrivals_.Expect([this, exchange](bool) { OnEnd(exchange); }));
}

void Client::OnEnd(const std::shared_ptr<Exchange>& exchange) {
  if (exchange->ended) return;
  const bool reached = IsReached(exchange->context->peer());
  const grpc::StatusCode code = exchange->status.error_code();
  const bool local = code == grpc::StatusCode::UNAVAILABLE ||
                     code == grpc::StatusCode::DEADLINE_EXCEEDED ||
                     code == grpc::StatusCode::CANCELLED;
  if (!local) Heard(*exchange->over);
  if (exchange->status.ok()) return Succeed(exchange);
  OnFailure(exchange, Judge(exchange->status, reached, exchange->over->endpoint, access_));
}

void Client::OnFailure(const std::shared_ptr<Exchange>& exchange, Verdict verdict) {
  // That the time was over says less than why it did not work before.
  const bool says_little = verdict.outcome == Outcome::kNothing &&
                           exchange->status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED;
  if (!says_little || exchange->trouble.empty()) exchange->trouble = verdict.error.message;
  exchange->distrusted += verdict.distrust;  // also where other troubles come between
  switch (verdict.outcome) {
    case Outcome::kBusy:
      return Repeat(exchange, kPauseMin + Pause(members()));
    case Outcome::kRefused:
      // The first of two attempts may have ended the lease of which the second finds nothing.
      if (exchange->maybe_done && verdict.error.code == Code::kNotFound) return Succeed(exchange);
      return End(exchange, std::move(verdict.error));
    case Outcome::kStale:
      if (access_.user.empty() || ++exchange->stale > kStaleMax) {
        if (access_.user.empty()) verdict.error.message += "; no user was given";
        return End(exchange, std::move(verdict.error));
      }
      ForgetToken();
      return Repeat(exchange, Duration::zero());
    case Outcome::kNothing:
      Leave(*exchange->over);
      if (exchange->distrusted >= members() * kDistrustSure)
        return End(exchange, std::move(verdict.error));
      return Repeat(exchange, Pause(exchange->attempts));
    case Outcome::kUnknown:
      exchange->maybe_done = true;
      // The only one there is may just be slow; what else hangs on it is not to suffer.
      if (members() > 1 || exchange->status.error_code() != grpc::StatusCode::DEADLINE_EXCEEDED)
        Leave(*exchange->over);
      else
        ForgetToken();  // for which it may wait
      if (!exchange->repeatable) return End(exchange, std::move(verdict.error));
      return Repeat(exchange, Pause(exchange->attempts));
  }
}

void Client::Repeat(const std::shared_ptr<Exchange>& exchange, Duration pause) {
  const Duration left = exchange->deadline - loop_.Now();
  if (left <= Duration::zero()) return GiveUp(exchange);
  if (pause == Duration::zero()) return Attempt(exchange);
  exchange->timer = After(std::min(pause, left), [this, exchange] { Attempt(exchange); });
}

void Client::GiveUp(const std::shared_ptr<Exchange>& exchange) {
  std::string why = exchange->trouble;
  if (why.empty()) why = Concat(access_.ToString(), ": no time was left to ask");
  if (members() > 1)
    why += Concat(" (tried ", exchange->attempts, " times, ", access_.ToString(), ")");
  End(exchange, Error{exchange->maybe_done ? Code::kTimeout : Code::kUnavailable, std::move(why)});
}

void Client::Succeed(const std::shared_ptr<Exchange>& exchange) {
  const std::shared_ptr<Exchange> keep = exchange;
  keep->ended = true;
  exchanges_.erase(keep);
  keep->Succeed();  // may destroy us
}

void Client::End(const std::shared_ptr<Exchange>& exchange, Error error) {
  const std::shared_ptr<Exchange> keep = exchange;  // the caller's may be the set's, or a timer's
  keep->ended = true;
  keep->timer.reset();
  exchanges_.erase(keep);
  keep->Fail(std::move(error));  // may destroy us
}

void Client::WithToken(std::function<void(const Status&)> then) {
  if (has_token_) return then(Ok());
  for_token_.push_back(std::move(then));
  if (!authenticating_) Authenticate();
}

void Client::Authenticate() {
  authenticating_ = true;
  etcdserverpb::AuthenticateRequest request;
  request.set_name(access_.user);
  request.set_password(access_.password);
  auto exchange = std::make_shared<
      ExchangeOf<etcdserverpb::AuthenticateRequest, etcdserverpb::AuthenticateResponse>>(
      std::move(request),
      [](Connection& over, grpc::ClientContext* context, const auto& ask, auto* queue) {
        return over.auth->PrepareAsyncAuthenticate(context, ask, queue);
      },
      [this](Result<const etcdserverpb::AuthenticateResponse*> answer) {
        if (answer) token_ = (*answer)->token();
        // A cluster that lets everybody in lets us in, too.
        const bool open = !answer && answer.error().message.find("authentication is not enabled") !=
                                         std::string::npos;
        if (open) token_.clear();
        OnToken(answer || open ? Ok() : Status(answer.error()));
      });
  exchange->repeatable = true;
  exchange->anonymous = true;
  Start(std::move(exchange), kAuthentication);
}

void Client::OnToken(const Status& status) {
  authenticating_ = false;
  has_token_ = status.has_value();
  // Each in a turn of its own: it may destroy us.
  for (auto& each : std::exchange(for_token_, {}))
    Later([each = std::move(each), status] { each(status); });
}

void Client::Later(std::function<void()> then) {
  loop_.Post([then = std::move(then), alive = std::weak_ptr(alive_)] {
    if (!alive.expired()) then();
  });
}

void Client::Introduce(grpc::ClientContext& context) const {
  context.AddMetadata("hasleader", "true");
  if (!token_.empty()) context.AddMetadata("token", token_);
}

Duration Client::Pause(size_t attempts) {
  if (attempts % members() != 0) return Duration::zero();
  const size_t rounds = std::min<size_t>(attempts / members(), 10);
  const Duration longest = std::min<Duration>(kPauseMin * (1 << rounds) / 2, kPauseMax);
  const auto half = static_cast<uint64_t>(longest.count()) / 2;
  return Duration(static_cast<int64_t>(half + prng_.Below(half + 1)));
}

std::unique_ptr<Timer> Client::After(Duration delay, std::function<void()> then) {
  auto spent = std::make_shared<bool>(false);
  return loop_.Every(std::max<Duration>(delay, 1ms), [spent, then = std::move(then)] {
    if (std::exchange(*spent, true)) return;
    then();
  });
}

void Client::StartPatrol() {
  if (!patrol_) patrol_ = loop_.Every(kPatrol, [this] { Patrol(); });
}

void Client::Patrol() {
  std::set<std::shared_ptr<Connection>> waited_for;
  for (const auto& each : exchanges_) {
    if (each->over && !each->timer) waited_for.insert(each->over);
  }
  bool wanted = !exchanges_.empty();
  for (const SharedStream* each : streams_) {
    if (!each->IsWanted()) continue;
    wanted = true;
    if (const auto over = each->Over()) waited_for.insert(over);
  }
  if (!wanted) return patrol_.reset();
  for (const auto& connection : waited_for) {
    if (!connection->probing && loop_.Now() - connection->heard >= kSilence) Probe(connection);
  }
}

void Client::Probe(const std::shared_ptr<Connection>& connection) {
  struct Question {
    std::unique_ptr<grpc::ClientAsyncResponseReader<etcdserverpb::StatusResponse>> reader;
    etcdserverpb::StatusResponse response;
    grpc::Status status;
  };
  auto question = std::make_shared<Question>();
  auto context = std::make_shared<grpc::ClientContext>();
  context->set_deadline(GrpcDeadline(kProbeAnswer));
  probes_.insert(context);
  connection->probing = true;
  question->reader = connection->maintenance->PrepareAsyncStatus(
      context.get(), etcdserverpb::StatusRequest(), arrivals_.queue());
  question->reader->StartCall();
  const auto on_end = [this, question, context, connection](bool) {
    probes_.erase(context);
    connection->probing = false;
    const grpc::StatusCode code = question->status.error_code();
    const bool silent =
        code == grpc::StatusCode::UNAVAILABLE || code == grpc::StatusCode::DEADLINE_EXCEEDED;
    if (silent)
      Suspect(*connection);
    else
      Heard(*connection);
  };
  question->reader->Finish(&question->response, &question->status, arrivals_.Expect(on_end));
}

void Client::Suspect(const Connection& connection) {
  Leave(connection);
  for (SharedStream* each : streams_) each->Abandon(connection);
  if (members() == 1) return;  // nobody else would know more
  for (const auto& each : exchanges_) {
    if (each->over.get() == &connection && !each->timer) each->context->TryCancel();
  }
}

}  // namespace muster::etcd
