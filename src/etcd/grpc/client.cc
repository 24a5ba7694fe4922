#include "etcd/grpc/client.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/support/channel_arguments.h>

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "os/posix/file_io.h"
#include "os/posix/process.h"

namespace muster::etcd {

namespace {

// A member that is silent for this long while an answer is awaited is probed...
constexpr Duration kSilence = 1s;
// ...and has this long to answer. A cut-off member is noticed after the sum.
constexpr Duration kProbeAnswer = 1500ms;
constexpr Duration kSilenceCheck = 500ms;
// How long one member may take for a call that another one could answer: a member without a quorum
// may still answer probes. Doubled in each round, in case all members are slow.
constexpr Duration kAttempt = 2s;
// A member that waits for a new leader answers after up to 7 s. Another one, or another request,
// may find the new leader sooner.
constexpr Duration kHurriedAttempt = 1s;
constexpr Duration kAuthentication = 5s;
constexpr size_t kStaleMax = 3;
constexpr Duration kPauseMin = 50ms;
constexpr Duration kPauseMax = 1s;

using Tag = std::function<void(bool ok)>;

// By default etcd closes connections that ping more often than every 5 s. Client::CheckSilence()
// finds a silent member sooner; pings are for idle connections.
constexpr int kPingMs = 6'000;
// Also the limit for unacknowledged data in the kernel.
constexpr int kPingAnswerMs = 2'000;
constexpr int kConnectMs = 1'500;
constexpr int kAnswerBytesMax = 256 * 1024 * 1024;
constexpr size_t kAccessBytesMax = 16 << 20;  // a system's bundle of authorities has 200 KiB

Result<std::string> ReadWhole(const std::string& path, std::string_view what) {
  std::string text = ReadUpTo(path, kAccessBytesMax + 1).value_or("");
  if (text.size() > kAccessBytesMax) {
    return MakeError(Code::kInvalid, "the ", what, " of etcd's access has more than ",
                     kAccessBytesMax, " bytes: ", path);
  }
  if (!text.empty()) return text;
  return MakeError(Code::kInvalid, "cannot read the ", what, " of etcd's access: ", path);
}

grpc::ChannelArguments Arguments() {
  grpc::ChannelArguments arguments;
  // Clients in one process do not share connections.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kPingMs);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kPingAnswerMs);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);  // its pings count against the limit, too
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, kConnectMs);  // in effect the time to connect
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1'000);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetMaxReceiveMessageSize(kAnswerBytesMax);
  return arguments;
}

}  // namespace

Result<Credentials> CredentialsOf(const EtcdOptions& access) {
  if (!access.tls) return grpc::InsecureChannelCredentials();
  grpc::SslCredentialsOptions options;
  if (!access.cacert.empty()) {
    MUSTER_TRY(options.pem_root_certs, ReadWhole(access.cacert, "CA certificate"));
  }
  if (!access.cert.empty()) {
    MUSTER_TRY(options.pem_cert_chain, ReadWhole(access.cert, "client certificate"));
    MUSTER_TRY(options.pem_private_key, ReadWhole(access.key, "client key"));
  }
  return grpc::SslCredentials(options);
}

grpc::ByteBuffer ToBytes(const google::protobuf::MessageLite& message) {
  const grpc::Slice slice(message.SerializeAsString());
  return {&slice, 1};
}

bool FromBytes(const grpc::ByteBuffer& bytes, google::protobuf::MessageLite& message) {
  grpc::Slice slice;
  if (bytes.Valid() && !bytes.DumpToSingleSlice(&slice).ok()) return false;
  return message.ParseFromArray(slice.begin(), static_cast<int>(slice.size()));
}

Completions::~Completions() {
  *open_ = false;
  closing_ = true;
  queue_.Shutdown();
  thread_.join();
}

void* Completions::MakeTag(std::function<void(bool ok)> then) {
  return std::make_unique<Tag>(std::move(then)).release();  // Run() takes it back
}

void Completions::Run() {
  NameThisThread("muster etcd");
  void* raw = nullptr;
  bool ok = false;
  while (queue_.Next(&raw, &ok)) {
    std::shared_ptr<Tag> tag(static_cast<Tag*>(raw));
    if (closing_) continue;
    loop_.Post([tag = std::move(tag), ok, open = open_] {
      if (*open) (*tag)(ok);
    });
  }
}

// Spreads clients over the members: processes differ in their id, clients in their address.
Client::Client(EtcdOptions access, Credentials credentials, Loop& loop)
    : loop_(loop),
      access_(std::move(access)),
      credentials_(std::move(credentials)),
      prng_((uint64_t{ProcessId()} << 40) ^ reinterpret_cast<uintptr_t>(this)),
      member_(prng_.Below(members())),
      has_token_(access_.user.empty()),
      completions_(loop) {}

