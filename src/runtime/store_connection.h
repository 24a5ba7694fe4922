// One client's connection to the store server: handshake, requests, replies, and what it may cost
// us.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "core/store/client_id.h"
#include "ports/transport.h"
#include "runtime/store_service.h"
#include "wire/request_reader.h"
#include "wire/session_codec.h"

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

  void OnBytes(std::string_view bytes) override;
  void OnDrained() override;
  void OnClosed(const std::string& why) override;

 private:
  /// Executes the complete requests in `bytes`. Returns how many bytes are done with, or why the
  /// connection must end. Stops early while too many replies are queued.
  Result<size_t> Consume(std::string_view bytes);
  /// Scans and decodes requests from `at` on, a batch at most. An unacceptable one ends the batch
  /// with an error only if it comes first: what was asked before it is executed before.
  Status FillBatch(std::string_view bytes, size_t at);
  /// Runs the batch on the machine and sends the replies. Returns the offset behind the last
  /// executed request.
  Result<size_t> RunBatch();
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
  /// Tells the hub how many bytes of replies wait here now.
  void Account();

  StoreService& service_;
  const ClientId id_;
  StreamPtr stream_;
  wire::RequestScanner scanner_;
  std::string input_;  // the beginning of a request whose rest has not come, or that waits for room
  bool validated_ = false;
  bool has_session_ = false;
  bool blocked_ = false;  // too many replies queued: not reading
  Instant opened_at_;
  Instant progress_at_;  // when the peer was last seen to have taken some of its replies
  uint64_t taken_before_ = 0;
  size_t accounted_ = 0;  // bytes that the hub believes to be queued here
};

}  // namespace muster
