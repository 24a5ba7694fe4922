#include "server/store_connection.h"

#include <algorithm>
#include <chrono>
#include <new>
#include <utility>

#include "base/bytes.h"
#include "base/endpoint.h"
#include "base/text.h"
#include "rendezvous/wire/session_codec.h"
#include "store/wire/layout.h"
#include "store/wire/reply_writer.h"

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
// What the stream is given at once of pieces: it copies what it cannot send.
constexpr size_t kChunkBytes = 256 * 1024;
// No connection gets more than this part of all memory for what it has not finished sending or
// reading.
constexpr uint64_t kShare = 2;

Error NoRoom(std::string_view what) {
  return Error{Code::kProtocol, Concat(what, ": ", Describe(Reply::Why::kNoRoom))};
}

Error OutOfMemory() { return Error{Code::kProtocol, "the server is out of memory"}; }

/// Calls `work`; an allocation that fails costs the client of it, not all of them.
template <typename Work>
auto Guarded(Work work) -> decltype(work()) {
  try {
    return work();
  } catch (const std::bad_alloc&) {
    return OutOfMemory();
  }
}
}  // namespace

StoreConnection::StoreConnection(StoreService& service, ClientId id, StreamPtr stream)
    : service_(service),
      id_(id),
      stream_(std::move(stream)),
      opened_at_(service.loop_.Now()),
      taking_{opened_at_},
      sending_{opened_at_},
      charge_(service.hub_.account()) {}

StoreConnection::~StoreConnection() { Abandon(); }

void StoreConnection::Abandon() {
  if (!long_) return;
  bool more = true;
  while (more) {
    StoreHub::Turn turn(service_.hub_, service_.index_);
    more = turn.Abandon(long_->step);
    service_.Deliver(turn.Finish());
  }
  long_.reset();
}

void StoreConnection::Account() {
  size_t bytes = stream_->queued_bytes() + outgoing_bytes_;
  if (input_.capacity() > kKeptBufferBytes) bytes += input_.capacity();
  if (long_) bytes += long_->reply_bytes;
  charge_.Set(bytes);
}

bool StoreConnection::HasRoomFor(size_t bytes) const {
  MemoryAccount& account = service_.hub_.account();
  const size_t own = charge_.bytes() + (long_ ? long_->step.bytes() : 0);
  const bool is_its_share = bytes <= kSmallReplyBytes || own + bytes <= account.limit() / kShare;
  return is_its_share && account.HasRoomFor(bytes);
}

void StoreConnection::StopWaiting() {
  std::string reply;
  wire::AppendReply(reply, Reply::Of(Reply::Kind::kStopWaiting));
  Say(reply);
}

std::string StoreConnection::Overdue(Instant now, const StoreServiceOptions& options) {
  if (!validated_ && now - opened_at_ >= options.handshake_max) {
    return "no VALIDATE within the handshake time";
  }
  Account();
  const auto expected =
      static_cast<uint64_t>(static_cast<double>(options.rate_min) *
                            std::chrono::duration<double>(options.stall_max).count());
  // Slow for as long as a peer owes something, or not at all.
  const auto is_slow = [&](Pace& pace, bool owes, uint64_t bytes) {
    if (owes && now - pace.since < options.stall_max) return false;
    const bool slow = owes && bytes - pace.bytes < std::max<uint64_t>(expected, 1);
    if (!slow) pace = {now, bytes};
    return slow;
  };
  const bool has_replies = stream_->queued_bytes() > 0 || !outgoing_.empty();
  if (is_slow(taking_, has_replies, stream_->taken_bytes())) {
    return Concat("takes less than ", HumanBytes(options.rate_min),
                  " a second of the replies queued for it");
  }
  // Who holds little may take all the time in the world.
  const size_t held = input_.capacity() + (long_ ? long_->step.bytes() : 0);
  const bool has_begun = !blocked_ && held > kUnhurriedRequestBytes;
  if (is_slow(sending_, has_begun, received_)) {
    return Concat("sends less than ", HumanBytes(options.rate_min),
                  " a second of the request that it has begun");
  }
  return "";
}

