#include "rendezvous/wire/session_codec.h"

#include <chrono>
#include <concepts>
#include <optional>
#include <type_traits>
#include <utility>

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

// The same walk over a message writes and reads its fields, so that the two cannot disagree. Calls
// of a walk return true, for the functions below that return whether there is such a message.
template <typename Way>
class Fields {
 public:
  template <typename... T>
  bool operator()(T&... fields) {
    (One(fields), ...);
    return true;
  }

 private:
  template <typename T>
  void One(T& value) {
    Way& way = static_cast<Way&>(*this);
    if constexpr (std::is_enum_v<T>) {
      auto number = static_cast<std::underlying_type_t<T>>(value);
      way.Field(number);
      value = static_cast<T>(number);
    } else if constexpr (requires { way.Field(value); }) {
      way.Field(value);
    } else {
      Walk(way, value);
    }
  }
};

class Writer : public Fields<Writer> {
 public:
  explicit Writer(std::string& out) : out_(out) {}

  template <std::integral Int>
  void Field(Int& number) {
    AppendInt(out_, number);
  }
  void Field(bool& flag) { AppendInt<uint8_t>(out_, flag ? 1 : 0); }
  // The text must be valid UTF-8: otherwise the reader closes the connection.
  void Field(std::string& text) {
    if (!IsUtf8(text)) text = ReplaceInvalidUtf8(text);
    std::string_view kept = std::string_view(text).substr(0, kTextBytesMax);
    const auto is_cut = [&] { return (text[kept.size()] & 0xc0) == 0x80; };  // within a character
    while (kept.size() < text.size() && is_cut()) kept.remove_suffix(1);
    AppendInt<uint16_t>(out_, static_cast<uint16_t>(kept.size()));
    out_ += kept;
  }
  void Field(Duration& time) { AppendInt<int64_t>(out_, Milliseconds(time)); }

 private:
  std::string& out_;
};

class Reader : public Fields<Reader> {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}

  void IgnoreRest() { bytes_ = {}; }
  Status Finish() {
    if (wrong_.empty() && !bytes_.empty()) Complain(Concat(bytes_.size(), " bytes too many"));
    if (wrong_.empty()) return Ok();
    return Error{Code::kProtocol, Concat("a session message that cannot be read: ", wrong_)};
  }

  template <std::integral T>
  void Field(T& number) {
    number = Int<T>();
  }
  void Field(bool& flag) {
    const auto byte = Int<uint8_t>();
    if (byte > 1) Complain("a flag is neither 0 nor 1");
    flag = byte == 1;
  }
  void Field(std::string& text) {
    const auto size = Int<uint16_t>();
    if (size > kTextBytesMax)
      return Complain(Concat("a text of ", size, " bytes, limit ", kTextBytesMax));
    if (size > bytes_.size()) return Complain("it ends within a text");
    text = bytes_.substr(0, size);
    bytes_.remove_prefix(size);
    if (!IsUtf8(text)) Complain("a text is not UTF-8");
  }
  void Field(Duration& time) {
    // A century is enough, and far below the values whose sums overflow.
    constexpr int64_t kMost = int64_t{100} * 365 * 24 * 3600 * 1000;
    const auto count = Int<int64_t>();
    if (count < 0 || count > kMost) return Complain(Concat("a time of ", count, " ms"));
    time = milliseconds(count);
  }

 private:
  void Complain(std::string what) {
    if (wrong_.empty()) wrong_ = std::move(what);
  }

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

void Walk(auto& fields, Node& node) { fields(node.addr, node.pid, node.local_id); }

void Walk(auto& fields, Generation& generation) { fields(generation.server, generation.run); }

void Walk(auto& fields, RunSettings& settings) {
  fields(settings.min_nodes, settings.max_nodes, settings.last_call, settings.keep_alive_interval,
         settings.keep_alive_max_attempt, settings.grace, settings.policy);
}

// At the end of an open message, since version 3.
void Walk(auto& fields, Forming& forming) {
  fields(forming.reform_timeout, forming.rejoin_window, forming.expected);
}

void Walk(auto& fields, Hello& hello) {
  fields(hello.run_id, hello.node, hello.settings, hello.label, hello.bootstrap_port);
}

void Walk(auto& fields, MemberReport& member) {
  fields(member.node, member.role, member.rank, member.silent_for, member.connected, member.late,
         member.label);
}

