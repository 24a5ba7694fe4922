#include "rendezvous/wire/session_codec.h"

#include <chrono>
#include <limits>
#include <optional>
#include <type_traits>

#include "base/assert.h"
#include "base/bytes.h"
#include "base/text.h"
#include "base/utf8.h"
#include "store/core/request.h"
#include "store/wire/layout.h"

namespace muster::wire {

namespace {

using std::chrono::milliseconds;

constexpr size_t kHeadBytes = 1 + sizeof(uint32_t);
constexpr size_t kTextBytesMax = 4096;
constexpr uint8_t kVersionOfForming = 3;
constexpr int64_t kRoundMax = int64_t{1} << 60;

// The same walk over a message writes and reads its fields, so that the two cannot disagree.
class Writer {
 public:
  explicit Writer(std::string& out) : out_(out) {}

  template <typename T>
  requires(std::is_integral_v<T> || std::is_enum_v<T>) void operator()(T& value) {
    if constexpr (std::is_enum_v<T>) {
      AppendInt(out_, static_cast<std::underlying_type_t<T>>(value));
    } else if constexpr (std::is_same_v<T, bool>) {
      AppendInt<uint8_t>(out_, value ? 1 : 0);
    } else {
      AppendInt(out_, value);
    }
  }
  // Always valid UTF-8: the reader closes the connection otherwise.
  void operator()(std::string& text) {
    if (!IsUtf8(text)) text = ReplaceInvalidUtf8(text);
    std::string_view kept = std::string_view(text).substr(0, kTextBytesMax);
    const auto is_cut = [&] { return (text[kept.size()] & 0xc0) == 0x80; };  // within a character
    while (kept.size() < text.size() && is_cut()) kept.remove_suffix(1);
    AppendInt<uint16_t>(out_, static_cast<uint16_t>(kept.size()));
    out_ += kept;
  }
  void operator()(Duration& time) {
    AppendInt<int64_t>(out_, std::chrono::duration_cast<milliseconds>(time).count());
  }

 private:
  std::string& out_;
};

class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}

  template <typename T>
  requires(std::is_integral_v<T> || std::is_enum_v<T>) void operator()(T& value) {
    if constexpr (std::is_enum_v<T>) {
      value = static_cast<T>(Int<std::underlying_type_t<T>>());
    } else if constexpr (std::is_same_v<T, bool>) {
      const auto flag = Int<uint8_t>();
      if (flag > 1) Complain("a flag is neither 0 nor 1");
      value = flag == 1;
    } else {
      value = Int<T>();
    }
  }
  void operator()(std::string& text) {
    const auto size = Int<uint16_t>();
    if (size > kTextBytesMax)
      return Complain(Concat("a text of ", size, " bytes, limit ", kTextBytesMax));
    if (size > bytes_.size()) return Complain("it ends within a text");
    text = bytes_.substr(0, size);
    bytes_.remove_prefix(size);
    if (!IsUtf8(text)) Complain("a text is not UTF-8");
  }
  void operator()(Duration& time) {
    // A century is enough, and far from where sums overflow.
    constexpr int64_t kMost = int64_t{100} * 365 * 24 * 3600 * 1000;
    const auto count = Int<int64_t>();
    if (count < 0 || count > kMost) return Complain(Concat("a time of ", count, " ms"));
    time = milliseconds(count);
  }

  void Complain(std::string what) {
    if (wrong_.empty()) wrong_ = std::move(what);
  }
  void IgnoreRest() { bytes_ = {}; }
  Status Finish() {
    if (wrong_.empty() && !bytes_.empty()) Complain(Concat(bytes_.size(), " bytes too many"));
    if (wrong_.empty()) return Ok();
    return Error{Code::kProtocol, Concat("a session message that cannot be read: ", wrong_)};
  }

 private:
  template <typename T>
  T Int() {
    if (bytes_.size() < sizeof(T)) {
      Complain("it ends within a number");
      bytes_ = {};
      return 0;
    }
    const T value = LoadInt<T>(bytes_.data());
    bytes_.remove_prefix(sizeof(T));
    return value;
  }

  std::string_view bytes_;
  std::string wrong_;
};

template <typename Walk>
void Fields(Walk& walk, RunSettings& settings) {
  walk(settings.min_nodes);
  walk(settings.max_nodes);
  walk(settings.last_call);
  walk(settings.keep_alive_interval);
  walk(settings.keep_alive_max_attempt);
  walk(settings.grace);
  walk(settings.policy);
}

// At the end of an open message, since version 3.
template <typename Walk>
void Fields(Walk& walk, Forming& forming) {
  walk(forming.reform_timeout);
  walk(forming.rejoin_window);
  walk(forming.expected);
}

