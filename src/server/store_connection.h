// One client's connection to the store server: handshake, requests, replies, and what it may cost
// us.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/memory_account.h"
#include "os/ports/transport.h"
#include "rendezvous/wire/session_codec.h"
#include "server/store_service.h"
#include "store/core/client_id.h"
#include "store/core/long_step.h"
#include "store/wire/reply_writer.h"
#include "store/wire/request_reader.h"

namespace muster {

class StoreConnection final : public StreamHandler {
 public:
  StoreConnection(StoreService& service, ClientId id, StreamPtr stream);
  ~StoreConnection() override;

  ClientId id() const { return id_; }
  std::string peer() const { return stream_->peer(); }

  StreamUse use() const { return stream_->use(); }

  /// Whether a node has introduced itself here.
  bool has_session() const { return has_session_; }

  void Start() { stream_->Start(*this); }
  void Tell(const Push& push);
  /// Whether it does not read what it is told.
  bool HasTooMuchWaiting() const;
  /// The client's WAIT or BARRIER is over.
  void StopWaiting();
  /// Whether the connection has used up its time, and why; "" if not.
  std::string Overdue(Instant now, const StoreServiceOptions& options);
  /// Goes on with a long request, or with what is to be sent. May destroy this.
  void Continue();
  /// Takes back what a long request has prepared; before the connection ends.
  void Abandon();

  void OnBytes(std::string_view bytes) override;
  void OnDrained() override;
  void OnClosed(const std::string& why) override;

 private:
  using Workspace = StoreService::Workspace;

  /// What is to be sent when the stream has room: a text, or a piece of a value.
  struct Segment {
    std::string text;
    Piece piece;
    size_t sent = 0;
    /// Without the piece, which pays for itself; with its place in a list.
    size_t bytes() const { return AllocatedBytes(sizeof(Segment) + 16) + HeapBytes(text); }
    std::string_view rest() const {
      return (piece != nullptr ? piece->bytes() : std::string_view(text)).substr(sent);
    }
  };
  /// A request that is taken apart while it comes, and executed in short steps.
  struct LongRequest {
    LongRequest(Op op, ClientId client, StoreHub& hub, const wire::RequestLimits& limits)
        : reader(limits), step(op, client, hub.hasher(), hub.account()) {}
    wire::ListReader reader;
    LongStep step;
    bool runs = false;  // it is all there
    std::list<Segment> reply;
    int64_t values = 0;
    uint64_t value_bytes = 0;
    size_t reply_bytes = 0;  // that the segments own
  };
  /// How a peer gets on with what it owes: bytes at the beginning of a span of time.
  struct Pace {
    Instant since;
    uint64_t bytes = 0;
  };

  /// Executes the complete requests in `bytes`. Returns how many bytes are done with, or why the
  /// connection must end. Stops early while too many replies are queued.
  Result<size_t> Consume(std::string_view bytes);
  /// Consumes `bytes` and keeps the rest. May destroy this.
  void ConsumeAndKeep(std::string_view bytes);
  /// Scans and decodes requests from `at` on, a batch at most. An unacceptable one ends the batch
  /// with an error only if it comes first: what was asked before it is executed before.
  Status FillBatch(std::string_view bytes, size_t at);
  /// Makes what large values are stored as, before anybody has to wait for that.
  void MakePieces();
  /// Runs the batch on the machine and sends the replies. Returns the offset behind the last
  /// executed request.
  Result<size_t> RunBatch();
  /// Whether `bytes` begin a request that is better taken apart while it comes.
  bool IsLong(std::string_view bytes) const;
  /// Takes apart what has come of the long request. Returns how many bytes are done with.
  Result<size_t> ReadLong(std::string_view bytes);
  void BeginLong(Op op);
  void RunLongLater();
  /// Has Continue() called after others had their turn. Nothing more is executed until then.
  void ContinueLater();
  /// One short step; true: it is done.
  Result<bool> AdvanceLong();
  bool TakeValue(const ValueView& value, std::string& text, std::vector<wire::PieceAt>& pieces);
  Status FinishLong();
  /// Executes the session message that `bytes` begin with. Returns its size, 0 while it is not all
  /// there.
  Result<size_t> RunSession(std::string_view bytes);
  void Introduce(Hello& hello);
  /// What the server has against the node before the coordinator is asked.
  std::optional<Push> WhyNot(const wire::SessionRequest& open);
  /// Judges the first bytes. Returns the size of VALIDATE once it is there, 0 while it is not.
  Result<size_t> Handshake(std::string_view bytes);
  /// Whether a node of backend c10d wants to write the document of a run of backend muster.
  bool MixesBackends(const Request& request) const;
  void KeepRest(std::string_view bytes, size_t done);

  /// Cuts a text with pieces in it into segments. Returns what they own.
  static size_t AppendSegments(std::string& text, std::vector<wire::PieceAt>& pieces,
                               std::list<Segment>& to);
  /// Sends a text after what was sent before.
  void Say(std::string_view text);
  /// The same with pieces in it. Both are empty afterwards.
  void Send(std::string& text, std::vector<wire::PieceAt>& pieces);
  /// Hands to the stream what it has room for.
  void Flush();
  void Block();
  /// Goes on reading, if nothing is in the way any more. May destroy this.
  void UnblockIfFree();
  /// Counts what the connection holds now.
  void Account();
  /// Whether so many more bytes fit into the connection's share of the memory, and into all of it.
  bool HasRoomFor(size_t bytes) const;

  StoreService& service_;
  const ClientId id_;
  StreamPtr stream_;
  wire::RequestScanner scanner_;
  std::string input_;  // the beginning of a request whose rest has not come, or that waits for room
  std::unique_ptr<LongRequest> long_;
  std::list<Segment> outgoing_;
  size_t outgoing_bytes_ = 0;  // that the segments own
  bool validated_ = false;
  bool has_session_ = false;
  bool blocked_ = false;  // too many replies queued, or a long request runs: not reading
  bool asked_to_continue_ = false;
  Instant opened_at_;
  uint64_t received_ = 0;
  Pace taking_;   // of its replies
  Pace sending_;  // of its request
  Charge charge_;
};

}  // namespace muster
