#include "etcd/grpc/watch_stream.h"

#include <utility>
#include <vector>

#include "base/text.h"
#include "etcd/grpc/convert.h"

namespace muster::etcd {

int64_t WatchStream::Add(const EtcdRange& range, int64_t revision, EtcdWatcher& watcher) {
  const int64_t number = ++last_number_;
  const auto& added =
      watches_.emplace(number, Watch{.range = range, .next = revision, .watcher = &watcher});
  client_.StartSilenceChecks();
  if (rpc_ && rpc_->is_open())
    Create(number, added.first->second);
  else
    OpenIfClosed();
  return number;
}

void WatchStream::Remove(int64_t number) {
  const auto found = watches_.find(number);
  if (found == watches_.end()) return;  // ended already
  if (found->second.id != kNoId) {
    by_id_.erase(found->second.id);
    Cancel(found->second.id);
  }
  watches_.erase(found);
}

std::unique_ptr<WatchStream::Rpc::Stream> WatchStream::Prepare(Connection& over,
                                                               grpc::ClientContext& context,
                                                               grpc::CompletionQueue* queue) {
  return over.watch->PrepareAsyncWatch(&context, queue);
}

void WatchStream::Create(int64_t number, const Watch& watch) {
  etcdserverpb::WatchRequest request;
  etcdserverpb::WatchCreateRequest& create = *request.mutable_create_request();
  create.set_key(watch.range.begin);
  create.set_range_end(watch.range.end);
  create.set_start_revision(watch.next);
  // A watch without changes must not fall behind the compacted revision.
  create.set_progress_notify(true);
  creating_.push_back(number);
  rpc_->Send(std::move(request));
}

void WatchStream::Cancel(int64_t id) {
  if (!rpc_) return;
  etcdserverpb::WatchRequest request;
  request.mutable_cancel_request()->set_watch_id(id);
  rpc_->Send(std::move(request));
}

void WatchStream::OnOpen() {
  for (const auto& [number, watch] : watches_) Create(number, watch);
}

void WatchStream::OnMessage(const etcdserverpb::WatchResponse& response) {
  client_.NoteAlive(*rpc_->over());
  attempts_ = 0;
  if (response.created()) return OnCreated(response);
  const auto known = by_id_.find(response.watch_id());
  if (known == by_id_.end()) return;  // removed meanwhile
  const int64_t number = known->second;
  if (response.canceled() || response.compact_revision() != 0) return OnCancelled(number, response);
  Watch& watch = watches_.at(number);
  UpdateHistory(response.header(), watch);
  if (response.events().empty()) {  // a progress notification: all changes up to here were reported
    watch.next = response.header().revision() + 1;
    return;
  }
  std::vector<EtcdChange> changes;
  changes.reserve(static_cast<size_t>(response.events_size()));
  for (const etcdserverpb::Event& event : response.events()) changes.push_back(FromWire(event));
  watch.next = changes.back().pair.changed + 1;
  watch.watcher->OnChanges(changes);  // may destroy the watch, or the client
}

void WatchStream::OnCreated(const etcdserverpb::WatchResponse& response) {
  if (creating_.empty()) return;  // unexpected, but harmless
  const int64_t number = creating_.front();
  creating_.pop_front();
  const auto found = watches_.find(number);
  if (response.canceled()) {
    if (found != watches_.end()) OnCancelled(number, response);
    return;
  }
  if (found == watches_.end()) return Cancel(response.watch_id());
  Watch& watch = found->second;
  if (IsBehind(response.header(), watch)) {
    Cancel(response.watch_id());
    return End(number,
               {Code::kNotFound, Concat("etcd at ", rpc_->over()->endpoint.ToString(),
                                        " is at revision ", response.header().revision(),
                                        ", and a watch of ", Printable(watch.range.begin), " at ",
                                        watch.next, ": was it restored from older data?")});
  }
  UpdateHistory(response.header(), watch);
  watch.id = response.watch_id();
  watch.denied = false;
  by_id_[watch.id] = number;
  if (watch.next == 0) watch.next = response.header().revision() + 1;
}

// A revision that the server has not reached is no proof: the member may be behind. Reading again
// does no harm then.
bool WatchStream::IsBehind(const etcdserverpb::ResponseHeader& header, const Watch& watch) {
  if (watch.next > header.revision() + 1) return true;
  return watch.cluster != 0 &&
         (header.cluster_id() != watch.cluster || header.raft_term() < watch.term);
}

void WatchStream::UpdateHistory(const etcdserverpb::ResponseHeader& header, Watch& watch) {
  watch.cluster = header.cluster_id();
  watch.term = header.raft_term();
}

void WatchStream::OnCancelled(int64_t number, const etcdserverpb::WatchResponse& response) {
  Watch& watch = watches_.at(number);
  const std::string who = Concat("etcd at ", rpc_->over()->endpoint.ToString());
  const std::string& reason = response.cancel_reason();
  if (response.compact_revision() != 0) {
    return End(number, {Code::kNotFound,
                        Concat(who, " has forgotten what happened to ",
                               Printable(watch.range.begin), " since revision ", watch.next,
                               ": it was compacted at ", response.compact_revision())});
  }
  // etcd reports "permission denied" also for a token that has expired.
  if (!client_.access().user.empty() && !std::exchange(watch.denied, true)) {
    client_.ForgetToken();
    return Reopen(Concat(who, " ended a watch: ", reason), Duration::zero());
  }
  End(number, {Code::kInvalid, Concat(who, " refuses to watch ", Printable(watch.range.begin), ": ",
                                      reason.empty() ? "no reason given" : reason)});
}

void WatchStream::OnLost(const grpc::Status& status, bool reached) {
  const std::shared_ptr<Connection> over = rpc_->over();
  if (status.ok()) {  // a server that stops ends its streams in order
    client_.SwitchFrom(*over);
    return Reopen(Concat("etcd at ", over->endpoint.ToString(), " ended the watches"),
                  client_.Pause(++attempts_));
  }
  const Failure failure = Classify(status, reached, over->endpoint, client_.access());
  if (failure.outcome == Outcome::kStale && !client_.access().user.empty())
    client_.ForgetToken();
  else
    client_.SwitchFrom(*over);
  Reopen(failure.error.message, client_.Pause(++attempts_));
}

void WatchStream::Reopen(const std::string& why, Duration pause) {
  Close();
  creating_.clear();
  by_id_.clear();
  for (auto& [number, watch] : watches_) watch.id = kNoId;
  OpenAfter(pause);
  ReportTrouble(why);
}

void WatchStream::ReportTrouble(const std::string& why) {
  std::vector<int64_t> numbers;
  for (const auto& [number, watch] : watches_) numbers.push_back(number);
  const std::weak_ptr alive = alive_;
  for (const int64_t number : numbers) {
    const auto found = watches_.find(number);
    if (found != watches_.end()) found->second.watcher->OnTrouble(why);
    if (alive.expired()) return;
  }
}

void WatchStream::End(int64_t number, const Error& why) {
  const auto found = watches_.find(number);
  EtcdWatcher* const watcher = found->second.watcher;
  by_id_.erase(found->second.id);
  watches_.erase(found);
  watcher->OnEnd(why);  // may destroy the client
}

void WatchStream::Refuse(const Error& why) {
  const std::weak_ptr alive = alive_;
  while (!alive.expired() && !watches_.empty()) End(watches_.begin()->first, why);
}

}  // namespace muster::etcd
