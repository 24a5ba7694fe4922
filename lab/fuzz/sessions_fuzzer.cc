// Session frames. What is read from a frame does not depend on how its bytes are cut. What is read
// as a message encodes to exactly the bytes that it was read from. Whatever one side sends, with
// texts of any bytes and any length, the other side can read.
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/utf8.h"
#include "fuzz/check.h"
#include "fuzz/input.h"
#include "rendezvous/wire/session_codec.h"

namespace muster::fuzz {
namespace {

using wire::SessionRequest;
using wire::StatusPart;

constexpr size_t kHeadBytes = 5;

void CheckRefusal(const Error& error) {
  FUZZ_CHECK(error.code == Code::kProtocol);
  CheckMessage(error.message);
}

/// The size of the first frame; nothing, if there is none or it is not complete.
size_t CheckedSize(std::string_view stream) {
  const Result<size_t> all = wire::SessionFrameSize(stream);
  if (!all) CheckRefusal(all.error());
  for (size_t come = 0; come <= std::min(stream.size(), kHeadBytes + 1); ++come) {
    const ExactCopy part(stream.substr(0, come));
    const Result<size_t> size = wire::SessionFrameSize(part.view());
    if (size && *size == 0) {
      FUZZ_CHECK(come < kHeadBytes);
    } else {
      FUZZ_CHECK(size.has_value() == all.has_value() && (!size || *size == *all));
    }
  }
  if (!all || *all > stream.size()) return 0;
  FUZZ_CHECK(*all == 0 || *all >= kHeadBytes);
  FUZZ_CHECK(*all <= kHeadBytes + wire::kSessionFrameBytesMax);
  return *all;
}

std::string Frame(const auto& message) {
  std::string out;
  wire::AppendSessionFrame(out, message);
  return out;
}

/// The frame of one status part, of the several that AppendStatus() makes.
std::string Frame(const StatusPart& part) {
  RunReport run = part.run;
  if (part.kind == StatusPart::Kind::kMember) run.members = {part.member};
  std::string out;
  wire::AppendStatus(out, {run}, part.more);
  const size_t head = *wire::SessionFrameSize(out);
  if (part.kind == StatusPart::Kind::kRun) return out.substr(0, head);
  const size_t second = *wire::SessionFrameSize(std::string_view(out).substr(head));
  return out.substr(head, second);
}

void CheckFrame(std::string_view bytes) {
  const ExactCopy frame(bytes);
  const auto request = wire::ReadSessionRequest(frame.view());
  if (!request) CheckRefusal(request.error());
  // Unknown fields of an Open of another version are not kept.
  const bool is_ours = request && request->version == kSessionVersion && request->IsUnderstood();
  if (is_ours) FUZZ_CHECK(Frame(*request) == frame.view());
  const auto reply = wire::ReadSessionReply(frame.view());
  if (!reply) return CheckRefusal(reply.error());
  const std::string again = std::visit([](const auto& said) { return Frame(said); }, *reply);
  FUZZ_CHECK(again == frame.view());
}

void CheckStream(std::string_view stream) {
  while (const size_t size = CheckedSize(stream)) {
    CheckFrame(stream.substr(0, size));
    stream.remove_prefix(size);
  }
}

// --- Everything that is sent can be read

/// Any bytes, sometimes more than fit: the limit may be within a character.
std::string AnyText(Input& input) {
  constexpr uint8_t kSeldom = 250;
  const uint8_t filled = input.Byte();
  std::string text = filled > kSeldom ? std::string(4096 - (filled - kSeldom), 'x') : std::string();
  return text += input.Text();
}

/// Text arrives as far as it fits, and with readable replacements where it is not valid.
void CheckArrived(std::string_view said, std::string_view heard) {
  constexpr size_t kTextBytesMax = 4096, kCharacterBytesMax = 4;
  const std::string readable = ReplaceInvalidUtf8(said);
  FUZZ_CHECK(readable.starts_with(heard), Printable(heard));
  FUZZ_CHECK(heard == readable || heard.size() > kTextBytesMax - kCharacterBytesMax, heard.size());
}

Duration AnyTime(Input& input) {
  constexpr int64_t kCentury = int64_t{100} * 365 * 24 * 3600 * 1000;
  return std::chrono::milliseconds(input.Number<uint64_t>() % (kCentury + 1));
}

RunSettings AnySettings(Input& input) {
  return {.min_nodes = input.Number<int64_t>(),
          .max_nodes = input.Number<int64_t>(),
          .last_call = AnyTime(input),
          .keep_alive_interval = AnyTime(input),
          .keep_alive_max_attempt = input.Number<int64_t>(),
          .grace = AnyTime(input),
          .policy = static_cast<RankPolicy>(input.Byte() % 4)};
}

void CheckRequest(Input& input) {
  const SessionRequest said{
      .kind = static_cast<SessionRequest::Kind>(input.Byte() % 6),
      .token = input.Number<uint64_t>(),
      .incarnation = input.Number<uint32_t>(),
      .round = input.Number<uint32_t>() - int64_t{1},
      .hello = {.run_id = AnyText(input),
                .node = {AnyText(input), input.Number<int64_t>(), input.Number<int64_t>()},
                .settings = AnySettings(input),
                .label = AnyText(input),
                .bootstrap_port = input.Number<uint16_t>()},
      .join_timeout = AnyTime(input),
      .reason = AnyText(input),
      .run_id = AnyText(input),
      .names_max = input.Number<uint32_t>()};
  const std::string frame = Frame(said);
  CheckStream(frame);
  const auto heard = wire::ReadSessionRequest(frame);
  FUZZ_CHECK(heard.has_value(), heard ? "" : heard.error().message);
  FUZZ_CHECK(heard->kind == said.kind && heard->token == said.token);
  if (said.kind == SessionRequest::Kind::kClose) CheckArrived(said.reason, heard->reason);
  if (said.kind == SessionRequest::Kind::kOpen) {
    CheckArrived(said.hello.run_id, heard->hello.run_id);
    CheckArrived(said.hello.node.addr, heard->hello.node.addr);
    CheckArrived(said.hello.label, heard->hello.label);
    FUZZ_CHECK(said.hello.settings == heard->hello.settings);
  }
}

void CheckPush(Input& input) {
  const Push said{.kind = static_cast<Push::Kind>(input.Byte() % 12),
                  .refusal = static_cast<Push::Refusal>(input.Byte() % 6),
                  .incarnation = input.Number<uint32_t>(),
                  .round = input.Number<int64_t>(),
                  .rank = input.Number<int64_t>(),
                  .world_size = input.Number<int64_t>(),
                  .count = input.Number<int64_t>(),
                  .token = input.Number<uint64_t>(),
                  .resumed = input.Flag(),
                  .graceful = input.Flag(),
                  .addr = AnyText(input),
                  .port = input.Number<uint16_t>(),
                  .who = AnyText(input),
                  .why = AnyText(input)};
  const std::string frame = Frame(said);
  CheckStream(frame);
  const auto reply = wire::ReadSessionReply(frame);
  FUZZ_CHECK(reply.has_value(), reply ? "" : reply.error().message);
  const Push& heard = std::get<Push>(*reply);
  FUZZ_CHECK(heard.kind == said.kind && heard.round == said.round);
  if (said.kind == Push::Kind::kComplete) CheckArrived(said.addr, heard.addr);
  if (said.kind == Push::Kind::kLost) CheckArrived(said.who, heard.who);
  if (said.kind == Push::Kind::kLost) CheckArrived(said.why, heard.why);
}

void CheckStatus(Input& input) {
  RunReport run{.id = AnyText(input),
                .phase = static_cast<RunReport::Phase>(input.Byte() % 5),
                .round = input.Number<int64_t>(),
                .settings = AnySettings(input),
                .world_size = input.Number<int64_t>(),
                .participants = input.Number<int64_t>(),
                .waiting = input.Number<int64_t>(),
                .spares = input.Number<int64_t>(),
                .idle = input.Number<int64_t>(),
                .closed_by = AnyText(input)};
  if (input.Flag()) run.last_call_left = AnyTime(input);
  const MemberReport member{
      .node = {AnyText(input), input.Number<int64_t>(), input.Number<int64_t>()},
      .role = static_cast<MemberReport::Role>(input.Byte() % 4),
      .rank = input.Number<int64_t>(),
      .silent_for = AnyTime(input),
      .connected = input.Flag(),
      .late = input.Flag(),
      .label = AnyText(input)};
  run.members.assign(input.Byte() % 3, member);
  std::string status;
  wire::AppendStatus(status, {run}, false);
  std::string_view rest = status;
  size_t parts = 0;
  for (; const size_t size = CheckedSize(rest); ++parts) {
    CheckFrame(rest.substr(0, size));
    FUZZ_CHECK(wire::ReadSessionReply(rest.substr(0, size)).has_value());
    rest.remove_prefix(size);
  }
  FUZZ_CHECK(rest.empty());
  FUZZ_CHECK(parts == 2 + run.members.size());
}

}  // namespace
}  // namespace muster::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  muster::fuzz::Input input(data, size);
  switch (input.Byte()) {
    case 0:
      muster::fuzz::CheckRequest(input);
      return 0;
    case 1:
      muster::fuzz::CheckPush(input);
      return 0;
    case 2:
      muster::fuzz::CheckStatus(input);
      return 0;
    default:
      muster::fuzz::CheckStream(input.Rest());
      return 0;
  }
}