void StoreConnection::OnBytes(std::string_view bytes) {
  received_ += bytes.size();
  if (input_.empty()) return ConsumeAndKeep(bytes);
  const Status kept = Guarded([&]() -> Status {
    const size_t needed = input_.size() + bytes.size();
    // As a string grows: to the double.
    if (needed > input_.capacity() && needed > kKeptBufferBytes && !HasRoomFor(needed)) {
      return NoRoom("a request that is not complete");
    }
    input_ += bytes;
    return Ok();
  });
  if (!kept) return service_.Close(*this, LogLevel::kWarning, kept.error().message);
  ConsumeAndKeep(input_);
}

void StoreConnection::ConsumeAndKeep(std::string_view bytes) {
  const Status consumed = Guarded([&]() -> Status {
    MUSTER_TRY(const size_t done, Consume(bytes));
    KeepRest(bytes, done);
    return Ok();
  });
  // destroys this
  if (!consumed) return service_.Close(*this, LogLevel::kWarning, consumed.error().message);
  Account();
  // Replies are given before it is known whether they are taken.
  if (charge_.bytes() > kUnhurriedRequestBytes && service_.hub_.account().Room() == 0) {
    service_.Close(*this, LogLevel::kWarning,
                   NoRoom("what it has not finished sending or taken").message);
  }
}

void StoreConnection::OnDrained() {
  Flush();
  Account();
  UnblockIfFree();
}

void StoreConnection::Block() {
  blocked_ = true;
  stream_->PauseReading();
}

void StoreConnection::UnblockIfFree() {
  if (!blocked_ || !outgoing_.empty() || (long_ && long_->runs)) return;
  if (stream_->queued_bytes() >= service_.options_.queued_reply_bytes_max) return;
  blocked_ = false;
  stream_->ResumeReading();
  ConsumeAndKeep(input_);
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
    const bool is_busy = asked_to_continue_ || !outgoing_.empty();
    if (is_busy || stream_->queued_bytes() >= service_.options_.queued_reply_bytes_max) {
      Block();
      break;
    }
    if (long_) {
      MUSTER_TRY(const size_t read, ReadLong(bytes.substr(done)));
      done += read;
      if (!long_->runs) break;  // the rest has not come yet
      continue;
    }
    if (static_cast<uint8_t>(bytes[done]) == wire::kSessionOpcode) {
      MUSTER_TRY(const size_t size, RunSession(bytes.substr(done)));
      if (size == 0) break;
      done += size;
      scanner_.Reset();
      continue;
    }
    MUSTER_CHECK_OK(FillBatch(bytes, done));
    if (!service_.workspace_.batch.empty()) {
      MUSTER_TRY(done, RunBatch());
    } else if (IsLong(bytes.substr(done))) {
      BeginLong(static_cast<Op>(bytes[done]));
    } else {
      break;  // the rest has not come yet
    }
  }
  return done;
}

