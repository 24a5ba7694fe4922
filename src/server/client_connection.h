// One client's connection: handshake, requests of the store and of sessions, replies, and the
// bounds on what the client may cost the server.
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
#include "store/core/client_id.h"
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
  /// Whether the client does not read what is sent to it.
  bool HasTooMuchQueued() const;
  /// Answers the client's WAIT or BARRIER.
  void SendStopWaiting();
  /// Whether the client must do something within a time: send VALIDATE, send the rest of a large
  /// request, or take its replies.
  bool HasDeadline() const;
  /// Why the client has missed such a deadline; "" if it has not. To be called again and again
  /// while there is one; `watched_since` is when that began.
  std::string FindOverdue(Instant now, Instant watched_since);
  /// Continues a long request, or sends what waits. May destroy this.
  void Continue();
  /// Takes back what a long request has prepared; before the connection ends.
  void Abandon();

  void OnBytes(std::string_view bytes) override;
  void OnDrained() override;
  void OnClosed(const std::string& why) override;

 private:
  using Workspace = ServerLoop::Workspace;

  /// Executes the complete requests in `bytes`. Returns how many bytes are done with, or why the
  /// connection must end. Stops early while too many replies are queued.
  Result<size_t> Consume(std::string_view bytes);
  /// Consumes `bytes` and keeps the rest. May destroy this.
  void ConsumeAndKeep(std::string_view bytes);
  void KeepRest(std::string_view bytes, size_t done);
  /// Judges the first bytes. Returns the size of VALIDATE once it is there, 0 while it is not.
  Result<size_t> Handshake(std::string_view bytes);

  /// Scans and decodes a batch of requests from `at` on. An unacceptable one is an error only if it
  /// comes first: the requests before it are executed.
  Status FillBatch(std::string_view bytes, size_t at);
  /// Allocates and copies large values before the store's lock is taken.
  void MakePieces();
  /// Whether the request would write the document of a run that has sessions.
  bool WritesOwnedDocument(const Request& request) const;
  /// Executes the batch, which begins at this offset, and sends the replies. Returns the offset
  /// behind the last executed request.
  Result<size_t> RunBatch(size_t at);

  void BeginLong(Op op);
  /// Takes over what has come of the long request. Returns how many bytes are done with.
  Result<size_t> ReadLong(std::string_view bytes);
  void RunLongLater();
  /// One short step; true: the request is done, and its reply is on its way.
  Result<bool> AdvanceLong();

  /// Executes the session message that `bytes` begin with. Returns its size, 0 while it is not all
  /// there.
  Result<size_t> RunSession(std::string_view bytes);
  Status OpenSession(wire::SessionRequest& request);
  bool HasDocumentInUse(const std::string& document) const;
  Status SendStatus(const wire::SessionRequest& request);

  /// Sends a text after what was sent before.
  void Send(std::string_view text);
  /// The same with pieces in it. Both are empty afterwards.
  void Send(std::string& text, std::vector<wire::PieceAt>& pieces);
  /// Hands to the stream what it has room for.
  void Flush();
  /// Has Continue() called after other connections had their turn. Nothing is executed until then.
  void ContinueLater();
  void Block();
  /// Resumes reading, if nothing is in the way any more. May destroy this.
  void UnblockIfFree();
  /// Counts what the connection holds now.
  void Account();
  /// Whether so many more bytes fit into the connection's share of the memory, and into all of it.
  bool HasRoomFor(size_t bytes) const;
  /// The same; has the allocator return memory first where that helps. Not in a turn.
  bool MakeRoomFor(size_t bytes);

  ServerLoop& server_;
  const ClientId id_;
  StreamPtr stream_;
  wire::RequestScanner scanner_;
  std::string input_;  // the beginning of a request whose rest has not come, or that waits for room
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
  int64_t added_ = 0;                           // by its requests to what is stored, in bytes
  const SharedStore::AddedBytes added_by_all_;  // of its address
  Charge charge_;
};

}  // namespace muster
