#include "etcd/grpc/grpc_etcd.h"

#include <grpc/support/log.h>
#include <grpcpp/support/async_stream.h>

#include <cstdlib>
#include <system_error>
#include <utility>

#include "base/text.h"
#include "etcd/grpc/client.h"

namespace muster {

namespace etcd {
namespace {

// --- The values of the port, as etcd's messages

void Fill(etcdserverpb::Compare& wire, const EtcdCondition& condition) {
  using Kind = EtcdCondition::Kind;
  wire.set_key(condition.key);
  if (condition.kind == Kind::kCreatedAt) {
    wire.set_target(etcdserverpb::Compare::CREATE);
    wire.set_create_revision(condition.revision);
  } else if (condition.kind == Kind::kChangedAt) {
    wire.set_target(etcdserverpb::Compare::MOD);
    wire.set_mod_revision(condition.revision);
  } else {
    wire.set_target(etcdserverpb::Compare::VALUE);
    wire.set_value(condition.value);
  }
}

void Fill(etcdserverpb::RangeRequest& wire, const EtcdRange& range) {
  wire.set_key(range.begin);
  wire.set_range_end(range.end);
}

void Fill(etcdserverpb::RequestOp& wire, const EtcdOperation& operation) {
  using Kind = EtcdOperation::Kind;
  if (operation.kind == Kind::kPut) {
    etcdserverpb::PutRequest& put = *wire.mutable_request_put();
    put.set_key(operation.range.begin);
    put.set_value(operation.value);
    put.set_lease(operation.lease);
  } else if (operation.kind == Kind::kGet) {
    etcdserverpb::RangeRequest& get = *wire.mutable_request_range();
    Fill(get, operation.range);
    get.set_limit(operation.range.limit);
    get.set_keys_only(operation.range.keys_only);
  } else {
    Fill(*wire.mutable_request_delete_range(), operation.range);
  }
}

EtcdPair PairOf(const etcdserverpb::KeyValue& wire) {
  return {.key = wire.key(),
          .value = wire.value(),
          .created = wire.create_revision(),
          .changed = wire.mod_revision(),
          .lease = wire.lease()};
}

etcdserverpb::TxnRequest ToWire(const EtcdTransaction& transaction) {
  etcdserverpb::TxnRequest wire;
  for (const EtcdCondition& each : transaction.conditions) Fill(*wire.add_compare(), each);
  for (const EtcdOperation& each : transaction.then) Fill(*wire.add_success(), each);
  for (const EtcdOperation& each : transaction.otherwise) Fill(*wire.add_failure(), each);
  return wire;
}

EtcdAnswer AnswerOf(const etcdserverpb::TxnResponse& response) {
  EtcdAnswer answer{.held = response.succeeded(), .revision = response.header().revision()};
  for (const etcdserverpb::ResponseOp& each : response.responses()) {
    EtcdAnswer::Result& result = answer.results.emplace_back();
    if (each.has_response_range()) {
      result.count = each.response_range().count();
      result.pairs.reserve(static_cast<size_t>(each.response_range().kvs_size()));
      for (const etcdserverpb::KeyValue& pair : each.response_range().kvs())
        result.pairs.push_back(PairOf(pair));
    } else if (each.has_response_delete_range()) {
      result.count = each.response_delete_range().deleted();
    }
  }
  return answer;
}

std::vector<EtcdChange> ChangesOf(const etcdserverpb::WatchResponse& response) {
  std::vector<EtcdChange> changes;
  changes.reserve(static_cast<size_t>(response.events_size()));
  for (const etcdserverpb::Event& event : response.events()) {
    changes.push_back(
        {.deleted = event.type() == etcdserverpb::Event::DELETE, .pair = PairOf(event.kv())});
  }
  return changes;
}

/// A watch: a stream of gRPC with one member, which is reopened after failures at its last
/// revision.
class GrpcWatch final : public ClientWatch {
 public:
  /// Watches from `revision` on; 0: from the present one.
  GrpcWatch(Client& client, EtcdRange range, int64_t revision, EtcdWatcher& watcher)
      : client_(&client), range_(std::move(range)), next_(revision), watcher_(watcher) {
    client.Add(*this);
    Open();
  }
  ~GrpcWatch() override { Stop(); }
  GrpcWatch(GrpcWatch&&) = delete;

  void Stop() override {
    if (client_ == nullptr) return;
    Drop();
    pause_.reset();
    std::exchange(client_, nullptr)->Remove(*this);
  }
  std::shared_ptr<Connection> over() const override { return stream_ ? stream_->over : nullptr; }