template <typename Walk>
void Fields(Walk& walk, Hello& hello) {
  walk(hello.run_id);
  walk(hello.node.addr);
  walk(hello.node.pid);
  walk(hello.node.local_id);
  Fields(walk, hello.settings);
  walk(hello.label);
  walk(hello.bootstrap_port);
}

template <typename Walk>
void FieldsSince3(Walk& walk, SessionRequest& request) {
  std::optional<Forming>& forming = request.hello.settings.forming;
  if (request.version < kVersionOfForming) return forming.reset();
  if (!forming) forming.emplace();
  Fields(walk, *forming);
}

/// False: there is no such kind.
template <typename Walk>
bool Fields(Walk& walk, SessionRequest& request) {
  using Kind = SessionRequest::Kind;
  walk(request.kind);
  walk(request.token);
  walk(request.incarnation);
  walk(request.round);
  switch (request.kind) {
    case Kind::kOpen:
      walk(request.version);
      if (request.version < kSessionVersionOldest) return true;
      walk(request.version_oldest);
      if (!request.IsUnderstood()) return true;
      Fields(walk, request.hello);
      FieldsSince3(walk, request);
      return true;
    case Kind::kJoin:
      walk(request.join_timeout);
      return true;
    case Kind::kClose:
      walk(request.reason);
      return true;
    case Kind::kStatus:
      walk(request.run_id);
      walk(request.after);
      walk(request.names_max);
      return true;
    case Kind::kLeave:
    case Kind::kKeepAlive:
      return true;
  }
  return false;
}

template <typename Walk>
bool Fields(Walk& walk, Push& push) {
  using Kind = Push::Kind;
  walk(push.kind);
  walk(push.token);
  walk(push.incarnation);
  walk(push.round);
  switch (push.kind) {
    case Kind::kOpened:
      walk(push.version);
      walk(push.resumed);
      walk(push.addr);
      return true;
    case Kind::kRefused:
      walk(push.refusal);
      walk(push.why);
      return true;
    case Kind::kAdmitted:
    case Kind::kWaiting:
    case Kind::kSpare:
    case Kind::kNodesWaiting:
      walk(push.count);
      return true;
    case Kind::kComplete:
      walk(push.rank);
      walk(push.world_size);
      walk(push.count);
      walk(push.addr);
      walk(push.port);
      walk(push.generation.server);
      walk(push.generation.run);
      return true;
    case Kind::kLost:
      walk(push.count);
      walk(push.who);
      walk(push.why);
      return true;
    case Kind::kClosed:
      walk(push.graceful);
      walk(push.who);
      return true;
    case Kind::kTimedOut:
      walk(push.count);
      walk(push.why);
      return true;
    case Kind::kEnded:
      walk(push.why);
      return true;
    case Kind::kLeft:
      return true;
  }
  return false;
}

template <typename Walk>
void Fields(Walk& walk, MemberReport& member) {
  walk(member.node.addr);
  walk(member.node.pid);
  walk(member.node.local_id);
  walk(member.role);
  walk(member.rank);
  walk(member.silent_for);
  walk(member.connected);
  walk(member.late);
  walk(member.label);
}

template <typename Walk>
void Fields(Walk& walk, RunReport& run) {
  walk(run.id);
  walk(run.phase);
  walk(run.round);
  walk(run.generation.server);
  walk(run.generation.run);
  Fields(walk, run.settings);
  walk(run.world_size);
  walk(run.participants);
  walk(run.waiting);
  walk(run.spares);
  walk(run.idle);
  // A complete round has no last call, but may hold nodes back.
  auto& left = run.phase == RunReport::Phase::kComplete ? run.held_left : run.last_call_left;
  bool has_left = left.has_value();
  walk(has_left);
  if (has_left) walk(left ? *left : left.emplace());
  walk(run.closed_by);
}

template <typename Walk>
bool Fields(Walk& walk, StatusPart& part) {
  walk(part.kind);
  switch (part.kind) {
    case StatusPart::Kind::kRun:
      Fields(walk, part.run);
      return true;
    case StatusPart::Kind::kMember:
      Fields(walk, part.member);
      return true;
    case StatusPart::Kind::kDone:
      walk(part.more);
      return true;
  }
  return false;
}

template <typename WriteBody>
void AppendFrame(std::string& out, WriteBody write_body) {
  AppendInt(out, kSessionOpcode);
  const size_t size_at = out.size();
  AppendInt<uint32_t>(out, 0);
  write_body();
  const auto size = static_cast<uint32_t>(out.size() - size_at - sizeof(uint32_t));
  MUSTER_ASSERT(size <= kSessionFrameBytesMax);
  std::string bytes;
  AppendInt(bytes, size);
  out.replace(size_at, bytes.size(), bytes);
}

