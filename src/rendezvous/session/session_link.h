// A node's end of its session with the coordinator, over successive connections.
//
// It connects, opens the session and sends keep-alives. After a break it tries to resume the
// session, first immediately, then with growing pauses. Requests without an answer are sent again
// with the next connection: the server executes each of them at most once, because they are
// idempotent. Lives on its loop's thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/endpoint.h"
#include "base/time.h"
#include "os/ports/loop.h"
#include "os/ports/transport.h"
#include "rendezvous/session/rendezvous_link.h"
#include "rendezvous/wire/session_codec.h"
#include "store/client/backoff.h"

namespace muster {

struct SessionLinkOptions {
  Endpoint server;
  Hello hello;                ///< `resume` and `round` are set by the link.
  Duration attempt_max = 5s;  ///< For one attempt to connect and get an answer.
  uint64_t seed = 0;          ///< For the pauses.
  /// Called when no connection was accepted and none ever has been: this process may become the
  /// server. What it returns is added to the trouble.
  std::function<std::string()> on_nobody_there{};
  /// The server is on this machine: what has the port and is none will not become one.
  bool is_here = false;
};

class SessionLink final : public RendezvousLink, private StreamHandler {
 public:
  SessionLink(Loop& loop, Connector& connector, SessionLinkOptions options,
              RendezvousLinkListener& listener);
  ~SessionLink() override;
  SessionLink(const SessionLink&) = delete;
  SessionLink& operator=(const SessionLink&) = delete;

  void Start() override;
  void Join(Duration timeout) override;
  void Leave() override;
  /// A late answer is lost with this connection.
  void Abandon() override;
  void Close(std::string reason) override;
  void RequestReport(uint32_t names_max) override;

  bool is_open() const { return step_ == Step::kOpen; }
  /// Includes the first greeting.
  uint64_t bytes() const override { return bytes_; }
  uint64_t messages() const override { return messages_; }

 private:
  enum class Step { kIdle, kConnecting, kGreeting, kOpening, kOpen, kResting, kStopped };

  // --- The connection
  void Connect();
  void OnConnected(Result<StreamPtr> stream);
  void Drop(const std::string& why);  ///< Drops the connection; then tries again.
  /// What answers there is no server, or does not answer at all.
  void OnForeign(const std::string& why);
  void Disconnect();
  void Stop();

  void OnBytes(std::string_view bytes) override;
  void OnDrained() override {}
  void OnClosed(const std::string& why) override;

  // --- Messages
  void Write(const std::string& message);
  void Introduce();
  void Send(wire::SessionRequest request);
  void SendJoin();
  /// Executes the complete messages in `bytes`; returns their size.
  Result<size_t> Consume(std::string_view bytes);
  void OnMessage(const Push& push);
  void OnOpened(const Push& push);
  void OnRefused(const Push& push);
  void OnMessage(wire::StatusPart part);

  Loop& loop_;
  Connector& connector_;
  SessionLinkOptions options_;
  RendezvousLinkListener& listener_;
  Step step_ = Step::kIdle;
  std::unique_ptr<Connector::Attempt> attempt_;
  StreamPtr stream_;
  std::string input_;               // the beginning of an incomplete message
  std::unique_ptr<Timer> timer_;    // the end of the step, or (kOpen) keep-alives
  std::optional<Backoff> backoff_;  // since the last connection that lasted
  Instant opened_at_{};
  bool greet_first_ = true;  // the server may have no coordinator
  bool plain_ = false;       // the server has no coordinator
  bool reached_ = false;     // a connection was accepted once
  bool answered_ = false;    // ... and the server answered
  int unanswered_ = 0;       // attempts in a row without an answer
  uint64_t token_ = 0;       // of the last session; 0: none yet
  uint32_t incarnation_ = 0;
  int64_t round_ = -1;       // the last round that the node was in
  Generation generation_{};  // of that round
  struct JoinRequest {
    Duration timeout;
    Instant until;
  };
  bool leave_ = false;                // requested, without an answer
  std::optional<JoinRequest> join_;   // without an answer
  std::optional<std::string> close_;  // the reason of a close without an answer
  // since when requests are refused because another node has this node's name
  std::optional<Instant> refused_since_;
  std::optional<RunReport> report_;  // of which parts have arrived
  uint64_t bytes_ = 0;
  uint64_t messages_ = 0;
};

}  // namespace muster
