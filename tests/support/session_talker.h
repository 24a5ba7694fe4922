// A node made of bytes: a RawClient that sends session messages and receives what the server
// pushes.
//
// By default it sends the token, incarnation and round that it has received. Failures throw, as
// those of RawSocket do.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/bytes.h"
#include "base/text.h"
#include "rendezvous/wire/session_codec.h"
#include "support/raw_client.h"

namespace muster::test {

using SessionReply = std::variant<Push, wire::StatusPart>;

inline std::string FrameOf(const wire::SessionRequest& request) {
  std::string out;
  wire::AppendSessionFrame(out, request);
  return out;
}

/// A frame around any bytes, which may be invalid.
inline std::string Framed(std::string_view body) {
  std::string out;
  AppendInt(out, wire::kSessionOpcode);
  AppendInt(out, static_cast<uint32_t>(body.size()));
  return out += body;
}

inline SessionReply ReplyOf(std::string_view frame) {
  auto reply = wire::ReadSessionReply(frame);
  if (!reply) throw std::runtime_error("session: " + reply.error().message);
  return std::move(*reply);
}

/// Settings under which no node is lost because the machine is busy.
inline RunSettings Patient(int64_t min_nodes, int64_t max_nodes) {
  return {.min_nodes = min_nodes, .max_nodes = max_nodes, .keep_alive_interval = 20s, .grace = 20s};
}

inline Hello HelloOf(std::string addr, const RunSettings& settings, std::string run_id = "run") {
  return {.run_id = std::move(run_id),
          .node = {std::move(addr), 4711, 0},
          .settings = settings,
          .bootstrap_port = 29500};
}

class SessionTalker : public RawClient {
 public:
  using Said = wire::SessionRequest::Kind;

  /// Connected and validated, without a session.
  explicit SessionTalker(uint16_t port, Family family = Family::kIpv4) : RawClient(port, family) {
    Send(ValidateBytes());
  }
  /// With a session of `hello`.
  SessionTalker(uint16_t port, const Hello& hello) : SessionTalker(port) { Open(hello); }

  uint64_t token = 0;
  uint32_t incarnation = 0;
  int64_t round = -1;

  /// A message of this node, to be sent unchanged or with changes.
  wire::SessionRequest Message(Said kind) const {
    return {.kind = kind, .token = token, .incarnation = incarnation, .round = round};
  }
  void Say(const wire::SessionRequest& request) { Send(FrameOf(request)); }

  /// Sends an Open and does not wait for the answer.
  void Introduce(const Hello& hello, uint64_t resume = 0) {
    Say({.kind = Said::kOpen, .token = resume, .round = hello.round, .hello = hello});
  }
  Push Open(const Hello& hello, uint64_t resume = 0) {
    Introduce(hello, resume);
    return Hear(Push::Kind::kOpened);
  }
  void Join(Duration timeout = 600s) {
    wire::SessionRequest join = Message(Said::kJoin);
    join.join_timeout = timeout;
    Say(join);
  }
  void Leave() { Say(Message(Said::kLeave)); }
  void KeepAlive() { Say(Message(Said::kKeepAlive)); }
  void CloseRun(std::string reason) {
    wire::SessionRequest close = Message(Said::kClose);
    close.reason = std::move(reason);
    Say(close);
  }
  void AskStatus(std::string run_id, uint32_t names_max) {
    Say({.kind = Said::kStatus, .run_id = std::move(run_id), .names_max = names_max});
  }

  /// One frame of the server's, as it came.
  std::string ReceiveFrame() {
    std::string frame = Receive(5);
    const auto size = wire::SessionFrameSize(frame);
    if (!size) throw std::runtime_error("session: " + size.error().message);
    return frame += Receive(*size - frame.size());
  }
  /// The server's next frame, which must be a push.
  Push Hear() { return Believe(ReplyOf(ReceiveFrame())); }
  /// ... and one of this kind.
  Push Hear(Push::Kind kind) {
    Push push = Hear();
    if (push.kind != kind) {
      throw std::runtime_error(Concat("session: received a push of kind ", int{uint8_t(push.kind)},
                                      " instead of ", int{uint8_t(kind)}, ": ", push.why));
    }
    return push;
  }
  /// Everything that was decided about this node so far, also by other loops. A message of the
  /// session reaches those, and a PING shows that this loop has answered.
  std::vector<Push> HeardSoFar() {
    KeepAlive();
    const std::string said = SaidSoFar();
    std::vector<Push> pushes;
    for (std::string_view rest = said; !rest.empty();) {
      const auto size = wire::SessionFrameSize(rest);
      if (!size || *size == 0 || *size > rest.size())
        throw std::runtime_error("session: no frame, " + ToHex(rest));
      pushes.push_back(Believe(ReplyOf(rest.substr(0, *size))));
      rest.remove_prefix(*size);
    }
    return pushes;
  }

  /// The status of runs.
  std::vector<RunReport> Status(std::string run_id = "", uint32_t names_max = 1'000) {
    AskStatus(std::move(run_id), names_max);
    return HearStatus();
  }
  std::vector<RunReport> HearStatus() {
    std::vector<RunReport> runs;
    while (true) {
      auto part = std::get<wire::StatusPart>(ReplyOf(ReceiveFrame()));
      if (part.kind == wire::StatusPart::Kind::kDone) return runs;
      if (part.kind == wire::StatusPart::Kind::kRun) {
        runs.push_back(std::move(part.run));
      } else {
        runs.at(runs.size() - 1).members.push_back(std::move(part.member));
      }
    }
  }

 private:
  Push Believe(SessionReply reply) {
    Push push = std::get<Push>(std::move(reply));
    if (push.kind == Push::Kind::kOpened) {
      token = push.token;
      incarnation = push.incarnation;
    }
    if (push.kind == Push::Kind::kComplete) round = push.round;
    return push;
  }
};

}  // namespace muster::test
