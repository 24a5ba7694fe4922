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
#include "os/ports/loop.h"
#include "os/ports/transport.h"
#include "rendezvous/core/coordinator.h"
#include "rendezvous/session/rendezvous_link.h"
#include "rendezvous/wire/session_codec.h"
#include "store/client/backoff.h"

namespace muster {

struct SessionLinkOptions {
  Endpoint server;
  Hello hello;                ///< `resume` and `round` are the link's own business.
  Duration attempt_max = 5s;  ///< For one try to be connected and answered.
  uint64_t seed = 0;          ///< Of the pauses.
};

class SessionLink final : public RendezvousLink, private StreamHandler {
 public:
  SessionLink(Loop& loop, Connector& connector, SessionLinkOptions options,
              RendezvousLinkOwner& owner);
  ~SessionLink() override;
  SessionLink(const SessionLink&) = delete;
  SessionLink& operator=(const SessionLink&) = delete;

  void Start() override;
  void Join(Duration timeout) override;
  void Leave() override;
  /// What is said of it later goes with this connection.
  void Abandon() override;
  void Close(std::string reason) override;
  void AskHowItStands(uint32_t names_max) override;

  bool is_open() const { return step_ == Step::kOpen; }
  /// The first greeting included.
  uint64_t bytes() const override { return bytes_; }
  uint64_t messages() const override { return messages_; }

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
  RendezvousLinkOwner& owner_;
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
  int64_t round_ = -1;       // the last one that the node was in,
  Generation generation_{};  // and of which run
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