Status StoreConnection::FillBatch(std::string_view bytes, size_t at) {
  Workspace& work = service_.workspace_;
  work.batch.clear();
  work.has_large_value = false;
  work.decoder.Clear();
  while (work.batch.size() < kBatchMax && at < bytes.size()) {
    const std::string_view rest = bytes.substr(at);
    if (wire::ListReader::IsList(rest) && IsLong(rest)) break;  // spares most requests a call
    const Result<size_t> size = scanner_.Scan(rest, service_.options_.request);
    if (!size && work.batch.empty()) return size.error();
    if (!size || *size == 0) break;
    at += *size;
    Workspace::Decoded& next = work.batch.emplace_back();
    next.end = at;
    work.decoder.Decode(rest.substr(0, *size), next.request);
    work.has_large_value |= next.request.value.size() > kSmallValueBytes;
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
  Say(frame);
  Account();
}

bool StoreConnection::HasTooMuchWaiting() const {
  return stream_->queued_bytes() + outgoing_bytes_ > service_.options_.queued_reply_bytes_max;
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
    // A segment can hold thousands of these: others have their turn after each.
    ContinueLater();
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

void StoreConnection::MakePieces() {
  Workspace& work = service_.workspace_;
  work.given.clear();
  for (auto& [request, end] : work.batch) {
    if (request.value.size() <= kSmallValueBytes) continue;
    work.given.reserve(kBatchMax);  // the requests point into it
    // Where there is no room the machine says so, when it is this request's turn.
    if (!HasRoomFor(request.value.size())) return;
    request.piece = &work.given.emplace_back(MakePiece(request.value, service_.hub_.account()));
  }
}

Result<size_t> StoreConnection::RunBatch() {
  Workspace& work = service_.workspace_;
  const Instant now = service_.loop_.Now();
  const Reply stop_waiting = Reply::Of(Reply::Kind::kStopWaiting);
  work.replies.clear();
  work.reply_pieces.clear();
  size_t done = 0;
  size_t piece_bytes = 0;
  Reply::Why refused = Reply::Why::kNothing;
  bool is_long = false;
  Op op = Op::kPing;
  bool mixes = false;
  if (work.has_large_value) MakePieces();

  StoreHub::Turn turn(service_.hub_, service_.index_);
  if (turn.TakeArrived(id_)) wire::AppendReply(work.replies, stop_waiting, work.reply_pieces);
  for (const auto& [request, end] : work.batch) {
    op = request.op;
    const bool is_write = op == Op::kSet || op == Op::kCompareSet;
    if (is_write && MixesBackends(request)) {
      mixes = true;
      break;
    }
    is_long = turn.IsLong(request);
    if (is_long) done = end;
    if (is_long) break;
    bool let_go = false;
    const Reply reply = turn.Step(id_, request, now, &let_go);
    refused = reply.why;
    if (reply.kind == Reply::Kind::kRefused) break;
    const size_t pieces_before = work.reply_pieces.size();
    wire::AppendReply(work.replies, reply, work.reply_pieces);
    for (size_t i = pieces_before; i < work.reply_pieces.size(); ++i) {
      piece_bytes += work.reply_pieces[i].piece->bytes().size();
    }
    if (let_go) wire::AppendReply(work.replies, stop_waiting, work.reply_pieces);
    done = end;
    if (work.replies.size() + piece_bytes >= service_.options_.queued_reply_bytes_max) break;
  }
  const Released local = turn.Finish();

  work.given.clear();
  if (done != work.batch.back().end) scanner_.Reset();  // it had looked further than we came
  Send(work.replies, work.reply_pieces);
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
  if (is_long) {
    BeginLong(op);
    RunLongLater();
  }
  return done;
}

// --- Long requests

bool StoreConnection::IsLong(std::string_view bytes) const {
  if (const std::optional<uint64_t> count = wire::ListReader::CountIn(bytes)) {
    // One that cannot be accepted is left to the scanner.
    if (*count > service_.options_.request.keys_max) return false;
    return *count > kKeysPerPiece || bytes.size() > kLongRequestBytes;
  }
  return false;
}

void StoreConnection::BeginLong(Op op) {
  scanner_.Reset();
  long_ = std::make_unique<LongRequest>(op, id_, service_.hub_, service_.options_.request);
}

Result<size_t> StoreConnection::ReadLong(std::string_view bytes) {
  auto& pairs = service_.workspace_.pairs;
  pairs.clear();
  MUSTER_TRY(const size_t read, long_->reader.Read(bytes, SIZE_MAX, pairs));
  for (const auto& [key, value] : pairs) {
    if (!HasRoomFor(key.size() + value.size()) || !long_->step.Add(key, value)) {
      return NoRoom(Name(long_->step.op()));
    }
  }
  if (long_->reader.is_complete()) RunLongLater();
  return read;
}

void StoreConnection::RunLongLater() {
  long_->runs = true;
  Block();
  ContinueLater();
}

void StoreConnection::ContinueLater() {
  if (asked_to_continue_) return;
  asked_to_continue_ = true;
  service_.Later(id_);
}

bool StoreConnection::TakeValue(const ValueView& value, std::string& text,
                                std::vector<wire::PieceAt>& pieces) {
  wire::AppendValue(text, value, pieces);
  ++long_->values;
  long_->value_bytes += value.size();
  // Two segments for each piece: itself, and its length.
  const size_t bytes = text.capacity() + 2 * pieces.size() * Segment().bytes();
  return long_->value_bytes <= service_.hub_.reply_bytes_max() && HasRoomFor(bytes);
}

Result<bool> StoreConnection::AdvanceLong() {
  std::string text;
  std::vector<wire::PieceAt> pieces;
  bool let_go = false;
  StoreHub::Turn turn(service_.hub_, service_.index_);
  const bool arrived = turn.TakeArrived(id_);
  const bool done = turn.Advance(
      long_->step, id_, service_.loop_.Now(),
      [&](const ValueView& value) { return TakeValue(value, text, pieces); }, &let_go);
  const Released local = turn.Finish();
  if (arrived || let_go) StopWaiting();
  long_->reply_bytes += AppendSegments(text, pieces, long_->reply);
  Account();
  service_.Deliver(local);
  if (!done) return false;
  MUSTER_CHECK_OK(FinishLong());
  return true;
}

Status StoreConnection::FinishLong() {
  const Op op = long_->step.op();
  const Reply reply = long_->step.reply();
  if (reply.kind == Reply::Kind::kRefused) {
    return Error{Code::kProtocol, Concat(Name(op), ": ", Describe(reply.why))};
  }
  std::string text;
  std::vector<wire::PieceAt> pieces;
  if (reply.kind == Reply::Kind::kKeys) {
    AppendInt<int64_t>(text, long_->values);
  } else if (reply.kind != Reply::Kind::kValues) {
    wire::AppendReply(text, reply, pieces);
  }
  outgoing_bytes_ += AppendSegments(text, pieces, outgoing_) + long_->reply_bytes;
  outgoing_.splice(outgoing_.end(), long_->reply);
  long_.reset();
  Flush();
  return Ok();
}

void StoreConnection::Continue() {
  asked_to_continue_ = false;
  Flush();
  if (long_ && long_->runs) {
    const Result<bool> done = Guarded([&] { return AdvanceLong(); });
    if (!done) return service_.Close(*this, LogLevel::kWarning, done.error().message);
    if (!*done) return ContinueLater();
  }
  Account();
  UnblockIfFree();
}

// --- What is sent

size_t StoreConnection::AppendSegments(std::string& text, std::vector<wire::PieceAt>& pieces,
                                       std::list<Segment>& to) {
  size_t bytes = 0;
  const auto append = [&](std::string words, Piece piece) {
    to.push_back({std::move(words), std::move(piece)});
    bytes += to.back().bytes();
  };
  size_t done = 0;
  for (wire::PieceAt& next : pieces) {
    if (next.at > done) append(text.substr(done, next.at - done), nullptr);
    done = next.at;
    append("", std::move(next.piece));
  }
  if (done == 0 && !text.empty()) {
    append(std::move(text), nullptr);
  } else if (done < text.size()) {
    append(text.substr(done), nullptr);
  }
  text.clear();
  pieces.clear();
  return bytes;
}

void StoreConnection::Say(std::string_view text) {
  if (outgoing_.empty()) return stream_->Write(text);
  outgoing_.push_back({std::string(text), nullptr});
  outgoing_bytes_ += outgoing_.back().bytes();
}

void StoreConnection::Send(std::string& text, std::vector<wire::PieceAt>& pieces) {
  if (!pieces.empty() || !outgoing_.empty()) {
    outgoing_bytes_ += AppendSegments(text, pieces, outgoing_);
    Flush();
  } else if (text.size() > kLargeReplyBytes) {
    stream_->WriteLarge(text);
  } else if (!text.empty()) {
    stream_->Write(text);
  }
  // Kept where it is not too large: to allocate one for each large reply would tear holes into the
  // memory.
  if (text.capacity() > kKeptReplyBytes) std::string().swap(text);
}

void StoreConnection::Flush() {
  size_t left = kSentPerTurn;
  while (!outgoing_.empty() && stream_->queued_bytes() == 0 && left > 0) {
    Segment& next = outgoing_.front();
    const std::string_view chunk = next.rest().substr(0, kChunkBytes);
    stream_->Write(chunk);
    next.sent += chunk.size();
    left -= std::min(left, chunk.size());
    if (!next.rest().empty()) continue;
    outgoing_bytes_ -= next.bytes();
    outgoing_.pop_front();
  }
  // The stream tells when it has room again; where it always had, others have their turn first.
  if (!outgoing_.empty() && stream_->queued_bytes() == 0) ContinueLater();
}

}  // namespace muster
