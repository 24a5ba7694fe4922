// One client's connection: handshake, requests of the store and of sessions, replies, and the
// bounds on the memory and time that the client may use.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/memory_account.h"
#include "os/ports/transport.h"
#include "rendezvous/wire/session_codec.h"
#include "server/client_pace.h"
#include "server/long_request.h"
#include "server/reply_segments.h"
#include "server/server_loop.h"
#include "store/wire/request_reader.h"

namespace muster {

class ClientConnection final : public StreamHandler {
 public:
  ClientConnection(ServerLoop& server, ClientId id, StreamPtr stream);
  ~ClientConnection() override;

  ClientId id() const { return id_; }
  std::string peer() const { return stream_->peer(); }
  StreamUse use() const { return stream_->use(); }

  /// Whether a node has opened a session here.
  bool has_session() const { return has_session_; }

  void Start() { stream_->Start(*this); }
  void SendPush(const Push& push);
  /// Whether the client does not read its replies.
  bool HasTooMuchQueued() const;
  /// Whether it must be closed, because it holds memory that is used up.
  bool HoldsTooMuch() const;
  static std::string WhyHoldsTooMuch();
  /// Answers the client's WAIT or BARRIER.
  void SendStopWaiting();
  /// Whether the client must do something within some time: send VALIDATE, send the rest of a large
  /// request, or read its replies.
  bool HasDeadline() const;
  /// Why the client has missed such a deadline; "" if it has not. To be called repeatedly while
  /// there is one; `watched_since` is when these calls began.
  std::string FindOverdue(Instant now, Instant watched_since);
  /// Continues a long request, or sends queued replies. May destroy this.
  void Continue();
  /// Undoes what a long request has prepared; to be called before the connection ends.
  void Abandon();

  void OnBytes(std::string_view bytes) override;
  void OnDrained() override;
  void OnClosed(const std::string& why) override;

 private:
  using Workspace = ServerLoop::Workspace;

  /// Executes the complete requests in `bytes`. Returns how many bytes are consumed, or why the
  /// connection must end. Stops early while too many replies are queued.
  Result<size_t> Consume(std::string_view bytes);
  /// Consumes `bytes` and keeps the rest. May destroy this.
  void ConsumeAndKeep(std::string_view bytes);
  void KeepRest(std::string_view bytes, size_t done);
  /// Checks the first bytes. Returns the size of VALIDATE once it is complete, 0 before.
  Result<size_t> Handshake(std::string_view bytes);

  /// Scans and decodes a batch of requests from `at` on. An unacceptable request is an error only
  /// if it is the first: the requests before it are executed.
  Status FillBatch(std::string_view bytes, size_t at);
  /// Allocates and copies large values before the store's lock is taken.
  void MakePieces();
  /// Whether the request, which writes values, would write the document of a run that has sessions.
  bool WritesOwnedDocument(const Request& request) const;
  /// Executes the batch, which begins at this offset, and sends the replies. Returns the offset
  /// behind the last executed request.
  Result<size_t> RunBatch(size_t at);

  void BeginLong(Op op);
  /// Reads the part of the long request that has arrived. Returns how many bytes are consumed.
  Result<size_t> ReadLong(std::string_view bytes);
  void RunLongLater();
  /// Executes one short step; true: the request is done, and its reply is being sent.
  Result<bool> AdvanceLong();

  /// Executes the session message that `bytes` begin with. Returns its size, 0 while it is
  /// incomplete.
  Result<size_t> RunSession(std::string_view bytes);
  Status OpenSession(wire::SessionRequest& request);
  bool HasDocumentInUse(const std::string& document) const;
  Status SendStatus(const wire::SessionRequest& request);

  /// Sends a text after earlier replies.
  void Send(std::string_view text);
  /// The same with pieces in it. Both are empty afterwards.
  void Send(std::string& text, std::vector<wire::PieceAt>& pieces);
  /// Passes to the stream as much as it has room for.
  void Flush();
  /// Schedules Continue() for after the turns of other connections. Nothing is executed until then.
  void ContinueLater();
  void Block();
  /// Resumes reading if nothing prevents it any more. May destroy this.
  void UnblockIfFree();
  /// Counts the memory that the connection holds now.
  void Account();
  /// Whether `bytes` more fit into the connection's share of the memory, and into all of it.
  bool HasRoomFor(size_t bytes) const;
  /// The same; makes the allocator return memory first if that helps. Not in a turn.
  bool MakeRoomFor(size_t bytes);

  ServerLoop& server_;
  const ClientId id_;
  StreamPtr stream_;
  wire::RequestScanner scanner_;
  // the beginning of a request whose rest has not arrived, or that waits for room
  std::string input_;
  std::unique_ptr<LongRequest> long_;
  ReplySegments outgoing_;
  bool is_validated_ = false;
  bool has_session_ = false;
  bool is_blocked_ = false;  // too many replies queued, or a long request runs: not reading
  bool continues_later_ = false;
  Instant opened_at_;
  uint64_t received_ = 0;
  uint64_t finished_ = 0;  // counts steps in which requests were executed
  ClientPace pace_;
  int64_t added_ = 0;                           // bytes that its requests have added to the store
  const SharedStore::AddedBytes added_by_all_;  // those of its address
  Charge charge_;
};

}  // namespace muster