Error NoSuchKind(uint8_t kind) {
  return {Code::kProtocol, Concat("a session message of kind ", kind, ", which there is not")};
}

}  // namespace

std::string SessionGreeting(bool ask) {
  std::string bytes;
  AppendInt(bytes, static_cast<uint8_t>(Op::kValidate));
  AppendInt(bytes, kMagic);
  if (!ask) return bytes;
  AppendInt(bytes, static_cast<uint8_t>(Op::kCheck));
  AppendInt<uint64_t>(bytes, 1);
  AppendInt<uint64_t>(bytes, kSessionKey.size());
  bytes += kSessionKey;
  return bytes;
}

void AppendSessionFrame(std::string& out, const SessionRequest& request) {
  AppendFrame(out, [&] {
    SessionRequest copy = request;
    Writer writer(out);
    Fields(writer, copy);
  });
}

void AppendSessionFrame(std::string& out, const Push& push) {
  AppendFrame(out, [&] {
    Push copy = push;
    Writer writer(out);
    Fields(writer, copy);
  });
}

void AppendStatus(std::string& out, const std::vector<RunReport>& runs, bool more) {
  const auto append = [&out](StatusPart part) {
    AppendFrame(out, [&] {
      Writer writer(out);
      Fields(writer, part);
    });
  };
  for (const RunReport& run : runs) {
    StatusPart head{.kind = StatusPart::Kind::kRun, .run = run};
    head.run.members.clear();
    append(std::move(head));
    for (const MemberReport& member : run.members)
      append({.kind = StatusPart::Kind::kMember, .member = member});
  }
  append({.kind = StatusPart::Kind::kDone, .more = more});
}

Result<size_t> SessionFrameSize(std::string_view bytes) {
  if (bytes.empty()) return size_t{0};
  const auto opcode = static_cast<uint8_t>(bytes.front());
  if (opcode != kSessionOpcode) {
    return Error{Code::kProtocol, Concat("byte ", opcode, " where a session message should begin")};
  }
  if (bytes.size() < kHeadBytes) return size_t{0};
  const auto size = LoadInt<uint32_t>(bytes.data() + 1);
  if (size > kSessionFrameBytesMax) {
    return Error{Code::kProtocol,
                 Concat("a session message of ", size, " bytes, limit ", kSessionFrameBytesMax)};
  }
  return kHeadBytes + size;
}

Result<SessionRequest> ReadSessionRequest(std::string_view frame) {
  MUSTER_ASSERT(frame.size() >= kHeadBytes);
  Reader reader(frame.substr(kHeadBytes));
  SessionRequest request;
  if (!Fields(reader, request)) return NoSuchKind(static_cast<uint8_t>(request.kind));
  // A later version adds fields to the end of what this one knows.
  const bool is_later = request.version > kSessionVersion || !request.IsUnderstood();
  if (request.kind == SessionRequest::Kind::kOpen && is_later) reader.IgnoreRest();
  MUSTER_CHECK_OK(reader.Finish());
  if (request.IsUnderstood() && Name(request.hello.settings.policy).empty()) {
    return Error{Code::kProtocol, Concat("a rank policy numbered ",
                                         static_cast<uint8_t>(request.hello.settings.policy))};
  }
  // Rounds count up from 0, or from what a node may claim: no correct node gets near this.
  if (request.round < -1 || request.round > kRoundMax) {
    return Error{Code::kProtocol, Concat("a round numbered ", request.round)};
  }
  if (request.kind == SessionRequest::Kind::kOpen) {
    request.hello.resume = request.token;
    request.hello.round = request.round;
    request.hello.version = request.version;
  }
  return request;
}

Result<std::variant<Push, StatusPart>> ReadSessionReply(std::string_view frame) {
  MUSTER_ASSERT(frame.size() >= kHeadBytes);
  Reader reader(frame.substr(kHeadBytes));
  const uint8_t kind = frame.size() > kHeadBytes ? static_cast<uint8_t>(frame[kHeadBytes]) : 0;
  std::variant<Push, StatusPart> reply;
  bool known = false;
  if (kind >= static_cast<uint8_t>(StatusPart::Kind::kRun)) {
    known = Fields(reader, reply.emplace<StatusPart>());
  } else {
    known = Fields(reader, std::get<Push>(reply));
  }
  if (!known) return NoSuchKind(kind);
  MUSTER_CHECK_OK(reader.Finish());
  return reply;
}

}  // namespace muster::wire
