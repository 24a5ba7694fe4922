// A node's end of its session: one connection after the other to the coordinator, kept as long as
// the node wants it.
//
// It connects, introduces the node, keeps it alive, and after a break takes the session up again at
// once, then with growing pauses. What the node wants (to join, to close) is said again to a server
// that may not have heard it. Lives on its loop's thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/endpoint.h"
#include "base/time.h"
#include "core/rendezvous/coordinator.h"
#include "ports/loop.h"
#include "ports/transport.h"
#include "runtime/backoff.h"
#include "wire/session_codec.h"

namespace muster {

struct SessionLinkOptions {
  Endpoint server;
  Hello hello;                ///< `resume` and `round` are the link's own business.
  Duration attempt_max = 5s;  ///< For one try to be connected and answered.
  uint64_t seed = 0;          ///< Of the pauses.
};

/// Who is told, on the loop's thread. May not destroy the link from inside.
class SessionLinkOwner {
 public:
  virtual ~SessionLinkOwner() = default;

  /// Of kOpened: unless `resumed`, whatever the node was in before is over.
  virtual void OnPush(const Push& push) = 0;
  /// The answer to AskHowItStands(). nullopt: the server does not know the run.
  virtual void OnReport(std::optional<RunReport> report) = 0;
  /// The server is out of reach for now; the link goes on trying.
  virtual void OnTrouble(const std::string& why) = 0;
  /// The server has no coordinator: it is PyTorch's. The link has stopped.
  virtual void OnPlainServer() = 0;
};

class SessionLink final : private StreamHandler {
 public:
  SessionLink(Loop& loop, Connector& connector, SessionLinkOptions options,
              SessionLinkOwner& owner);
  ~SessionLink() override;
  SessionLink(const SessionLink&) = delete;
  SessionLink& operator=(const SessionLink&) = delete;

  void Start();

  /// Wants the next round; answered by kComplete, kClosed or kTimedOut. Tries anew where it was
  /// refused before: another node that had our name may be gone, or those who were told otherwise.
  void Join(Duration timeout);
  /// Gives up its place, or its wait. Answered by kLeft or kRefused; said again with the next
  /// connection where there is none now, or this one breaks.
  void Leave();
  /// Gives the join under way up: it was not answered in time. What is said of it later must not be
  /// taken for the answer to another one, and goes with this connection.
  void Abandon();
  /// Answered by kClosed.
  void Close(std::string reason);
  void AskHowItStands(uint32_t names_max);

  bool is_open() const { return step_ == Step::kOpen; }
  /// Of messages both ways since the start, the first greeting included.
  uint64_t bytes() const { return bytes_; }
  uint64_t messages() const { return messages_; }

 private:
  enum class Step { kIdle, kConnecting, kAsking, kOpening, kOpen, kResting, kStopped };

  // --- The connection
  void Connect();
  void OnConnected(Result<StreamPtr> stream);
  void GiveUp(const std::string& why);  ///< This connection, and tries again.
  void Disconnect();
  void Stop();

  void OnBytes(std::string_view bytes) override;
  void OnDrained() override {}
  void OnClosed(const std::string& why) override;

  // --- Messages
  void Greet();
  void Introduce();
  void Say(wire::SessionRequest request);
  void SayJoin();
  /// Executes what is whole in `bytes`; returns how many are done with.
  Result<size_t> Consume(std::string_view bytes);
  void Heed(const Push& push);
  void Opened(const Push& push);
  void Refused(const Push& push);
  void Heed(wire::StatusPart part);

  Loop& loop_;
  Connector& connector_;
  SessionLinkOptions options_;
  SessionLinkOwner& owner_;
  Step step_ = Step::kIdle;
  std::unique_ptr<Connector::Attempt> attempt_;
  StreamPtr stream_;
  std::string input_;               // the beginning of a message whose rest has not come
  std::unique_ptr<Timer> timer_;    // of the step: its end, or (kOpen) keep-alives
  std::optional<Backoff> backoff_;  // since the last time that all was well for a while
  Instant opened_at_{};
  bool ask_first_ = true;  // the server may be a plain one
  bool plain_ = false;     // it is one
  uint64_t token_ = 0;     // 0: nothing to be taken up again
  uint32_t incarnation_ = 0;
  int64_t round_ = -1;  // the last one that the node was in
  struct Wish {
    Duration timeout;
    Instant until;
  };
  bool leave_ = false;                    // until it is answered
  std::optional<Wish> join_;              // until it is answered
  std::optional<std::string> close_;      // its reason, until it is answered
  std::optional<Instant> refused_since_;  // another node seems to have our name
  std::optional<RunReport> report_;       // whose parts are coming
  uint64_t bytes_ = 0;
  uint64_t messages_ = 0;
};

}  // namespace muster