  // Reported later: a watcher that receives this may destroy the watch, or the client.
  void Abandon(const Connection& connection) override {
    if (over().get() != &connection) return;
    client_->loop().Post(lifetime_.Guard(
        [this] { Reopen(Concat(Server(), " does not answer"), client_->Pause(++attempts_)); }));
  }

 private:
  /// Shared with the running operations.
  struct Stream {
    std::shared_ptr<Connection> over;
    grpc::ClientContext context;
    std::unique_ptr<grpc::GenericClientAsyncReaderWriter> rpc;
    grpc::ByteBuffer message;
    grpc::Status status;
  };

  void Drop() {
    lifetime_.Renew();
    if (stream_) stream_->context.TryCancel();
    stream_.reset();
  }

  void Open() {
    client_->WithToken(lifetime_.Guard([this](const Status& status) {
      if (status) return Connect();
      if (status.error().code == Code::kInvalid) return End(status.error());
      Reopen(status.error().message, client_->Pause(0));
    }));
  }

  void Connect() {
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
      stream_->rpc->Write(ToBytes(request), MakeTag([](bool) {}));
      Read();  // ends, too, if the request cannot be written
    }));
  }

  /// The tag of an operation. `then` does not run once the stream is dropped.
  void* MakeTag(std::function<void(bool ok)> then) {
    return client_->completions().MakeTag(
        [keep = stream_, work = lifetime_.Guard(std::move(then))](bool ok) mutable { work(ok); });
  }

  void Read() {
    stream_->rpc->Read(&stream_->message, MakeTag([this](bool ok) {
      if (!ok) return Finish();
      etcdserverpb::WatchResponse response;
      if (!FromBytes(stream_->message, response))
        return Reopen(Concat(Server(), " sent no response of a watch"),
                      client_->Pause(++attempts_));
      Read();
      OnMessage(response);
    }));
  }

  void Finish() {
    stream_->rpc->Finish(&stream_->status, MakeTag([this](bool) { OnLost(); }));
  }

  void OnMessage(const etcdserverpb::WatchResponse& response) {
    client_->NoteAlive(*stream_->over);
    attempts_ = 0;
    if (response.canceled() || response.compact_revision() != 0) return OnCancelled(response);
    if (response.created()) return OnCreated(response);
    UpdateHistory(response.header());
    // A progress notification has none: all changes up to here were reported.
    if (response.events().empty()) {
      next_ = response.header().revision() + 1;
      return;
    }
    const std::vector<EtcdChange> changes = ChangesOf(response);
    next_ = changes.back().pair.changed + 1;
    watcher_.OnChanges(changes);  // may destroy the watch, or the client
  }

  void OnCreated(const etcdserverpb::WatchResponse& response) {
    if (IsBehind(response.header())) {
      return End(
          {Code::kNotFound,
           Concat(Server(), " is at revision ", response.header().revision(), ", and a watch of ",
                  Printable(range_.begin), " at ", next_, ": was it restored from older data?")});
    }
    UpdateHistory(response.header());
    denied_ = false;
    if (next_ == 0) next_ = response.header().revision() + 1;
  }

  /// Whether the server has another history than the watch: an older one, or that of another
  /// cluster. If it has not reached a revision, this member may only be behind. Reading again does
  /// no harm then.
  bool IsBehind(const etcdserverpb::ResponseHeader& header) const {
    if (next_ > header.revision() + 1) return true;
    return cluster_ != 0 && (header.cluster_id() != cluster_ || header.raft_term() < term_);
  }

  void UpdateHistory(const etcdserverpb::ResponseHeader& header) {
    cluster_ = header.cluster_id();
    term_ = header.raft_term();
  }