void Walk(auto& fields, RunReport& run) {
  fields(run.id, run.phase, run.round, run.generation, run.settings, run.world_size,
         run.participants, run.waiting, run.spares, run.idle);
  // A complete round has no last call, but may hold nodes back.
  auto& left = run.phase == RunReport::Phase::kComplete ? run.held_left : run.last_call_left;
  bool has_left = left.has_value();
  fields(has_left);
  if (has_left) fields(left ? *left : left.emplace());
  fields(run.closed_by);
}

/// False, here and below: there is no such kind.
bool Walk(auto& fields, SessionRequest& request) {
  using Kind = SessionRequest::Kind;
  std::optional<Forming>& forming = request.hello.settings.forming;
  fields(request.kind, request.token, request.incarnation, request.round);
  switch (request.kind) {
    case Kind::kOpen:
      fields(request.version);
      if (request.version < kSessionVersionOldest) return true;
      fields(request.version_oldest);
      if (!request.IsUnderstood()) return true;
      fields(request.hello);
      if (request.version < kVersionOfForming) return forming.reset(), true;
      return fields(forming ? *forming : forming.emplace());
    case Kind::kJoin:
      return fields(request.join_timeout);
    case Kind::kClose:
      return fields(request.reason);
    case Kind::kStatus:
      return fields(request.run_id, request.after, request.names_max);
    case Kind::kLeave:
    case Kind::kKeepAlive:
      return true;
  }
  return false;
}

bool Walk(auto& fields, Push& push) {
  using Kind = Push::Kind;
  fields(push.kind, push.token, push.incarnation, push.round);
  switch (push.kind) {
    case Kind::kOpened:
      return fields(push.version, push.resumed, push.addr);
    case Kind::kRefused:
      return fields(push.refusal, push.why);
    case Kind::kAdmitted:
    case Kind::kWaiting:
    case Kind::kSpare:
    case Kind::kNodesWaiting:
      return fields(push.count);
    case Kind::kComplete:
      return fields(push.rank, push.world_size, push.count, push.addr, push.port, push.generation);
    case Kind::kLost:
      return fields(push.count, push.who, push.why);
    case Kind::kClosed:
      return fields(push.graceful, push.who);
    case Kind::kTimedOut:
      return fields(push.count, push.why);
    case Kind::kEnded:
      return fields(push.why);
    case Kind::kLeft:
      return true;
  }
  return false;
}

bool Walk(auto& fields, StatusPart& part) {
  fields(part.kind);
  switch (part.kind) {
    case StatusPart::Kind::kRun:
      return fields(part.run);
    case StatusPart::Kind::kMember:
      return fields(part.member);
    case StatusPart::Kind::kDone:
      return fields(part.more);
  }
  return false;
}

void AppendFrame(std::string& out, auto message) {
  AppendInt(out, kSessionOpcode);
  const size_t size_at = out.size();
  AppendInt<uint32_t>(out, 0);
  Writer writer(out);
  Walk(writer, message);
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
  AppendFrame(out, request);
}

void AppendSessionFrame(std::string& out, const Push& push) { AppendFrame(out, push); }

void AppendStatus(std::string& out, std::vector<RunReport> runs, bool more) {
  for (RunReport& run : runs) {
    std::vector<MemberReport> members = std::exchange(run.members, {});
    AppendFrame(out, StatusPart{.kind = StatusPart::Kind::kRun, .run = std::move(run)});
    for (MemberReport& member : members) {
      AppendFrame(out, StatusPart{.kind = StatusPart::Kind::kMember, .member = std::move(member)});
    }
  }
  AppendFrame(out, StatusPart{.kind = StatusPart::Kind::kDone, .more = more});
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
  if (!Walk(reader, request)) return NoSuchKind(static_cast<uint8_t>(request.kind));
  // A later version adds fields after those that this version knows.
  const bool is_later = request.version > kSessionVersion || !request.IsUnderstood();
  if (request.kind == SessionRequest::Kind::kOpen && is_later) reader.IgnoreRest();
  MUSTER_CHECK_OK(reader.Finish());
  if (request.IsUnderstood() && Name(request.hello.settings.policy).empty()) {
    return Error{Code::kProtocol, Concat("a rank policy numbered ",
                                         static_cast<uint8_t>(request.hello.settings.policy))};
  }
  // Rounds count up from 0, or from what a node may claim: no correct node reaches this.
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
    known = Walk(reader, reply.emplace<StatusPart>());
  } else {
    known = Walk(reader, std::get<Push>(reply));
  }
  if (!known) return NoSuchKind(kind);
  MUSTER_CHECK_OK(reader.Finish());
  return reply;
}

}  // namespace muster::wire
