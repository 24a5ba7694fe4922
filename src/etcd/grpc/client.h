// What all requests of one client share: to whom it speaks, as whom, and when it gives up on a
// member. Lives on the loop's thread; made on any.
#pragma once

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/prng.h"
#include "etcd/etcd_port.h"
#include "etcd/grpc/arrivals.h"
#include "etcd/grpc/exchange.h"
#include "etcd/grpc/failure.h"
#include "etcd/grpc/members.h"

namespace muster::etcd {

/// A stream that others share, as the client sees it.
class SharedStream {
 public:
  virtual ~SharedStream() = default;
  /// Whether somebody waits for it to say something.
  virtual bool IsWanted() const = 0;
  /// Over what, if it is connected.
  virtual std::shared_ptr<Connection> Over() const = 0;
  /// The member at the other end is taken for dead.
  virtual void Abandon(const Connection& connection) = 0;
};

class Client {
 public:
  /// std::system_error: no thread to be had.
  Client(EtcdAccess access, std::unique_ptr<Members> members, Loop& loop);
  /// Cancels all that is under way, unreported. Streams are closed before.
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  Loop& loop() { return loop_; }
  Arrivals& arrivals() { return arrivals_; }
  const EtcdAccess& access() const { return access_; }
  size_t members() const { return members_->count(); }

  /// Attempts it until it succeeds, is refused, or its patience is over.
  void Start(std::shared_ptr<Exchange> exchange, Duration patience);

  /// Streams that are asked, in Patrol(), whether they are needed. They outlive the client's use.
  void Attend(SharedStream& stream) { streams_.push_back(&stream); }
  /// From now on silence is noticed; ends by itself when nobody waits for anything.
  void StartPatrol();

  /// Calls back, now or later, once there is a token, or none is needed; or with what stands
  /// against it: kInvalid will not get better.
  void WithToken(std::function<void(const Status&)> then);
  void ForgetToken() { has_token_ = access_.user.empty(); }
  /// Who we are, and that a member without a leader is not to serve us.
  void Introduce(grpc::ClientContext& context) const;

  /// Runs `then` in a turn of its own, unless we are gone by then.
  void Later(std::function<void()> then);

  std::shared_ptr<Connection> Current() { return members_->Current(loop_.Now()); }
  void Heard(Connection& connection) { connection.heard = loop_.Now(); }
  /// What comes next may be another server, or the same one restored from older data, and its token
  /// would not be ours: a server waits for the request that a token was made by, all the time.
  void Leave(const Connection& connection) {
    members_->Leave(connection);
    ForgetToken();
  }

  /// How long to wait before attempt `attempts`: not at all while there are members untried.
  Duration Pause(size_t attempts);
  /// Runs `then` once after `delay`, unless the timer is destroyed. Never at once.
  std::unique_ptr<Timer> After(Duration delay, std::function<void()> then);

 private:
  void Attempt(const std::shared_ptr<Exchange>& exchange);
  void Send(const std::shared_ptr<Exchange>& exchange);
  void OnEnd(const std::shared_ptr<Exchange>& exchange);
  void OnFailure(const std::shared_ptr<Exchange>& exchange, Verdict verdict);
  void Repeat(const std::shared_ptr<Exchange>& exchange, Duration pause);
  void GiveUp(const std::shared_ptr<Exchange>& exchange);
  void Succeed(const std::shared_ptr<Exchange>& exchange);
  void End(const std::shared_ptr<Exchange>& exchange, Error error);
  void Authenticate();
  void OnToken(const Status& status);
  void Patrol();
  void Probe(const std::shared_ptr<Connection>& connection);
  void Suspect(const Connection& connection);

  Loop& loop_;
  const EtcdAccess access_;
  const std::unique_ptr<Members> members_;
  Prng prng_;
  std::set<std::shared_ptr<Exchange>> exchanges_;  ///< All that have not ended.
  std::set<std::shared_ptr<grpc::ClientContext>> probes_;
  std::vector<SharedStream*> streams_;
  std::unique_ptr<Timer> patrol_;
  std::string token_;
  bool has_token_;
  bool authenticating_ = false;
  std::vector<std::function<void(const Status&)>> for_token_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  ///< For what was posted.
  /// Last: its thread starts when all else is there.
  Arrivals arrivals_;
};

}  // namespace muster::etcd
