// What all requests of one client share: the connection, the credentials, and when it goes on to
// another member. Lives on the loop's thread; may be created on any.
#pragma once

#include <grpcpp/client_context.h>
#include <grpcpp/support/async_unary_call.h>

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/lifetime.h"
#include "base/prng.h"
#include "etcd/etcd_port.h"
#include "etcd/grpc/completions.h"
#include "etcd/grpc/connection.h"
#include "etcd/grpc/failure.h"
#include "muster/etcd.h"

namespace muster::etcd {

class GrpcWatch;

/// One request and its response, possibly after several attempts.
struct Call {
  std::string method;  ///< "/etcdserverpb.KV/Txn"
  grpc::ByteBuffer request;
  bool repeatable = false;  ///< Doing it twice has the effect of once.
  bool anonymous = false;   ///< Needs no token.
  bool hurried = false;     ///< Attempts are short, also at the only member.
  std::function<void(Result<const grpc::ByteBuffer*> response)> done;

  // The client's:
  Instant deadline{};
  size_t attempts = 0;
  size_t distrusted = 0;  ///< The sum over all attempts.
  size_t stale = 0;       ///< Attempts that failed because of the token.
  bool maybe_done = false;
  bool ended = false;
  std::string trouble{};           ///< What the last attempt failed with.
  std::unique_ptr<Timer> timer{};  ///< Until the next attempt, or the end of waiting for a token.
};

class Client {
 public:
  /// std::system_error: no thread could be started.
  Client(EtcdOptions access, Credentials credentials, Loop& loop);
  /// Cancels all calls and watches without reports.
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  const EtcdOptions& access() const { return access_; }
  size_t members() const { return access_.endpoints.size(); }

  /// Repeats the call until it succeeds, is refused, or `patience` has passed.
  void Start(Call call, Duration patience);

  // --- For watches.
  Loop& loop() { return loop_; }
  Completions& completions() { return completions_; }
  /// From now on it is asked for its connection, to notice a member that is silent.
  void Add(GrpcWatch& watch);
  void Remove(GrpcWatch& watch) { watches_.erase(&watch); }
  /// Calls back, now or later, when there is a token, or none is needed; or with an error, of which
  /// kInvalid is permanent.
  void WithToken(std::function<void(const Status&)> then);
  void ForgetToken() { has_token_ = access_.user.empty(); }
  /// Adds the token, and requires a member that has a leader.
  void AddCredentials(grpc::ClientContext& context) const;
  /// The present connection; connects when first used.
  std::shared_ptr<Connection> Current();
  void NoteAlive(Connection& connection) { connection.alive_at = loop_.Now(); }
  /// Goes on to the next member, if this connection is the present one.
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
  void OnToken(const Status& status);
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
  std::set<GrpcWatch*> watches_;
  std::unique_ptr<Timer> silence_checks_;
  std::string token_;
  bool has_token_;
  bool authenticating_ = false;
  std::vector<std::function<void(const Status&)>> for_token_;
  Lifetime lifetime_;
  /// The last member, which is destroyed first: that waits for all operations.
  Completions completions_;
};

}  // namespace muster::etcd
