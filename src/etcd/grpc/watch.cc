#include "etcd/grpc/watch.h"

#include <utility>

#include "base/text.h"
#include "etcd/grpc/convert.h"

namespace muster::etcd {

GrpcWatch::GrpcWatch(Client& client, EtcdRange range, int64_t revision, EtcdWatcher& watcher)
    : client_(&client), range_(std::move(range)), next_(revision), watcher_(watcher) {
  client.Add(*this);
  Open();
}

void GrpcWatch::Stop() {
  if (client_ == nullptr) return;
  Drop();
  pause_.reset();
  std::exchange(client_, nullptr)->Remove(*this);
}

void GrpcWatch::Drop() {
  lifetime_.Renew();
  if (stream_) stream_->context.TryCancel();
  stream_.reset();
}

void GrpcWatch::Open() {
  client_->WithToken(lifetime_.Guard([this](const Status& status) {
    if (status) return Connect();
    if (status.error().code == Code::kInvalid) return End(status.error());
    Reopen(status.error().message, client_->Pause(0));
  }));
}

void GrpcWatch::Connect() {
  stream_ = std::make_shared<Stream>();
  stream_->over = client_->Current();
  client_->AddCredentials(stream_->context);
  stream_->rpc = stream_->over->stub.PrepareCall(&stream_->context, "/etcdserverpb.Watch/Watch",
                                                 client_->completions().queue());
  stream_->rpc->StartCall(MakeTag([this](bool ok) {
    if (!ok) return Finish();
    etcdserverpb::WatchRequest request;
    etcdserverpb::WatchCreateRequest& create = *request.mutable_create_request();
    create.set_key(range_.begin);
    create.set_range_end(range_.end);
    create.set_start_revision(next_);
    // A watch without changes must not fall behind the compacted revision.
    create.set_progress_notify(true);
    stream_->rpc->Write(ToBytes(request), MakeTag([](bool) {}));  // if it fails, reading ends, too
    Read();
  }));
}

void* GrpcWatch::MakeTag(std::function<void(bool ok)> then) {
  return client_->completions().MakeTag(
      [keep = stream_, work = lifetime_.Guard(std::move(then))](bool ok) mutable { work(ok); });
}

void GrpcWatch::Read() {
  stream_->rpc->Read(&stream_->message, MakeTag([this](bool ok) {
    if (!ok) return Finish();
    etcdserverpb::WatchResponse response;
    if (!FromBytes(stream_->message, response))
      return Reopen(Concat(Server(), " sent no response of a watch"), client_->Pause(++attempts_));
    Read();
    OnMessage(response);
  }));
}

void GrpcWatch::Finish() {
  stream_->rpc->Finish(&stream_->status, MakeTag([this](bool) { OnLost(); }));
}

void GrpcWatch::OnMessage(const etcdserverpb::WatchResponse& response) {
  client_->NoteAlive(*stream_->over);
  attempts_ = 0;
  if (response.canceled() || response.compact_revision() != 0) return OnCancelled(response);
  if (response.created()) return OnCreated(response);
  UpdateHistory(response.header());
  if (response.events().empty()) {  // a progress notification: all changes up to here were reported
    next_ = response.header().revision() + 1;
    return;
  }
  const std::vector<EtcdChange> changes = FromWire(response);
  next_ = changes.back().pair.changed + 1;
  watcher_.OnChanges(changes);  // may destroy the watch, or the client
}

void GrpcWatch::OnCreated(const etcdserverpb::WatchResponse& response) {
  if (IsBehind(response.header())) {
    return End({Code::kNotFound, Concat(Server(), " is at revision ", response.header().revision(),
                                        ", and a watch of ", Printable(range_.begin), " at ", next_,
                                        ": was it restored from older data?")});
  }
  UpdateHistory(response.header());
  denied_ = false;
  if (next_ == 0) next_ = response.header().revision() + 1;
}

// A revision that the server has not reached is no proof: the member may be behind. Reading again
// does no harm then.
bool GrpcWatch::IsBehind(const etcdserverpb::ResponseHeader& header) const {
  if (next_ > header.revision() + 1) return true;
  return cluster_ != 0 && (header.cluster_id() != cluster_ || header.raft_term() < term_);
}

void GrpcWatch::UpdateHistory(const etcdserverpb::ResponseHeader& header) {
  cluster_ = header.cluster_id();
  term_ = header.raft_term();
}

void GrpcWatch::OnCancelled(const etcdserverpb::WatchResponse& response) {
  const std::string& reason = response.cancel_reason();
  if (response.compact_revision() != 0) {
    return End({Code::kNotFound, Concat(Server(), " has forgotten what happened to ",
                                        Printable(range_.begin), " since revision ", next_,
                                        ": it was compacted at ", response.compact_revision())});
  }
  // etcd reports "permission denied" also for a token that has expired.
  if (!client_->access().user.empty() && !std::exchange(denied_, true)) {
    client_->ForgetToken();
    return Reopen(Concat(Server(), " ended a watch: ", reason), Duration::zero());
  }
  End({Code::kInvalid, Concat(Server(), " refuses to watch ", Printable(range_.begin), ": ",
                              reason.empty() ? "no reason given" : reason)});
}

void GrpcWatch::OnLost() {
  std::string why = Concat(Server(), " ended the watch");
  bool is_stale = false;
  if (!stream_->status.ok()) {  // a server that stops ends its streams in order
    Failure failure = Classify(stream_->status, IsReached(stream_->context.peer()),
                               stream_->over->endpoint, client_->access());
    why = std::move(failure.error.message);
    is_stale = failure.outcome == Outcome::kStale && !client_->access().user.empty();
  }
  if (is_stale)
    client_->ForgetToken();
  else
    client_->SwitchFrom(*stream_->over);
  Reopen(why, client_->Pause(++attempts_));
}

// Later: a watcher that receives this may destroy the watch, or the client.
void GrpcWatch::Abandon(const Connection& connection) {
  if (over().get() != &connection) return;
  client_->loop().Post(lifetime_.Guard(
      [this] { Reopen(Concat(Server(), " does not answer"), client_->Pause(++attempts_)); }));
}

void GrpcWatch::Reopen(const std::string& why, Duration pause) {
  Drop();
  pause_ = client_->loop().After(pause, [this] {
    pause_.reset();
    Open();
  });
  watcher_.OnTrouble(why);  // may destroy the watch, or the client
}

void GrpcWatch::End(const Error& why) {
  Stop();
  watcher_.OnEnd(why);  // may destroy the watch, or the client
}

}  // namespace muster::etcd
