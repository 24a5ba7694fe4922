// What all requests of one client share: the connection, the credentials, and the switch to another
// member. Lives on the loop's thread; may be created on any thread.
#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/completion_queue.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/async_unary_call.h>
#include <grpcpp/support/status.h>

#include <atomic>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/endpoint.h"
#include "base/lifetime.h"
#include "base/prng.h"
#include "etcd.pb.h"
#include "etcd/etcd_port.h"
#include "muster/etcd.h"

namespace muster::etcd {

// --- What a failure of gRPC or an error of etcd means for the request.

/// Whether a repetition can help.
enum class Outcome {
  kBusy,     ///< Nothing happened; repeat later.
  kNothing,  ///< Nothing happened; try another server.
  kUnknown,  ///< It may have happened.
  kStale,    ///< Nothing happened; the token is not valid any more.
  kRefused,  ///< Nothing happened, and repeating will not help.
};

struct Failure {
  Outcome outcome{};
  Error error;  ///< For the caller, if the request is not repeated; names the endpoint.
  /// How certain it is that one side does not accept the other's certificate: up to kDistrustSure.
  /// Another server's certificate may be accepted.
  size_t distrust = 0;
};
/// A server that refuses a client certificate only closes the connection, and gRPC sees nothing
/// else. So the refusal is certain only after several times.
inline constexpr size_t kDistrustSure = 4;

/// `reached`: the request was passed to a connection.
Failure Classify(const grpc::Status& status, bool reached, const Endpoint& endpoint,
                 const EtcdOptions& access);

/// Whether a call was passed to a connection, from the peer in its context: until then that is the
/// name to be resolved.
inline bool IsReached(const std::string& peer) {
  return peer.starts_with("ipv4:") || peer.starts_with("ipv6:");
}

// --- The client

/// A connection to one member of a cluster. After a failure it is replaced by a new one, which
/// connects at once; gRPC's own reconnection would first wait for its back-off.
struct Connection {
  const Endpoint endpoint;
  const std::shared_ptr<grpc::Channel> channel;
  Instant alive_at{};    ///< When the last message arrived.
  bool probing = false;  ///< A probe has been sent and not answered.
  grpc::GenericStub stub{channel};
};

using Credentials = std::shared_ptr<grpc::ChannelCredentials>;

/// kInvalid: a file of the access cannot be read.
Result<Credentials> CredentialsOf(const EtcdOptions& access);

/// A completion queue of gRPC, and the thread that waits on it and posts completions to a loop. May
/// be created on any thread.
class Completions {
 public:
  /// std::system_error: no thread could be started.
  explicit Completions(Loop& loop) : loop_(loop), thread_([this] { Run(); }) {}
  /// Posted completions do nothing afterwards. Waits until all operations have ended; the caller
  /// has cancelled them, so this does not wait for answers.
  ~Completions();
  Completions(Completions&&) = delete;

  grpc::CompletionQueue* queue() { return &queue_; }

  /// The tag of one operation. `then` runs on the loop when the operation has ended, and owns what
  /// it needs until then.
  static void* MakeTag(std::function<void(bool ok)> then);

 private:
  void Run();

  Loop& loop_;
  grpc::CompletionQueue queue_;
  std::atomic<bool> closing_{false};
  /// On the loop's thread; posted work may outlive this object.
  std::shared_ptr<bool> open_ = std::make_shared<bool>(true);
  std::thread thread_;
};

grpc::ByteBuffer ToBytes(const google::protobuf::MessageLite& message);
/// False: these bytes are not such a message. No bytes are an empty one.
bool FromBytes(const grpc::ByteBuffer& bytes, google::protobuf::MessageLite& message);

/// A watch, as its client sees it.
class ClientWatch : public EtcdWatch {
 public:
  /// Ends the watch without a report. It no longer uses the client.
  virtual void Stop() = 0;
  /// Null: it has no connection.
  virtual std::shared_ptr<Connection> over() const = 0;
  /// The member at the other end of this connection does not answer any more.
  virtual void Abandon(const Connection& connection) = 0;
};

/// One request and its response, possibly after several attempts.
struct Call {
  std::string method;  ///< "/etcdserverpb.KV/Txn"
  grpc::ByteBuffer request;
  bool repeatable = false;  ///< Executing it twice has the same effect as once.
  bool anonymous = false;   ///< Needs no token.
  bool hurried = false;     ///< Attempts are short, also at the only member.
  std::function<void(Result<const grpc::ByteBuffer*> response)> done{};

