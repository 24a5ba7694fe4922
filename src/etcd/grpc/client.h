// What all requests of one client share: the connection, the credentials, and when it goes on to
// another member. Lives on the loop's thread; may be created on any.
#pragma once

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/prng.h"
#include "etcd/etcd_port.h"
#include "etcd/grpc/call.h"
#include "etcd/grpc/completions.h"
#include "etcd/grpc/failure.h"
#include "etcd/grpc/members.h"

namespace muster::etcd {

/// A stream that several requests share.
class SharedStream {
 public:
  virtual ~SharedStream() = default;
  /// Whether a message is awaited.
  virtual bool IsWanted() const = 0;
  /// Its connection; null: none.
  virtual std::shared_ptr<Connection> Over() const = 0;
  /// The member at the other end does not answer any more.
  virtual void Abandon(const Connection& connection) = 0;
};

class Client {
 public:
  /// std::system_error: no thread could be started.
  Client(EtcdAccess access, std::unique_ptr<Members> members, Loop& loop);
  /// Cancels all calls without reports. Streams are closed before.
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  Loop& loop() { return loop_; }
  Completions& completions() { return completions_; }
  const EtcdAccess& access() const { return access_; }
  size_t members() const { return members_->count(); }

  /// Repeats the call until it succeeds, is refused, or `patience` has passed.
  void Start(std::shared_ptr<Call> call, Duration patience);

  /// CheckSilence() includes these streams. They exist as long as the client is used.
  void AddStream(SharedStream& stream) { streams_.push_back(&stream); }
  /// Starts to watch for silent members; ends by itself when no answer is awaited.
  void StartSilenceChecks();

  /// Calls back, now or later, when there is a token, or none is needed; or with an error, of which
  /// kInvalid is permanent.
  void WithToken(std::function<void(const Status&)> then);
  void ForgetToken() { has_token_ = access_.user.empty(); }
  /// Adds the token, and requires a member that has a leader.
  void AddCredentials(grpc::ClientContext& context) const;

  /// Runs `then` in a later turn of the loop, unless the client is destroyed before.
  void Later(std::function<void()> then);

  std::shared_ptr<Connection> Current() { return members_->Current(loop_.Now()); }
  void NoteAlive(Connection& connection) { connection.alive_at = loop_.Now(); }
  /// The next server may be another one, or the same one restored from older data, for which the
  /// token is not valid: it would block each call until it has applied the token's request.
  void SwitchFrom(const Connection& connection) {
    members_->SwitchFrom(connection);
    ForgetToken();
  }

  /// How long to wait before the next attempt: not at all while there are untried members.
  Duration Pause(size_t attempts);
  /// Runs `then` once after `delay`, unless the timer is destroyed. Never immediately.
  std::unique_ptr<Timer> After(Duration delay, std::function<void()> then);

 private:
  void Attempt(const std::shared_ptr<Call>& call);
  void Send(const std::shared_ptr<Call>& call);
  void OnEnd(const std::shared_ptr<Call>& call);
  void OnFailure(const std::shared_ptr<Call>& call, Failure failure);
  void Repeat(const std::shared_ptr<Call>& call, Duration pause);
  void TimeOut(const std::shared_ptr<Call>& call);
  void Succeed(const std::shared_ptr<Call>& call);
  void End(const std::shared_ptr<Call>& call, Error error);
  void Authenticate();
  void OnToken(const Status& status);
  void CheckSilence();
  void Probe(const std::shared_ptr<Connection>& connection);
  void OnSilent(const Connection& connection);

  Loop& loop_;
  const EtcdAccess access_;
  const std::unique_ptr<Members> members_;
  Prng prng_;
  std::set<std::shared_ptr<Call>> calls_;  ///< Those that have not ended.
  std::set<std::shared_ptr<grpc::ClientContext>> probes_;
  std::vector<SharedStream*> streams_;
  std::unique_ptr<Timer> silence_checks_;
  std::string token_;
  bool has_token_;
  bool authenticating_ = false;
  std::vector<std::function<void(const Status&)>> for_token_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  ///< For posted work.
  /// The last member: its thread uses the others.
  Completions completions_;
};

}  // namespace muster::etcd
