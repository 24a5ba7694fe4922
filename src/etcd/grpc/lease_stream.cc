#include "etcd/grpc/lease_stream.h"

#include <algorithm>
#include <utility>

#include "base/text.h"

namespace muster::etcd {

namespace {

// Members answer within milliseconds, unless they wait themselves: for a leader that is gone, up to
// 7 s, and all that comes over the stream waits behind that. Another member, or another stream, may
// find the next leader. Doubled after some rounds, should all of them be slow.
constexpr Duration kAnswer = 1s;
// Leases last for seconds, and somebody's place hangs on each.
constexpr Duration kPauseMax = 200ms;

}  // namespace

LeaseStream::LeaseStream(Client& client) : client_(client) { client_.Attend(*this); }

LeaseStream::~LeaseStream() {
  if (line_) line_->Drop();
  for (auto& [lease, row] : asks_) {
    for (const auto& ask : row) ask->timer.reset();
  }
}

void LeaseStream::KeepAlive(int64_t lease, Duration patience, Done done) {
  auto ask = std::make_shared<Ask>();
  ask->done = std::move(done);
  ask->timer = client_.After(patience, [this, lease, ask] { OnOverdue(lease, ask); });
  asks_[lease].push_back(ask);
  waiting_ += 1;
  client_.StartPatrol();
  if (line_ && line_->is_open())
    Send(lease, *ask);
  else if (!line_ && !opening_ && !pause_)
    Open();
}

void LeaseStream::Send(int64_t lease, Ask& ask) {
  ask.sent = true;
  if (!overdue_) AwaitAnswer();
  etcdserverpb::LeaseKeepAliveRequest request;
  request.set_id(lease);
  line_->Send(std::move(request));
}

void LeaseStream::Open() {
  opening_ = true;
  client_.WithToken([this, alive = std::weak_ptr(alive_)](const Status& status) {
    if (alive.expired()) return;
    opening_ = false;
    if (status) return Connect();
    if (status.error().code == Code::kInvalid) return Refuse(status.error());
    Reopen(status.error().message, client_.Pause(0));
  });
}

void LeaseStream::Connect() {
  if (line_ || waiting_ == 0) return;
  const std::shared_ptr<Connection> over = client_.Current();
  line_ = std::make_shared<LeaseLine>(
      client_.arrivals(), over,
      LeaseLine::Listener{
          .on_open = [this] { OnOpen(); },
          .on_message = [this](const auto& response) { OnMessage(response); },
          .on_end = [this](const grpc::Status& status, bool reached) { OnLost(status, reached); }});
  client_.Introduce(line_->context());
  AwaitAnswer();
  line_->Start(
      over->lease->PrepareAsyncLeaseKeepAlive(&line_->context(), client_.arrivals().queue()));
}

void LeaseStream::AwaitAnswer() {
  const size_t rounds = std::min<size_t>(attempts_ / (2 * client_.members()), 3);
  overdue_ = client_.After(kAnswer * (1 << rounds), [this] {
    const std::shared_ptr<Connection> over = line_->over();
    if (client_.members() > 1) client_.Leave(*over);
    Abandon(*over);
  });
}

void LeaseStream::OnOpen() {
  for (auto& [lease, row] : asks_) {
    for (const auto& ask : row) Send(lease, *ask);
  }
}

void LeaseStream::OnMessage(const etcdserverpb::LeaseKeepAliveResponse& response) {
  client_.Heard(*line_->over());
  attempts_ = 0;
  distrusted_ = 0;
  const auto row = asks_.find(response.id());
  if (row == asks_.end()) return;
  const std::shared_ptr<Ask> ask = row->second.front();
  row->second.pop_front();
  if (row->second.empty()) asks_.erase(row);
  ask->timer.reset();
  overdue_.reset();
  if (!asks_.empty()) AwaitAnswer();
  if (!ask->done) return;  // too late
  waiting_ -= 1;
  if (response.ttl() > 0) return ask->done(Duration(std::chrono::seconds(response.ttl())));
  ask->done(Error{Code::kNotFound,
                  Concat("etcd at ", line_->over()->endpoint.ToString(), ": there is no lease ",
                         response.id(), "; it has expired or was revoked")});
}

void LeaseStream::OnLost(const grpc::Status& status, bool reached) {
  const std::shared_ptr<Connection> over = line_->over();
  const Verdict verdict = Judge(status, reached, over->endpoint, client_.access());
  const bool refused =
      verdict.outcome == Outcome::kRefused && verdict.error.code == Code::kInvalid && !status.ok();
  distrusted_ += verdict.distrust;  // also where other troubles come between
  if (verdict.outcome == Outcome::kStale && !client_.access().user.empty())
    client_.ForgetToken();
  else
    client_.Leave(*over);
  if (refused || distrusted_ >= client_.members() * kDistrustSure) return Refuse(verdict.error);
  Reopen(verdict.error.message, client_.Pause(++attempts_));
}

void LeaseStream::Abandon(const Connection& connection) {
  if (line_ && line_->over().get() == &connection) {
    Reopen(Concat("etcd at ", connection.endpoint.ToString(), " does not answer"),
           client_.Pause(++attempts_));
  }
}

void LeaseStream::Reopen(std::string why, Duration pause) {
  trouble_ = std::move(why);
  if (line_) line_->Drop();
  line_.reset();
  overdue_.reset();
  // Those who gave up need no place in a new row.
  for (auto row = asks_.begin(); row != asks_.end();) {
    std::erase_if(row->second, [](const auto& ask) { return !ask->done; });
    row = row->second.empty() ? asks_.erase(row) : std::next(row);
  }
  pause_ = client_.After(std::min(pause, kPauseMax), [this] {
    pause_.reset();
    if (!line_ && !opening_ && waiting_ > 0) Open();
  });
}

void LeaseStream::OnOverdue(int64_t lease, const std::shared_ptr<Ask>& ask) {
  const std::shared_ptr<Ask> keep = ask;  // the timer's own goes with it
  const Done done = std::exchange(keep->done, nullptr);
  keep->timer.reset();
  waiting_ -= 1;
  const bool sent = keep->sent;
  if (!line_) {
    auto& row = asks_[lease];
    std::erase(row, keep);
    if (row.empty()) asks_.erase(lease);
  }
  const std::string why =
      sent || trouble_.empty()
          ? Concat(line_ ? Concat("etcd at ", line_->over()->endpoint.ToString())
                         : client_.access().ToString(),
                   " did not answer a keep-alive of lease ", lease, " in time",
                   trouble_.empty() ? "" : Concat("; before: ", trouble_))
          : trouble_;
  done(Error{sent ? Code::kTimeout : Code::kUnavailable, why});
}

void LeaseStream::Refuse(const Error& why) {
  if (line_) line_->Drop();
  line_.reset();
  overdue_.reset();
  waiting_ = 0;
  distrusted_ = 0;
  const auto refused = std::exchange(asks_, {});
  for (const auto& [lease, row] : refused) {
    for (const auto& ask : row) ask->timer.reset();
  }
  const std::weak_ptr alive = alive_;
  for (const auto& [lease, row] : refused) {
    for (const auto& ask : row) {
      if (ask->done) ask->done(why);
      if (alive.expired()) return;
    }
  }
}

}  // namespace muster::etcd