  void OnCancelled(const etcdserverpb::WatchResponse& response) {
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

  void OnLost() {
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

  void Reopen(const std::string& why, Duration pause) {
    Drop();
    pause_ = client_->loop().After(pause, [this] {
      pause_.reset();
      Open();
    });
    watcher_.OnTrouble(why);  // may destroy the watch, or the client
  }

  void End(const Error& why) {
    Stop();
    watcher_.OnEnd(why);  // may destroy the watch, or the client
  }

  /// "etcd at 127.0.0.1:2379": the other end.
  std::string Server() const { return Concat("etcd at ", stream_->over->endpoint.ToString()); }

  Client* client_;  ///< Null after the end.
  const EtcdRange range_;
  int64_t next_;  ///< The revision to continue from; 0: the present one.
  EtcdWatcher& watcher_;
  std::shared_ptr<Stream> stream_;
  size_t attempts_ = 0;   ///< Since the last message.
  bool denied_ = false;   ///< Refused with the last stream's token.
  uint64_t cluster_ = 0;  ///< Of the last server that answered; 0: none.
  uint64_t term_ = 0;     ///< Of that server's raft; it only grows.
  std::unique_ptr<Timer> pause_;
  Lifetime lifetime_;  ///< Of one attempt to open a stream, and of that stream.
};

class GrpcEtcd final : public Etcd {
 public:
  GrpcEtcd(const EtcdOptions& access, Credentials credentials, Loop& loop)
      : client_(access, std::move(credentials), loop) {}

  void Commit(EtcdTransaction transaction, Duration patience,
              std::function<void(Result<EtcdAnswer>)> done) override {
    Start<etcdserverpb::TxnResponse>({.method = "/etcdserverpb.KV/Txn",
                                      .request = ToBytes(ToWire(transaction)),
                                      .repeatable = OnlyReads(transaction)},
                                     patience, std::move(done), &AnswerOf);
  }

  void Grant(Duration ttl, Duration patience,
             std::function<void(Result<EtcdLease>)> done) override {
    etcdserverpb::LeaseGrantRequest request;
    // Whole seconds, rounded up.
    request.set_ttl(std::chrono::ceil<std::chrono::seconds>(ttl).count());
    Start<Lease>({.method = "/etcdserverpb.Lease/LeaseGrant",
                  .request = ToBytes(request),
                  .repeatable = true},  // an unused lease expires
                 patience, std::move(done), [](const Lease& lease) -> EtcdLease {
                   return {.id = lease.id(), .ttl = std::chrono::seconds(lease.ttl())};
                 });
  }

  // In etcd's API this is a stream. A stream with one request and one response is a call.
  void KeepAlive(int64_t id, Duration patience,
                 std::function<void(Result<Duration>)> done) override {
    Start<Lease>({.method = "/etcdserverpb.Lease/LeaseKeepAlive",
                  .request = Naming(id),
                  .repeatable = true,
                  .hurried = true},  // leases last for seconds, and each holds a node's place
                 patience, std::move(done),
                 [id, name = Describe()](const Lease& lease) -> Result<Duration> {
                   if (lease.ttl() > 0) return Duration(std::chrono::seconds(lease.ttl()));
                   return MakeError(Code::kNotFound, name, ": there is no lease ", id,
                                    "; it has expired or was revoked");
                 });
  }

  void Revoke(int64_t id, Duration patience, std::function<void(Status)> done) override {
    Start<Lease>(
        {.method = "/etcdserverpb.Lease/LeaseRevoke", .request = Naming(id), .repeatable = true},
        patience, std::move(done), [](const Lease&) { return Ok(); });
  }

  std::unique_ptr<EtcdWatch> Watch(const EtcdRange& range, int64_t revision,
                                   EtcdWatcher& watcher) override {
    return std::make_unique<GrpcWatch>(client_, range, revision, watcher);
  }

  std::string Describe() const override { return client_.access().ToString(); }

 private:
  using Lease = etcdserverpb::LeaseGrantResponse;

  static grpc::ByteBuffer Naming(int64_t lease) {
    etcdserverpb::LeaseKeepAliveRequest request;
    request.set_id(lease);
    return ToBytes(request);
  }

  /// `convert` makes the result from the response.
  template <typename Response, typename T, typename Convert>
  void Start(Call call, Duration patience, std::function<void(Result<T>)> done, Convert convert) {
    call.done = [convert, done = std::move(done)](Result<const grpc::ByteBuffer*> answer) {
      Response response;
      if (!answer) return done(answer.error());
      if (!FromBytes(**answer, response))
        return done(Error{Code::kTimeout, "etcd's response cannot be read"});
      done(convert(response));
    };
    client_.Start(std::move(call), patience);
  }

  Client client_;
};

}  // namespace
}  // namespace etcd

EtcdConnector ConnectorTo(const EtcdOptions& access) {
  access.Validate();
  return [access](Loop& loop) -> Result<std::shared_ptr<Etcd>> {
    MUSTER_TRY(etcd::Credentials credentials, etcd::CredentialsOf(access));
    // gRPC also writes its errors to stderr, which a library must not do in other people's
    // programs. gRPC's own variable enables that.
    if (std::getenv("GRPC_VERBOSITY") == nullptr)
      gpr_set_log_verbosity(static_cast<gpr_log_severity>(GPR_LOG_SEVERITY_ERROR + 1));
    try {
      return {std::make_shared<etcd::GrpcEtcd>(access, std::move(credentials), loop)};
    } catch (const std::system_error& error) {
      return MakeError(Code::kUnavailable, "no thread for a client of ", access.ToString(), ": ",
                       error.what());
    }
  };
}

}  // namespace muster