Client::~Client() {
  while (!watches_.empty()) (*watches_.begin())->Stop();
  for (const CallPtr& call : calls_) {
    call->ended = true;
    call->timer.reset();
  }
  for (const auto& attempt : attempts_) attempt->context.TryCancel();
}

std::shared_ptr<Connection> Client::Current() {
  if (!current_) {
    const auto& [host, port] = access_.endpoints[member_];
    const Endpoint endpoint{host, static_cast<uint16_t>(port)};
    auto channel = grpc::CreateCustomChannel(Concat("dns:///", endpoint.ToString()), credentials_,
                                             Arguments());
    current_ = std::make_shared<Connection>(
        Connection{.endpoint = endpoint, .channel = std::move(channel), .alive_at = loop_.Now()});
  }
  return current_;
}

// The next server may be a different one, or the same one restored from older data, for which the
// token is not valid: it would block each call until it has applied the token's request.
void Client::SwitchFrom(const Connection& connection) {
  if (current_.get() != &connection) return;
  current_.reset();
  member_ = (member_ + 1) % members();
  ForgetToken();
}

void Client::Start(Call given, Duration patience) {
  const auto call = std::make_shared<Call>(std::move(given));
  call->deadline = loop_.Now() + patience;
  calls_.insert(call);
  StartSilenceChecks();
  // The end is reported later, also if there is no time for an attempt.
  if (patience <= Duration::zero())
    call->timer = loop_.After(1ms, [this, call] { TimeOut(call); });
  else
    Begin(call);
}

void Client::Begin(const CallPtr& call) {
  call->timer.reset();
  // The connection may have been lost while it was idle.
  if (Current()->channel->GetState(false) != GRPC_CHANNEL_READY) ForgetToken();
  if (call->anonymous || has_token_) return Send(call);
  const Duration left = call->deadline - loop_.Now();
  if (left <= Duration::zero()) return TimeOut(call);
  call->timer = loop_.After(left, [this, call] { TimeOut(call); });
  WithToken([this, call](const Status& status) {
    if (call->ended) return;
    call->timer.reset();
    if (status) return Send(call);
    if (status.error().code == Code::kInvalid) return End(call, status.error());
    call->trouble = status.error().message;
    Repeat(call, kPauseMin);
  });
}

void Client::Send(const CallPtr& call) {
  Duration left = call->deadline - loop_.Now();
  if (left <= Duration::zero()) return TimeOut(call);
  if (call->hurried || (call->repeatable && members() > 1)) {
    const int64_t rounds = int64_t{1} << std::min<size_t>(call->attempts / members(), 4);
    left = std::min<Duration>(left, (call->hurried ? kHurriedAttempt : kAttempt) * rounds);
  }
  call->attempts += 1;
  Send(Current(), call->method, call->request, call->anonymous, left,
       [this, call](const Attempt& attempt) { OnEnd(call, attempt); });
}

void Client::Send(const std::shared_ptr<Connection>& over, const std::string& method,
                  const grpc::ByteBuffer& request, bool anonymous, Duration limit,
                  std::function<void(const Attempt&)> then) {
  const auto attempt = std::make_shared<Attempt>();
  attempt->over = over;
  attempt->context.set_deadline(
      gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_nanos(limit.count(), GPR_TIMESPAN)));
  if (!anonymous) AddCredentials(attempt->context);
  attempt->reader = attempt->over->stub.PrepareUnaryCall(&attempt->context, method, request,
                                                         completions_.queue());
  attempt->reader->StartCall();
  attempts_.insert(attempt);
  const auto on_end = [this, attempt, then = std::move(then)](bool) {
    attempts_.erase(attempt);
    then(*attempt);
  };
  attempt->reader->Finish(&attempt->response, &attempt->status, completions_.MakeTag(on_end));
}

void Client::OnEnd(const CallPtr& call, const Attempt& attempt) {
  const grpc::StatusCode code = attempt.status.error_code();
  const bool local = code == grpc::StatusCode::UNAVAILABLE ||
                     code == grpc::StatusCode::DEADLINE_EXCEEDED ||
                     code == grpc::StatusCode::CANCELLED;
  if (!local) NoteAlive(*attempt.over);
  if (attempt.status.ok()) return End(call, &attempt.response);
  OnFailure(call, attempt);
}