  // The client's:
  Instant deadline{};
  size_t attempts = 0;
  size_t distrusted = 0;  ///< The sum over all attempts.
  size_t stale = 0;       ///< Attempts that failed because of the token.
  bool maybe_done = false;
  bool ended = false;
  std::string trouble{};           ///< The error of the last attempt.
  std::unique_ptr<Timer> timer{};  ///< Until the next attempt, or the end of waiting for a token.
};

class Client {
 public:
  /// std::system_error: no thread could be started.
  Client(EtcdOptions access, Credentials credentials, Loop& loop);
  /// Cancels all calls and watches without reports.
  ~Client();
  Client(Client&&) = delete;

  const EtcdOptions& access() const { return access_; }
  size_t members() const { return access_.endpoints.size(); }

  /// Repeats the call until it succeeds, is refused, or `patience` has passed.
  void Start(Call call, Duration patience);

  // --- For watches.
  Loop& loop() { return loop_; }
  Completions& completions() { return completions_; }
  /// From now on its connection is checked too, to detect a silent member.
  void Add(ClientWatch& watch);
  void Remove(ClientWatch& watch) { watches_.erase(&watch); }
  /// Calls `then`, now or later, when there is a token or none is needed; or with an error, of
  /// which kInvalid is permanent.
  void WithToken(std::function<void(const Status&)> then);
  void ForgetToken() { has_token_ = access_.user.empty(); }
  /// Adds the token, and requires a member that has a leader.
  void AddCredentials(grpc::ClientContext& context) const;
  /// The present connection; connects when first used.
  std::shared_ptr<Connection> Current();
  void NoteAlive(Connection& connection) { connection.alive_at = loop_.Now(); }
  /// Switches to the next member if this connection is the present one.
  void SwitchFrom(const Connection& connection);
  /// How long to wait before the next attempt: not at all while there are untried members.
  Duration Pause(size_t attempts);

 private:
  /// One request on one connection.
  struct Attempt {
    std::shared_ptr<Connection> over;
    grpc::ClientContext context;
    std::unique_ptr<grpc::GenericClientAsyncResponseReader> reader;
    grpc::ByteBuffer response;
    grpc::Status status;
  };
  using CallPtr = std::shared_ptr<Call>;

  void Begin(const CallPtr& call);
  void Send(const CallPtr& call);
  void Send(const std::shared_ptr<Connection>& over, const std::string& method,
            const grpc::ByteBuffer& request, bool anonymous, Duration limit,
            std::function<void(const Attempt&)> then);
  void OnEnd(const CallPtr& call, const Attempt& attempt);
  void OnFailure(const CallPtr& call, const Attempt& attempt);
  void Repeat(const CallPtr& call, Duration pause);
  void TimeOut(const CallPtr& call);
  void End(CallPtr call, Result<const grpc::ByteBuffer*> result);
  void Authenticate();
  void StartSilenceChecks();
  void CheckSilence();
  void Probe(const std::shared_ptr<Connection>& connection);
  void OnSilent(const Connection& connection);

  Loop& loop_;
  const EtcdOptions access_;
  const Credentials credentials_;
  Prng prng_;
  size_t member_;
  std::shared_ptr<Connection> current_;
  std::set<CallPtr> calls_;  ///< Those that have not ended.
  std::set<std::shared_ptr<Attempt>> attempts_;
  std::set<ClientWatch*> watches_;
  std::unique_ptr<Timer> silence_checks_;
  std::string token_;
  bool has_token_;
  bool authenticating_ = false;
  std::vector<std::function<void(const Status&)>> for_token_;
  Lifetime lifetime_;
  /// The last data member, which is destroyed first: its destructor waits for all operations.
  Completions completions_;
};

}  // namespace muster::etcd
