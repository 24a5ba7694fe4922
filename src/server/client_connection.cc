#include "server/client_connection.h"

#include <algorithm>
#include <new>
#include <optional>
#include <utility>

#include "base/bytes.h"
#include "base/text.h"
#include "rendezvous/session/admission.h"
#include "store/wire/layout.h"
#include "store/wire/reply_writer.h"

namespace muster {

namespace {
// Large enough for any pipelining client; small enough that another loop never waits long for the
// machine.
constexpr size_t kBatchMax = 64;
// Larger buffers are freed when they become empty: there may be many idle connections.
constexpr size_t kKeptBufferBytes = 1024;
// Replies above this are passed to the stream with their buffer.
constexpr size_t kLargeReplyBytes = 256 * 1024;
constexpr size_t kKeptReplyBytes = 2 * 1024 * 1024;
// A connection may use at most one part in this number of all memory for unfinished requests and
// unread replies.
constexpr uint64_t kShare = 2;

Error NoRoom(std::string_view what) {
  return Error{Code::kProtocol, Concat(what, ": ", Describe(Reply::Why::kNoRoom))};
}

bool WritesValues(Op op) {
  return op == Op::kSet || op == Op::kCompareSet || op == Op::kAdd || op == Op::kAppend ||
         op == Op::kMultiSet;
}

/// Calls `work`; if an allocation fails, only the connection that needed it is closed.
auto Guarded(auto work) -> decltype(work()) {
  try {
    return work();
  } catch (const std::bad_alloc&) {
    return Error{Code::kProtocol, "the server is out of memory"};
  }
}
}  // namespace

ClientConnection::ClientConnection(ServerLoop& server, ClientId id, StreamPtr stream)
    : server_(server),
      id_(id),
      stream_(std::move(stream)),
      opened_at_(server.loop_.Now()),
      pace_(opened_at_),
      added_by_all_(server.store_.AddedBy(stream_->use().from)),
      charge_(server.store_.account()) {}

ClientConnection::~ClientConnection() { Abandon(); }

void ClientConnection::Abandon() {
  if (!long_) return;
  bool more = true;
  while (more) {
    std::optional<MemoryAccount::Client> counts(std::in_place, server_.store_.account(), added_,
                                                added_by_all_.get());
    SharedStore::Turn turn(server_.store_, server_.index_);
    more = long_->Abandon(turn);
    counts.reset();
    server_.Deliver(turn.Finish());
  }
  long_.reset();
}

// --- Memory and time

void ClientConnection::Account() {
  size_t bytes = stream_->queued_bytes() + outgoing_.bytes();
  if (input_.capacity() > kKeptBufferBytes) bytes += input_.capacity();
  if (long_) bytes += long_->reply_bytes();
  charge_.Set(bytes);
}

bool ClientConnection::HasRoomFor(size_t bytes) const {
  MemoryAccount& account = server_.store_.account();
  const size_t own = charge_.bytes() + (long_ ? long_->bytes() : 0);
  const bool is_its_share = bytes <= kSmallReplyBytes || own + bytes <= account.limit() / kShare;
  return is_its_share && account.HasRoomFor(bytes);
}

bool ClientConnection::MakeRoomFor(size_t bytes) {
  return HasRoomFor(bytes) || (server_.store_.account().Reclaim() && HasRoomFor(bytes));
}

// Replies are written before it is known whether the client reads them.
bool ClientConnection::HoldsTooMuch() const {
  const MemoryAccount& account = server_.store_.account();
  const bool holds_much = charge_.bytes() > kUnhurriedRequestBytes && account.Room() == 0;
  // There may also be thousands of small ones.
  return holds_much || (charge_.bytes() > kKeptBufferBytes && account.IsNearlyUsedUp());
}

std::string ClientConnection::WhyHoldsTooMuch() {
  return NoRoom("what it has not finished sending or taken").message;
}

bool ClientConnection::HasDeadline() const {
  return !is_validated_ || long_ || !outgoing_.empty() || stream_->queued_bytes() > 0 ||
         !input_.empty();
}

std::string ClientConnection::FindOverdue(Instant now, Instant watched_since) {
  if (!is_validated_ && now - opened_at_ >= server_.options_.handshake_max) {
    return "no VALIDATE within the handshake time";
  }
  Account();
  return pace_.FindSlowness({.has_replies = stream_->queued_bytes() > 0 || !outgoing_.empty(),
                             .reply_bytes = stream_->queued_bytes() + outgoing_.unsent(),
                             .has_request = !is_blocked_ && (!input_.empty() || long_),
                             .held = input_.capacity() + (long_ ? long_->bytes() : 0),
                             .taken = stream_->taken_bytes(),
                             .received = received_,
                             .finished = finished_},
                            server_.options_.stall_max, server_.store_.account().IsScarce(), now,
                            watched_since);
}

// --- Bytes in

void ClientConnection::OnBytes(std::string_view bytes) {
  received_ += bytes.size();
  if (input_.empty()) return ConsumeAndKeep(bytes);
  const Status kept = Guarded([&]() -> Status {
    const size_t needed = input_.size() + bytes.size();
    // A string that grows doubles its capacity.
    if (needed > input_.capacity() && needed > kKeptBufferBytes && !MakeRoomFor(needed)) {
      return NoRoom("a request that is not complete");
    }
    input_ += bytes;
    return Ok();
  });
  if (!kept) return server_.Close(*this, LogLevel::kWarning, kept.error().message);
  ConsumeAndKeep(input_);
}

void ClientConnection::ConsumeAndKeep(std::string_view bytes) {
  const Status consumed = Guarded([&]() -> Status {
    server_.KeepTicking();
    MUSTER_TRY(const size_t done, Consume(bytes));
    KeepRest(bytes, done);
    return Ok();
  });
  // destroys this
  if (!consumed) return server_.Close(*this, LogLevel::kWarning, consumed.error().message);
  Account();
  if (HoldsTooMuch()) server_.Close(*this, LogLevel::kWarning, WhyHoldsTooMuch());
}

void ClientConnection::OnDrained() {
  Flush();
  Account();
  UnblockIfFree();
}

void ClientConnection::Block() {
  is_blocked_ = true;
  stream_->PauseReading();
}

void ClientConnection::UnblockIfFree() {
  if (!is_blocked_ || !outgoing_.empty() || (long_ && long_->runs())) return;
  if (stream_->queued_bytes() >= server_.options_.queued_reply_bytes_max) return;
  is_blocked_ = false;
  stream_->ResumeReading();
  ConsumeAndKeep(input_);
}

void ClientConnection::OnClosed(const std::string& why) {
  server_.Close(*this, LogLevel::kDebug, why);  // destroys this
}

void ClientConnection::KeepRest(std::string_view bytes, size_t done) {
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

Result<size_t> ClientConnection::Consume(std::string_view bytes) {
  size_t done = 0;
  if (!is_validated_) {
    MUSTER_TRY(done, Handshake(bytes));
    if (done == 0) return done;
  }
  while (done < bytes.size()) {
    const bool is_busy = continues_later_ || !outgoing_.empty();
    if (is_busy || stream_->queued_bytes() >= server_.options_.queued_reply_bytes_max) {
      Block();
      break;
    }
    if (long_) {
      MUSTER_TRY(const size_t read, ReadLong(bytes.substr(done)));
      done += read;
      if (!long_->runs()) break;  // the rest has not arrived yet
      continue;
    }
    if (static_cast<uint8_t>(bytes[done]) == wire::kSessionOpcode) {
      MUSTER_TRY(const size_t size, RunSession(bytes.substr(done)));
      if (size == 0) break;  // the rest has not arrived yet
      done += size;
      scanner_.Reset();
      continue;
    }
    MUSTER_CHECK_OK(FillBatch(bytes, done));
    if (!server_.workspace_.batch.empty()) {
      MUSTER_TRY(done, RunBatch(done));
    } else if (LongRequest::IsLong(bytes.substr(done), server_.limits_)) {
      BeginLong(static_cast<Op>(bytes[done]));
    } else {
      break;  // the rest has not arrived yet
    }
  }
  return done;
}

Result<size_t> ClientConnection::Handshake(std::string_view bytes) {
  constexpr size_t kSize = 1 + sizeof wire::kMagic;
  // The first byte decides: the server must not wait for the rest of an HTTP request as if it were
  // a long SET.
  if (bytes[0] != static_cast<char>(Op::kValidate)) {
    return Error{Code::kProtocol, Concat("starts with byte ", static_cast<uint8_t>(bytes[0]),
                                         ", not with VALIDATE")};
  }
  if (bytes.size() < kSize) return size_t{0};
  if (LoadInt<uint32_t>(bytes.data() + 1) != wire::kMagic) {
    return Error{Code::kProtocol, "VALIDATE with a wrong magic number"};
  }
  is_validated_ = true;
  return kSize;
}

// --- Requests of the store

Status ClientConnection::FillBatch(std::string_view bytes, size_t at) {
  const wire::RequestLimits& limits = server_.limits_;
  Workspace& work = server_.workspace_;
  work.batch.clear();
  work.has_large_value = false;
  work.decoder.Clear();
  while (work.batch.size() < kBatchMax && at < bytes.size()) {
    const std::string_view rest = bytes.substr(at);
    if (LongRequest::IsLong(rest, limits)) break;
    Request& request = work.batch.emplace_back().request;
    size_t size = 0;
    if (scanner_.known_bytes() == 0) size = work.decoder.DecodeWhole(rest, limits, request);
    if (size == 0) {
      const Result<size_t> scanned = scanner_.Scan(rest, limits);
      if (!scanned || *scanned == 0) work.batch.pop_back();
      if (!scanned && work.batch.empty()) return scanned.error();
      if (!scanned || *scanned == 0) break;
      size = *scanned;
      scanner_.Reset();
      request = work.decoder.Decode(rest.substr(0, size));
    }
    at += size;
    work.batch.back().end = at;
    work.has_large_value |= request.value.size() > kSmallValueBytes;
  }
  return Ok();
}

void ClientConnection::MakePieces() {
  Workspace& work = server_.workspace_;
  work.given.clear();
  for (auto& [request, end] : work.batch) {
    if (request.value.size() <= kSmallValueBytes) continue;
    work.given.reserve(kBatchMax);  // the requests point into it
    // Without room, the machine refuses the request when it executes it.
    if (!MakeRoomFor(request.value.size())) return;
    request.piece = &work.given.emplace_back(MakePiece(request.value, server_.store_.account()));
  }
}

bool ClientConnection::WritesOwnedDocument(const Request& request) const {
  const auto is_owned = [this](std::string_view key) {
    return server_.sessions_.OwnsDocument(key);
  };
  if (request.op == Op::kMultiSet) return std::ranges::any_of(request.keys, is_owned);
  return is_owned(request.key);
}

Result<size_t> ClientConnection::RunBatch(size_t at) {
  Workspace& work = server_.workspace_;
  const Instant now = server_.loop_.Now();
  const Reply stop_waiting = Reply::Of(Reply::Kind::kStopWaiting);
  work.replies.clear();
  work.reply_pieces.clear();
  size_t done = at;
  size_t piece_bytes = 0;
  Reply::Why refused = Reply::Why::kNothing;
  bool is_long = false;
  bool mixes_backends = false;
  Op op = Op::kPing;
  std::optional<MemoryAccount::Client> counts(std::in_place, server_.store_.account(), added_,
                                              added_by_all_.get());
  if (work.has_large_value) MakePieces();

  SharedStore::Turn turn(server_.store_, server_.index_);
  if (turn.TakeArrived(id_)) wire::AppendReply(work.replies, stop_waiting, work.reply_pieces);
  for (const auto& [request, end] : work.batch) {
    op = request.op;
    // Under the store's lock: a node registers its session first and looks for the document
    // afterwards, so one of two nodes that come at the same time sees the other.
    mixes_backends = WritesValues(op) && WritesOwnedDocument(request);
    if (mixes_backends) break;
    is_long = turn.IsLong(request);
    if (is_long && op == Op::kListKeys) done = end;
    if (is_long) break;
    bool wait_ended = false;
    const Reply reply = turn.Step(id_, request, now, &wait_ended);
    refused = reply.why;
    if (reply.kind == Reply::Kind::kRefused) break;
    const size_t pieces_before = work.reply_pieces.size();
    wire::AppendReply(work.replies, reply, work.reply_pieces);
    for (size_t i = pieces_before; i < work.reply_pieces.size(); ++i) {
      piece_bytes += work.reply_pieces[i].piece->bytes().size();
    }
    if (wait_ended) wire::AppendReply(work.replies, stop_waiting, work.reply_pieces);
    done = end;
    if (work.replies.size() + piece_bytes >= server_.options_.queued_reply_bytes_max) break;
    if (turn.ShouldEnd()) break;
  }
  const bool is_enough = turn.ShouldEnd();
  const Released local = turn.Finish();
  if (is_enough) ContinueLater();  // its other requests come after the turns of other connections

  work.given.clear();
  counts.reset();
  if (done > at) ++finished_;
  // The scanner had read further than the last executed request.
  if (done != work.batch.back().end) scanner_.Reset();
  Send(work.replies, work.reply_pieces);
  Account();
  server_.Deliver(local);
  if (mixes_backends) return Error{Code::kProtocol, DocumentRefusal(Name(op))};
  if (refused != Reply::Why::kNothing) {
    return Error{Code::kProtocol, Concat(Name(op), ": ", Describe(refused))};
  }
  if (is_long) {
    BeginLong(op);
    // The keys of a MULTI_GET must be read first.
    if (op == Op::kListKeys) RunLongLater();
  }
  return done;
}

// --- Long requests

void ClientConnection::BeginLong(Op op) {
  scanner_.Reset();
  long_ = std::make_unique<LongRequest>(op, id_, server_.store_, server_.limits_,
                                        [this](size_t bytes) { return HasRoomFor(bytes); });
}

Result<size_t> ClientConnection::ReadLong(std::string_view bytes) {
  const MemoryAccount::Client counts(server_.store_.account(), added_, added_by_all_.get());
  auto& pairs = server_.workspace_.pairs;
  MUSTER_TRY(const size_t read, long_->Read(bytes, pairs));
  const auto is_owned = [this](const auto& pair) {
    return server_.sessions_.OwnsDocument(pair.first);
  };
  if (long_->op() == Op::kMultiSet && std::ranges::any_of(pairs, is_owned))
    return Error{Code::kProtocol, DocumentRefusal(Name(Op::kMultiSet))};
  if (long_->is_complete()) RunLongLater();
  return read;
}

void ClientConnection::RunLongLater() {
  long_->Run();
  Block();
  ContinueLater();
}

void ClientConnection::ContinueLater() {
  if (continues_later_) return;
  continues_later_ = true;
  server_.ContinueLater(id_);
}

Result<bool> ClientConnection::AdvanceLong() {
  bool wait_ended = false;
  std::optional<MemoryAccount::Client> counts(std::in_place, server_.store_.account(), added_,
                                              added_by_all_.get());
  SharedStore::Turn turn(server_.store_, server_.index_);
  const bool arrived = turn.TakeArrived(id_);
  const bool done = long_->Advance(turn, server_.loop_.Now(), &wait_ended);
  const Released local = turn.Finish();
  counts.reset();
  if (arrived || wait_ended) SendStopWaiting();
  long_->KeepReplies();
  Account();
  server_.Deliver(local);
  if (!done) return false;
  MUSTER_CHECK_OK(long_->TakeReply(outgoing_));
  counts.emplace(server_.store_.account(), added_, added_by_all_.get());
  long_.reset();
  counts.reset();
  ++finished_;
  Flush();
  return true;
}

void ClientConnection::Continue() {
  continues_later_ = false;
  Flush();
  if (long_ && long_->runs()) {
    const Result<bool> done = Guarded([&] { return AdvanceLong(); });
    if (!done) return server_.Close(*this, LogLevel::kWarning, done.error().message);
    if (!*done) return ContinueLater();
  }
  Account();
  UnblockIfFree();
}

// --- Bytes out

bool ClientConnection::HasTooMuchQueued() const {
  return stream_->queued_bytes() + outgoing_.bytes() > server_.options_.queued_reply_bytes_max;
}

void ClientConnection::SendStopWaiting() {
  std::string reply;
  wire::AppendReply(reply, Reply::Of(Reply::Kind::kStopWaiting), server_.workspace_.reply_pieces);
  Send(reply);
}

void ClientConnection::Send(std::string_view text) {
  if (outgoing_.empty()) return stream_->Write(text);
  outgoing_.Append(std::string(text));
}

void ClientConnection::Send(std::string& text, std::vector<wire::PieceAt>& pieces) {
  if (!pieces.empty() || !outgoing_.empty()) {
    outgoing_.Append(text, pieces);
    Flush();
  } else if (text.size() > kLargeReplyBytes) {
    stream_->WriteLarge(text);
  } else if (!text.empty()) {
    stream_->Write(text);
  }
  // Kept unless it is too large: a new one for each large reply would fragment the memory.
  if (text.capacity() > kKeptReplyBytes) std::string().swap(text);
}

void ClientConnection::Flush() {
  if (outgoing_.empty()) return;
  const bool takes_more = outgoing_.SendTo(*stream_);
  // The stream reports when it has room again; if it never was full, other connections have their
  // turn first.
  if (takes_more && !outgoing_.empty()) ContinueLater();
}

}  // namespace muster