void Client::OnFailure(const CallPtr& call, const Attempt& attempt) {
  Failure failure =
      Classify(attempt.status, IsReached(attempt.context.peer()), attempt.over->endpoint, access_);
  const bool late = attempt.status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED;
  // A timeout explains less than the failure before it.
  const bool is_vague = failure.outcome == Outcome::kNothing && late;
  if (!is_vague || call->trouble.empty()) call->trouble = failure.error.message;
  call->distrusted += failure.distrust;  // also if other failures occur in between
  switch (failure.outcome) {
    case Outcome::kBusy:
      return Repeat(call, kPauseMin + Pause(members()));
    case Outcome::kRefused:
      // The first of two attempts may have ended the lease that the second does not find.
      if (call->maybe_done && failure.error.code == Code::kNotFound)
        return End(call, &attempt.response);
      return End(call, std::move(failure.error));
    case Outcome::kStale:
      if (access_.user.empty() || ++call->stale > kStaleMax) {
        if (access_.user.empty()) failure.error.message += "; no user was given";
        return End(call, std::move(failure.error));
      }
      ForgetToken();
      return Repeat(call, Duration::zero());
    case Outcome::kNothing:
      SwitchFrom(*attempt.over);
      if (call->distrusted >= members() * kDistrustSure) return End(call, std::move(failure.error));
      return Repeat(call, Pause(call->attempts));
    case Outcome::kUnknown:
      call->maybe_done = true;
      // The only member may just be slow, and other calls use the connection, too.
      if (members() > 1 || !late)
        SwitchFrom(*attempt.over);
      else if (!call->hurried)
        ForgetToken();  // it may be waiting for the token's request
      if (!call->repeatable) return End(call, std::move(failure.error));
      return Repeat(call, Pause(call->attempts));
  }
}

void Client::Repeat(const CallPtr& call, Duration pause) {
  const Duration left = call->deadline - loop_.Now();
  if (left <= Duration::zero()) return TimeOut(call);
  if (pause == Duration::zero()) return Begin(call);
  call->timer = loop_.After(std::min(pause, left), [this, call] { Begin(call); });
}

void Client::TimeOut(const CallPtr& call) {
  std::string why = call->trouble;
  if (why.empty()) why = Concat(access_.ToString(), ": no time was left to request");
  if (members() > 1) why += Concat(" (tried ", call->attempts, " times, ", access_.ToString(), ")");
  End(call, Error{call->maybe_done ? Code::kTimeout : Code::kUnavailable, std::move(why)});
}

// By value: the reference may be the set's, or a timer's.
void Client::End(CallPtr call, Result<const grpc::ByteBuffer*> result) {
  call->ended = true;
  call->timer.reset();
  calls_.erase(call);
  call->done(std::move(result));  // may destroy this client
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
  const auto on_answer = [this](Result<const grpc::ByteBuffer*> answer) {
    etcdserverpb::AuthenticateResponse response;  // its token stays empty after a failure
    if (answer) FromBytes(**answer, response);
    token_ = response.token();
    // A cluster without authentication needs no token.
    const bool open = !answer && answer.error().message.find("authentication is not enabled") !=
                                     std::string::npos;
    authenticating_ = false;
    has_token_ = answer || open;
    // Each in its own turn, because it may destroy this client.
    const Status status = has_token_ ? Ok() : Status(answer.error());
    for (auto& each : std::exchange(for_token_, {}))
      loop_.Post(lifetime_.Guard([each = std::move(each), status] { each(status); }));
  };
  Start({.method = "/etcdserverpb.Auth/Authenticate",
         .request = ToBytes(request),
         .repeatable = true,
         .anonymous = true,
         .done = on_answer},
        kAuthentication);
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

void Client::Add(ClientWatch& watch) {
  watches_.insert(&watch);
  StartSilenceChecks();
}

void Client::StartSilenceChecks() {
  if (!silence_checks_) silence_checks_ = loop_.Every(kSilenceCheck, [this] { CheckSilence(); });
}

void Client::CheckSilence() {
  if (calls_.empty() && watches_.empty()) return silence_checks_.reset();
  std::set<std::shared_ptr<Connection>> waited_for;
  for (const auto& attempt : attempts_) waited_for.insert(attempt->over);
  for (const ClientWatch* watch : watches_) waited_for.insert(watch->over());
  waited_for.erase(nullptr);
  for (const auto& connection : waited_for) {
    if (!connection->probing && loop_.Now() - connection->alive_at >= kSilence) Probe(connection);
  }
}

void Client::Probe(const std::shared_ptr<Connection>& connection) {
  connection->probing = true;
  const auto on_end = [this](const Attempt& attempt) {
    attempt.over->probing = false;
    const grpc::StatusCode code = attempt.status.error_code();
    if (code == grpc::StatusCode::UNAVAILABLE || code == grpc::StatusCode::DEADLINE_EXCEEDED)
      OnSilent(*attempt.over);
    else
      NoteAlive(*attempt.over);
  };
  Send(connection, "/etcdserverpb.Maintenance/Status", ToBytes(etcdserverpb::StatusRequest()), true,
       kProbeAnswer, on_end);
}

void Client::OnSilent(const Connection& connection) {
  SwitchFrom(connection);
  for (ClientWatch* watch : watches_) watch->Abandon(connection);
  if (members() == 1) return;  // there is no other member to try
  for (const auto& attempt : attempts_) {
    if (attempt->over.get() == &connection) attempt->context.TryCancel();
  }
}

}  // namespace muster::etcd
