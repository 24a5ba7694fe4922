#include "etcd/grpc/lease_stream.h"

#include <algorithm>
#include <utility>

#include "base/text.h"

namespace muster::etcd {

namespace {

// Members answer within milliseconds, except while they wait for a new leader, up to 7 s; all else
// on the stream waits behind that. Another member, or another stream, may find the new leader
// sooner. Doubled after some rounds, in case all members are slow.
constexpr Duration kAnswer = 1s;
// Leases last for seconds, and each holds a node's place.
constexpr Duration kPauseMax = 200ms;

}  // namespace

LeaseStream::~LeaseStream() {
  for (auto& [lease, queue] : requests_) {
    for (const auto& request : queue) request->timer.reset();
  }
}

void LeaseStream::KeepAlive(int64_t lease, Duration patience, Done done) {
  auto request = std::make_shared<Request>();
  request->done = std::move(done);
  request->timer = client_.After(patience, [this, lease, request] { OnTimeout(lease, request); });
  requests_[lease].push_back(request);
  waiting_ += 1;
  client_.StartSilenceChecks();
  if (rpc_ && rpc_->is_open())
    Send(lease, *request);
  else
    OpenIfClosed();
}

void LeaseStream::Send(int64_t lease, Request& request) {
  request.sent = true;
  if (!overdue_) AwaitAnswer();
  etcdserverpb::LeaseKeepAliveRequest message;
  message.set_id(lease);
  rpc_->Send(std::move(message));
}

std::unique_ptr<LeaseStream::Rpc::Stream> LeaseStream::Prepare(Connection& over,
                                                               grpc::ClientContext& context,
                                                               grpc::CompletionQueue* queue) {
  AwaitAnswer();
  return over.lease->PrepareAsyncLeaseKeepAlive(&context, queue);
}

void LeaseStream::AwaitAnswer() {
  const size_t rounds = std::min<size_t>(attempts_ / (2 * client_.members()), 3);
  overdue_ = client_.After(kAnswer * (1 << rounds), [this] {
    const std::shared_ptr<Connection> over = rpc_->over();
    if (client_.members() > 1) client_.SwitchFrom(*over);
    Abandon(*over);
  });
}

void LeaseStream::OnOpen() {
  for (auto& [lease, queue] : requests_) {
    for (const auto& request : queue) Send(lease, *request);
  }
}

void LeaseStream::OnMessage(const etcdserverpb::LeaseKeepAliveResponse& response) {
  client_.NoteAlive(*rpc_->over());
  attempts_ = 0;
  distrusted_ = 0;
  const auto queue = requests_.find(response.id());
  if (queue == requests_.end()) return;
  const std::shared_ptr<Request> request = queue->second.front();
  queue->second.pop_front();
  if (queue->second.empty()) requests_.erase(queue);
  request->timer.reset();
  overdue_.reset();
  if (!requests_.empty()) AwaitAnswer();
  if (!request->done) return;  // too late
  waiting_ -= 1;
  if (response.ttl() > 0) return request->done(Duration(std::chrono::seconds(response.ttl())));
  request->done(Error{Code::kNotFound,
                      Concat("etcd at ", rpc_->over()->endpoint.ToString(), ": there is no lease ",
                             response.id(), "; it has expired or was revoked")});
}

void LeaseStream::OnLost(const grpc::Status& status, bool reached) {
  const std::shared_ptr<Connection> over = rpc_->over();
  const Failure failure = Classify(status, reached, over->endpoint, client_.access());
  const bool refused =
      failure.outcome == Outcome::kRefused && failure.error.code == Code::kInvalid && !status.ok();
  distrusted_ += failure.distrust;  // also if other failures come between
  if (failure.outcome == Outcome::kStale && !client_.access().user.empty())
    client_.ForgetToken();
  else
    client_.SwitchFrom(*over);
  if (refused || distrusted_ >= client_.members() * kDistrustSure) return Refuse(failure.error);
  Reopen(failure.error.message, client_.Pause(++attempts_));
}

void LeaseStream::Reopen(const std::string& why, Duration pause) {
  trouble_ = why;
  Close();
  overdue_.reset();
  // Requests that have timed out need no place in a new queue.
  for (auto queue = requests_.begin(); queue != requests_.end();) {
    std::erase_if(queue->second, [](const auto& request) { return !request->done; });
    queue = queue->second.empty() ? requests_.erase(queue) : std::next(queue);
  }
  OpenAfter(std::min(pause, kPauseMax));
}

void LeaseStream::OnTimeout(int64_t lease, const std::shared_ptr<Request>& request) {
  const std::shared_ptr<Request> keep = request;  // the reference may be the timer's
  const Done done = std::exchange(keep->done, nullptr);
  keep->timer.reset();
  waiting_ -= 1;
  const bool sent = keep->sent;
  if (!rpc_) {
    auto& queue = requests_[lease];
    std::erase(queue, keep);
    if (queue.empty()) requests_.erase(lease);
  }
  const std::string why = sent || trouble_.empty()
                              ? Concat(rpc_ ? Concat("etcd at ", rpc_->over()->endpoint.ToString())
                                            : client_.access().ToString(),
                                       " did not answer a keep-alive of lease ", lease, " in time",
                                       trouble_.empty() ? "" : Concat("; earlier: ", trouble_))
                              : trouble_;
  done(Error{sent ? Code::kTimeout : Code::kUnavailable, why});
}

void LeaseStream::Refuse(const Error& why) {
  Close();
  overdue_.reset();
  waiting_ = 0;
  distrusted_ = 0;
  const auto refused = std::exchange(requests_, {});
  for (const auto& [lease, queue] : refused) {
    for (const auto& request : queue) request->timer.reset();
  }
  const std::weak_ptr alive = alive_;
  for (const auto& [lease, queue] : refused) {
    for (const auto& request : queue) {
      if (request->done) request->done(why);
      if (alive.expired()) return;
    }
  }
}

}  // namespace muster::etcd
