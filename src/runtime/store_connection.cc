#include "runtime/store_connection.h"

#include <utility>

#include "base/bytes.h"
#include "base/endpoint.h"
#include "base/text.h"
#include "wire/layout.h"
#include "wire/reply_writer.h"
#include "wire/session_codec.h"

namespace muster {

namespace {
// Enough for any client that pipelines; small enough that another loop never waits long for the
// machine.
constexpr size_t kBatchMax = 64;
// Buffers above this are given back when they become empty: idle connections are many.
constexpr size_t kKeptBufferBytes = 1024;
// Replies above this are handed to the stream with their buffer.
constexpr size_t kLargeReplyBytes = 256 * 1024;
constexpr size_t kKeptReplyBytes = 2 * 1024 * 1024;
// The shared document of a run of backend c10d is the key of this and the run's id.
constexpr std::string_view kDocumentPrefix = "/torch.rendezvous.";
}  // namespace

StoreConnection::StoreConnection(StoreService& service, ClientId id, StreamPtr stream)
    : service_(service),
      id_(id),
      stream_(std::move(stream)),
      opened_at_(service.loop_.Now()),
      progress_at_(opened_at_) {}

StoreConnection::~StoreConnection() { service_.hub_.Queued(-static_cast<int64_t>(accounted_)); }

void StoreConnection::Account() {
  const size_t queued = stream_->queued_bytes();
  if (queued == accounted_) return;
  service_.hub_.Queued(static_cast<int64_t>(queued) - static_cast<int64_t>(accounted_));
  accounted_ = queued;
}

void StoreConnection::StopWaiting() {
  std::string reply;
  wire::AppendReply(reply, Reply::Of(Reply::Kind::kStopWaiting));
  stream_->Write(reply);
}

std::string StoreConnection::Overdue(Instant now, const StoreServiceOptions& options) {
  if (!validated_ && now - opened_at_ >= options.handshake_max) {
    return "no VALIDATE within the handshake time";
  }
  Account();
  if (stream_->queued_bytes() == 0 || stream_->taken_bytes() != taken_before_) progress_at_ = now;
  taken_before_ = stream_->taken_bytes();
  if (now - progress_at_ >= options.stall_max) {
    return Concat("takes none of the ", stream_->queued_bytes(), " bytes of replies queued for it");
  }
  return "";
}

void StoreConnection::OnBytes(std::string_view bytes) {
  const bool whole = input_.empty();
  if (!whole) {
    input_ += bytes;
    bytes = input_;
  }
  Result<size_t> done = Consume(bytes);
  if (!done)
    return service_.Close(*this, LogLevel::kWarning, done.error().message);  // destroys this
  KeepRest(bytes, *done);
}

void StoreConnection::OnDrained() {
  Account();
  if (!blocked_) return;
  blocked_ = false;
  stream_->ResumeReading();
  Result<size_t> done = Consume(input_);
  if (!done)
    return service_.Close(*this, LogLevel::kWarning, done.error().message);  // destroys this
  KeepRest(input_, *done);
}

void StoreConnection::OnClosed(const std::string& why) {
  service_.Close(*this, LogLevel::kDebug, why);  // destroys this
}

void StoreConnection::KeepRest(std::string_view bytes, size_t done) {
  const bool own = bytes.data() == input_.data();
  if (done == bytes.size()) {
    if (own && input_.capacity() > kKeptBufferBytes) {
      std::string().swap(input_);
    } else if (own) {
      input_.clear();
    }
  } else if (own) {
    input_.erase(0, done);
  } else {
    input_.assign(bytes.substr(done));
  }
}

Result<size_t> StoreConnection::Consume(std::string_view bytes) {
  size_t done = 0;
  if (!validated_) {
    MUSTER_TRY(done, Handshake(bytes));
    if (done == 0) return done;
  }
  while (done < bytes.size()) {
    if (stream_->queued_bytes() >= service_.options_.queued_reply_bytes_max) {
      blocked_ = true;
      stream_->PauseReading();
      break;
    }
    if (static_cast<uint8_t>(bytes[done]) == wire::kSessionOpcode) {
      MUSTER_TRY(const size_t size, RunSession(bytes.substr(done)));
      if (size == 0) break;
      done += size;
      scanner_.Reset();
      continue;
    }
    MUSTER_CHECK_OK(FillBatch(bytes, done));
    if (service_.workspace_.batch.empty()) break;  // the rest has not come yet
    MUSTER_TRY(done, RunBatch());
  }
  return done;
}

Status StoreConnection::FillBatch(std::string_view bytes, size_t at) {
  auto& [decoder, batch, replies] = service_.workspace_;
  batch.clear();
  decoder.Clear();
  while (batch.size() < kBatchMax && at < bytes.size()) {
    const Result<size_t> size = scanner_.Scan(bytes.substr(at), service_.options_.request);
    if (!size && batch.empty()) return size.error();
    if (!size || *size == 0) break;
    const Request request = decoder.Decode(bytes.substr(at, *size));
    at += *size;
    batch.push_back({request, at});
    scanner_.Reset();
  }
  return Ok();
}

Result<size_t> StoreConnection::Handshake(std::string_view bytes) {
  constexpr size_t kSize = 1 + sizeof wire::kMagic;
  // Judged by its first byte already: an HTTP request must not be waited for as if it were a long
  // SET.
  if (bytes[0] != static_cast<char>(Op::kValidate)) {
    return Error{Code::kProtocol, Concat("starts with byte ", static_cast<uint8_t>(bytes[0]),
                                         ", not with VALIDATE")};
  }
  if (bytes.size() < kSize) return size_t{0};
  if (LoadInt<uint32_t>(bytes.data() + 1) != wire::kMagic) {
    return Error{Code::kProtocol, "VALIDATE with a wrong magic number"};
  }
  validated_ = true;
  return kSize;
}

void StoreConnection::Tell(const Push& push) {
  std::string frame;
  wire::AppendSessionFrame(frame, push);
  stream_->Write(frame);
  Account();
}

bool StoreConnection::HasTooMuchWaiting() const {
  return stream_->queued_bytes() > service_.options_.queued_reply_bytes_max;
}

// A node is known by the address that it comes from, unless it says otherwise.
void StoreConnection::Introduce(Hello& hello) {
  const Result<Endpoint> from = ParseHostPort(stream_->peer());
  if (hello.node.addr.empty() && from) hello.node.addr = from->host;
  if (const Result<Endpoint> to = ParseHostPort(stream_->local())) hello.server_addr = to->host;
}

std::optional<Push> StoreConnection::WhyNot(const wire::SessionRequest& open) {
  const auto refuse = [&](Push::Refusal refusal, std::string why) {
    return Refuse({.token = open.token, .round = open.round}, refusal, std::move(why));
  };
  if (!open.IsUnderstood()) {
    return refuse(
        Push::Refusal::kVersion,
        Concat("the node speaks versions ", open.version_oldest, " to ", open.version,
               " of muster's session protocol, and this server ", wire::kSessionVersionOldest,
               " to ", wire::kSessionVersion, ": run the same release of muster on all machines"));
  }
  const std::string& id = open.hello.run_id;
  if (service_.hub_.Contains(Concat(kDocumentPrefix, id))) {
    return refuse(Push::Refusal::kSettings,
                  Concat("run '", Printable(id), "' is one of backend c10d on this server (key '",
                         kDocumentPrefix.substr(1), Printable(id),
                         "'), and this node was given backend muster: give all nodes the same "
                         "backend, or this job another id"));
  }
  return std::nullopt;
}

// Called with the store's lock held: a node of backend muster registers first and looks for the key
// afterwards, so one of two that come at the same time sees the other.
bool StoreConnection::MixesBackends(const Request& request) const {
  if (request.op != Op::kCompareSet && request.op != Op::kSet) return false;
  if (!request.key.starts_with(kDocumentPrefix)) return false;
  return service_.sessions_.IsInUse(request.key.substr(kDocumentPrefix.size()));
}

Result<size_t> StoreConnection::RunSession(std::string_view bytes) {
  using Kind = wire::SessionRequest::Kind;
  MUSTER_TRY(const size_t size, wire::SessionFrameSize(bytes));
  if (size == 0 || bytes.size() < size) return size_t{0};
  MUSTER_TRY(wire::SessionRequest request, wire::ReadSessionRequest(bytes.substr(0, size)));
  if (request.kind == Kind::kStatus) {
    std::string status;
    const SessionHub::StatusPage page = service_.sessions_.Status(request);
    wire::AppendStatus(status, page.runs, page.more);
    if (status.size() > service_.hub_.ReplyRoom()) {
      return Error{Code::kProtocol, Concat("a status of ", HumanBytes(status.size()),
                                           ", more than one reply may have")};
    }
    stream_->WriteLarge(status);
    Account();
    return size;
  }
  if (request.kind == Kind::kOpen) {
    if (has_session_) return Error{Code::kProtocol, "a second session on one connection"};
    if (std::optional<Push> refusal = WhyNot(request)) {
      Tell(*refusal);
      return size;
    }
    has_session_ = true;
    Introduce(request.hello);
    service_.WatchSessions();
  }
  service_.Deliver(service_.sessions_.Handle(service_.index_, id_, request));
  if (request.kind == Kind::kOpen) {
    if (const std::optional<Push> refusal = WhyNot(request)) {
      Tell(*refusal);
      return Error{Code::kProtocol, refusal->why};
    }
  }
  return size;
}

Result<size_t> StoreConnection::RunBatch() {
  auto& [decoder, batch, replies] = service_.workspace_;
  const Instant now = service_.loop_.Now();
  const Reply stop_waiting = Reply::Of(Reply::Kind::kStopWaiting);
  replies.clear();
  size_t done = 0;
  Reply::Why refused = Reply::Why::kNothing;
  Op op = Op::kPing;
  bool mixes = false;

  StoreHub::Turn turn(service_.hub_, service_.index_);
  if (turn.TakeArrived(id_)) wire::AppendReply(replies, stop_waiting);
  for (const auto& [request, end] : batch) {
    op = request.op;
    if (MixesBackends(request)) {
      mixes = true;
      break;
    }
    bool let_go = false;
    const Reply reply = turn.Step(id_, request, now, &let_go);
    refused = reply.why;
    if (reply.kind == Reply::Kind::kRefused) break;
    wire::AppendReply(replies, reply);
    if (let_go) wire::AppendReply(replies, stop_waiting);
    done = end;
    if (replies.size() >= service_.options_.queued_reply_bytes_max) break;
  }
  const Released local = turn.Finish();

  if (done != batch.back().end) scanner_.Reset();  // it had looked further than we came
  if (replies.size() > kLargeReplyBytes) {
    stream_->WriteLarge(replies);
    // Kept where it is not too large: to allocate one for each large reply would tear holes into
    // the memory.
    if (replies.capacity() > kKeptReplyBytes) std::string().swap(replies);
  } else if (!replies.empty()) {
    stream_->Write(replies);
  }
  Account();
  service_.Deliver(local);
  if (mixes) {
    return Error{Code::kProtocol,
                 Concat(Name(op),
                        " of the document of a c10d rendezvous, whose run is one of "
                        "backend muster on this server: give all nodes the same backend")};
  }
  if (refused != Reply::Why::kNothing) {
    return Error{Code::kProtocol, Concat(Name(op), ": ", Describe(refused))};
  }
  return done;
}

}  // namespace muster
