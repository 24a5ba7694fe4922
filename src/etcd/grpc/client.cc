#include "etcd/grpc/client.h"

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "os/posix/process.h"

namespace muster::etcd {

namespace {

// A member that is silent for so long while an answer is awaited is probed...
constexpr Duration kSilence = 1s;
// ...and has this long to answer. A cut-off member is noticed after the sum.
constexpr Duration kProbeAnswer = 1500ms;
constexpr Duration kSilenceCheck = 500ms;
// How long one member may take for a call that another one could answer: it may answer probes and
// have no quorum. Doubled in each round, in case all members are slow.
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
      completions_(loop) {}

Client::~Client() {
  for (const auto& call : calls_) {
    call->ended = true;
    call->timer.reset();
    if (call->context) call->context->TryCancel();
  }
  for (const auto& probe : probes_) probe->TryCancel();
  completions_.Close();
}

void Client::Start(std::shared_ptr<Call> call, Duration patience) {
  call->deadline = loop_.Now() + patience;
  calls_.insert(call);
  StartSilenceChecks();
  // The end is reported later, also if there is no time for an attempt.
  if (patience <= Duration::zero())
    call->timer = After(1ms, [this, call] { TimeOut(call); });
  else
    Attempt(call);
}

void Client::Attempt(const std::shared_ptr<Call>& call) {
  call->timer.reset();
  // The connection may have been lost while it was idle.
  if (Current()->channel->GetState(false) != GRPC_CHANNEL_READY) ForgetToken();
  if (call->anonymous || has_token_) return Send(call);
  const Duration left = call->deadline - loop_.Now();
  if (left <= Duration::zero()) return TimeOut(call);
  call->timer = After(left, [this, call] { TimeOut(call); });
  WithToken([this, call](const Status& status) {
    if (call->ended) return;
    call->timer.reset();
    if (status) return Send(call);
    if (status.error().code == Code::kInvalid) return End(call, status.error());
    call->trouble = status.error().message;
    Repeat(call, kPauseMin);
  });
}

void Client::Send(const std::shared_ptr<Call>& call) {
  Duration left = call->deadline - loop_.Now();
  if (left <= Duration::zero()) return TimeOut(call);
  if (call->repeatable && members() > 1)
    left =
        std::min<Duration>(left, kAttempt * (1 << std::min<size_t>(call->attempts / members(), 4)));
  call->attempts += 1;
  call->over = Current();
  call->context = std::make_unique<grpc::ClientContext>();
  call->context->set_deadline(GrpcDeadline(left));
  if (!call->anonymous) AddCredentials(*call->context);
  call->Send(completions_.queue(), completions_.MakeTag([this, call](bool) { OnEnd(call); }));
}

void Client::OnEnd(const std::shared_ptr<Call>& call) {
  if (call->ended) return;
  const bool reached = IsReached(call->context->peer());
  const grpc::StatusCode code = call->status.error_code();
  const bool local = code == grpc::StatusCode::UNAVAILABLE ||
                     code == grpc::StatusCode::DEADLINE_EXCEEDED ||
                     code == grpc::StatusCode::CANCELLED;
  if (!local) NoteAlive(*call->over);
  if (call->status.ok()) return Succeed(call);
  OnFailure(call, Classify(call->status, reached, call->over->endpoint, access_));
}

void Client::OnFailure(const std::shared_ptr<Call>& call, Failure failure) {
  // A timeout explains less than the failure before it.
  const bool is_vague = failure.outcome == Outcome::kNothing &&
                        call->status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED;
  if (!is_vague || call->trouble.empty()) call->trouble = failure.error.message;
  call->distrusted += failure.distrust;  // also if other failures come between
  switch (failure.outcome) {
    case Outcome::kBusy:
      return Repeat(call, kPauseMin + Pause(members()));
    case Outcome::kRefused:
      // The first of two attempts may have ended the lease that the second does not find.
      if (call->maybe_done && failure.error.code == Code::kNotFound) return Succeed(call);
      return End(call, std::move(failure.error));
    case Outcome::kStale:
      if (access_.user.empty() || ++call->stale > kStaleMax) {
        if (access_.user.empty()) failure.error.message += "; no user was given";
        return End(call, std::move(failure.error));
      }
      ForgetToken();
      return Repeat(call, Duration::zero());
    case Outcome::kNothing:
      SwitchFrom(*call->over);
      if (call->distrusted >= members() * kDistrustSure) return End(call, std::move(failure.error));
      return Repeat(call, Pause(call->attempts));
    case Outcome::kUnknown:
      call->maybe_done = true;
      // The only member may just be slow, and other calls use the connection, too.
      if (members() > 1 || call->status.error_code() != grpc::StatusCode::DEADLINE_EXCEEDED)
        SwitchFrom(*call->over);
      else
        ForgetToken();  // it may be waiting for the token's request
      if (!call->repeatable) return End(call, std::move(failure.error));
      return Repeat(call, Pause(call->attempts));
  }
}

void Client::Repeat(const std::shared_ptr<Call>& call, Duration pause) {
  const Duration left = call->deadline - loop_.Now();
  if (left <= Duration::zero()) return TimeOut(call);
  if (pause == Duration::zero()) return Attempt(call);
  call->timer = After(std::min(pause, left), [this, call] { Attempt(call); });
}

void Client::TimeOut(const std::shared_ptr<Call>& call) {
  std::string why = call->trouble;
  if (why.empty()) why = Concat(access_.ToString(), ": no time was left to request");
  if (members() > 1) why += Concat(" (tried ", call->attempts, " times, ", access_.ToString(), ")");
  End(call, Error{call->maybe_done ? Code::kTimeout : Code::kUnavailable, std::move(why)});
}

void Client::Succeed(const std::shared_ptr<Call>& call) {
  const std::shared_ptr<Call> keep = call;
  keep->ended = true;
  calls_.erase(keep);
  keep->Succeed();  // may destroy this client
}

void Client::End(const std::shared_ptr<Call>& call, Error error) {
  const std::shared_ptr<Call> keep = call;  // the reference may be the set's, or a timer's
  keep->ended = true;
  keep->timer.reset();
  calls_.erase(keep);
  keep->Fail(std::move(error));  // may destroy this client
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
  const auto call = MakeCall(
      std::move(request), &Connection::auth, &etcdserverpb::Auth::Stub::PrepareAsyncAuthenticate,
      [this](Result<const etcdserverpb::AuthenticateResponse*> answer) {
        if (answer) token_ = (*answer)->token();
        // A cluster without authentication needs no token.
        const bool open = !answer && answer.error().message.find("authentication is not enabled") !=
                                         std::string::npos;
        if (open) token_.clear();
        OnToken(answer || open ? Ok() : Status(answer.error()));
      });
  call->repeatable = true;
  call->anonymous = true;
  Start(call, kAuthentication);
}

void Client::OnToken(const Status& status) {
  authenticating_ = false;
  has_token_ = status.has_value();
  // Each in a turn of its own, because it may destroy this client.
  for (auto& each : std::exchange(for_token_, {}))
    Later([each = std::move(each), status] { each(status); });
}

void Client::Later(std::function<void()> then) {
  loop_.Post([then = std::move(then), alive = std::weak_ptr(alive_)] {
    if (!alive.expired()) then();
  });
}

void Client::AddCredentials(grpc::ClientContext& context) const {
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

void Client::StartSilenceChecks() {
  if (!silence_checks_) silence_checks_ = loop_.Every(kSilenceCheck, [this] { CheckSilence(); });
}

void Client::CheckSilence() {
  std::set<std::shared_ptr<Connection>> waited_for;
  for (const auto& each : calls_) {
    if (each->over && !each->timer) waited_for.insert(each->over);
  }
  bool wanted = !calls_.empty();
  for (const SharedStream* each : streams_) {
    if (!each->IsWanted()) continue;
    wanted = true;
    if (const auto over = each->Over()) waited_for.insert(over);
  }
  if (!wanted) return silence_checks_.reset();
  for (const auto& connection : waited_for) {
    if (!connection->probing && loop_.Now() - connection->alive_at >= kSilence) Probe(connection);
  }
}

void Client::Probe(const std::shared_ptr<Connection>& connection) {
  struct ProbeCall {
    std::unique_ptr<grpc::ClientAsyncResponseReader<etcdserverpb::StatusResponse>> reader;
    etcdserverpb::StatusResponse response;
    grpc::Status status;
  };
  auto probe = std::make_shared<ProbeCall>();
  auto context = std::make_shared<grpc::ClientContext>();
  context->set_deadline(GrpcDeadline(kProbeAnswer));
  probes_.insert(context);
  connection->probing = true;
  probe->reader = connection->maintenance->PrepareAsyncStatus(
      context.get(), etcdserverpb::StatusRequest(), completions_.queue());
  probe->reader->StartCall();
  const auto on_end = [this, probe, context, connection](bool) {
    probes_.erase(context);
    connection->probing = false;
    const grpc::StatusCode code = probe->status.error_code();
    const bool silent =
        code == grpc::StatusCode::UNAVAILABLE || code == grpc::StatusCode::DEADLINE_EXCEEDED;
    if (silent)
      OnSilent(*connection);
    else
      NoteAlive(*connection);
  };
  probe->reader->Finish(&probe->response, &probe->status, completions_.MakeTag(on_end));
}

void Client::OnSilent(const Connection& connection) {
  SwitchFrom(connection);
  for (SharedStream* each : streams_) each->Abandon(connection);
  if (members() == 1) return;  // there is no other one to try
  for (const auto& each : calls_) {
    if (each->over.get() == &connection && !each->timer) each->context->TryCancel();
  }
}

}  // namespace muster::etcd
