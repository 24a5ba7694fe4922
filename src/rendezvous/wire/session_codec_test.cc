#include "rendezvous/wire/session_codec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <string>

#include "base/bytes.h"
#include "support/bytes.h"

namespace muster::wire {
namespace {

using ::testing::HasSubstr;
using Said = SessionRequest::Kind;

std::string Frame(const SessionRequest& request) {
  std::string out;
  AppendSessionFrame(out, request);
  return out;
}
std::string Frame(const Push& push) {
  std::string out;
  AppendSessionFrame(out, push);
  return out;
}
std::string Framed(std::string_view body) {
  std::string out;
  AppendInt(out, kSessionOpcode);
  AppendInt(out, static_cast<uint32_t>(body.size()));
  return out += body;
}

Push ReadPush(const std::string& frame) { return std::get<Push>(*ReadSessionReply(frame)); }

SessionRequest AnOpen() {
  return {.kind = Said::kOpen,
          .token = 7,
          .hello = {.run_id = "run",
                    .node = {"10.0.0.7", 4711, 1},
                    .settings = {.min_nodes = 2, .max_nodes = 4, .policy = RankPolicy::kLabel},
                    .label = "rack7",
                    .bootstrap_port = 29500,
                    .resume = 7}};
}

TEST(SessionCodecTest, BytesOfAKeepAlive) {
  EXPECT_EQ(test::ToHex(Frame(SessionRequest{.kind = Said::kKeepAlive, .token = 0x0102})),
            "a0 15 00 00 00 04 02 01 00 00 00 00 00 00 00 00 00 00 ff ff ff ff ff ff ff ff");
}

// The examples of docs/reference/protocol.md.
TEST(SessionCodecTest, BytesOfANodesFirstRound) {
  constexpr uint64_t kToken = 0x1122334455667788;
  EXPECT_EQ(SessionGreeting(true),
            test::Hex("00 ce f7 85 3c 05 01 00 00 00 00 00 00 00 10 00 00 00 00 00 00 00 "
                      "6d 75 73 74 65 72 2f 73 65 73 73 69 6f 6e 2f 31"));
  EXPECT_EQ(
      Frame(SessionRequest{.kind = Said::kOpen,
                           .hello = {.run_id = "run",
                                     .node = {"", 4711, 0},
                                     .settings = {.min_nodes = 2, .max_nodes = 4},
                                     .bootstrap_port = 29500}}),
      test::Hex("a0 7b 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 ff ff ff ff ff ff ff ff "
                "03 02 03 00 72 75 6e 00 00 67 12 00 00 00 00 00 00 00 00 00 00 00 00 00 00 "
                "02 00 00 00 00 00 00 00 04 00 00 00 00 00 00 00 30 75 00 00 00 00 00 00 "
                "e8 03 00 00 00 00 00 00 03 00 00 00 00 00 00 00 2c 01 00 00 00 00 00 00 "
                "00 00 00 3c 73 f4 01 00 00 00 00 00 00 10 27 00 00 00 00 00 00 "
                "00 00 00 00 00 00 00 00"));
  EXPECT_EQ(
      Frame(
          Push{.kind = Push::Kind::kOpened, .incarnation = 1, .token = kToken, .addr = "10.0.0.7"}),
      test::Hex("a0 21 00 00 00 00 88 77 66 55 44 33 22 11 01 00 00 00 00 00 00 00 00 00 00 00 "
                "03 00 08 00 31 30 2e 30 2e 30 2e 37"));
  EXPECT_EQ(
      Frame(SessionRequest{
          .kind = Said::kJoin, .token = kToken, .incarnation = 1, .join_timeout = 600s}),
      test::Hex("a0 1d 00 00 00 01 88 77 66 55 44 33 22 11 01 00 00 00 ff ff ff ff ff ff ff ff "
                "c0 27 09 00 00 00 00 00"));
  EXPECT_EQ(
      Frame(Push{.kind = Push::Kind::kAdmitted, .incarnation = 1, .count = 1, .token = kToken}),
      test::Hex("a0 1d 00 00 00 02 88 77 66 55 44 33 22 11 01 00 00 00 00 00 00 00 00 00 00 00 "
                "01 00 00 00 00 00 00 00"));
  EXPECT_EQ(
      Frame(Push{.kind = Push::Kind::kComplete,
                 .incarnation = 1,
                 .rank = 1,
                 .world_size = 4,
                 .count = 4,
                 .token = kToken,
                 .generation = {0x0123456789abcdef, 0x42},
                 .addr = "10.0.0.2",
                 .port = 29500}),
      test::Hex("a0 49 00 00 00 05 88 77 66 55 44 33 22 11 01 00 00 00 00 00 00 00 00 00 00 00 "
                "01 00 00 00 00 00 00 00 04 00 00 00 00 00 00 00 04 00 00 00 00 00 00 00 "
                "08 00 31 30 2e 30 2e 30 2e 32 3c 73 "
                "ef cd ab 89 67 45 23 01 42 00 00 00 00 00 00 00"));
}

TEST(SessionCodecTest, AnOpenComesBackWhole) {
  const SessionRequest open = AnOpen();
  const auto read = ReadSessionRequest(Frame(open));
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->hello.node, open.hello.node);
  EXPECT_EQ(read->hello.settings, open.hello.settings);
  EXPECT_EQ(read->hello.run_id, "run");
  EXPECT_EQ(read->hello.label, "rack7");
  EXPECT_EQ(read->hello.bootstrap_port, 29500);
  EXPECT_EQ(read->hello.resume, 7u);
}

TEST(SessionCodecTest, AnOpenOfVersion2HasNoForming) {
  SessionRequest open = AnOpen();
  open.version = 2;
  std::string frame = Frame(open);
  auto read = ReadSessionRequest(frame);
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->hello.settings.forming, std::nullopt);
  EXPECT_EQ(read->hello.version, 2);
  EXPECT_EQ(read->hello.bootstrap_port, 29500);
  EXPECT_EQ(Frame(AnOpen()).size(), frame.size() + 24) << "three numbers at the end";
  frame = Frame(AnOpen());
  frame.pop_back();
  EXPECT_FALSE(ReadSessionRequest(Framed(frame.substr(5)))) << "a part of them";
}

TEST(SessionCodecTest, TheOthersComeBackToo) {
  EXPECT_EQ(ReadSessionRequest(
                Frame(SessionRequest{.kind = Said::kJoin, .token = 1, .join_timeout = 600s}))
                ->join_timeout,
            600s);
  EXPECT_EQ(ReadSessionRequest(Frame(SessionRequest{.kind = Said::kLeave, .round = 3}))->round, 3);
  EXPECT_EQ(
      ReadSessionRequest(Frame(SessionRequest{.kind = Said::kClose, .reason = "why"}))->reason,
      "why");
}

TEST(SessionCodecTest, PushesComeBackWhole) {
  const Push complete{.kind = Push::Kind::kComplete,
                      .round = 2,
                      .rank = 3,
                      .world_size = 4,
                      .count = 4,
                      .generation = {5, 6},
                      .addr = "a",
                      .port = 9};
  const Push read = ReadPush(Frame(complete));
  EXPECT_EQ(read.round, 2);
  EXPECT_EQ(read.rank, 3);
  EXPECT_EQ(read.world_size, 4);
  EXPECT_EQ(read.addr, "a");
  EXPECT_EQ(read.port, 9);
  EXPECT_EQ(read.generation, (Generation{5, 6}));
  EXPECT_TRUE(
      ReadPush(Frame(Push{.kind = Push::Kind::kClosed, .graceful = true, .who = "x"})).graceful);
  EXPECT_EQ(ReadPush(Frame(Push{.kind = Push::Kind::kLost, .who = "x", .why = "y"})).why, "y");
  const Push refused =
      ReadPush(Frame(Push{.kind = Push::Kind::kRefused, .refusal = Push::Refusal::kPast}));
  EXPECT_EQ(refused.refusal, Push::Refusal::kPast);
}

// Reasons come from users, names from machines: what cannot be sent as it is, is sent as well as it
// can be. Otherwise the peer would hang up on it, time and again.
TEST(SessionCodecTest, WhatIsNoTextComesBackReadable) {
  const auto close =
      ReadSessionRequest(Frame({.kind = Said::kClose, .reason = "bad \xff\xc3 disk"}));
  ASSERT_TRUE(close) << close.error().message;
  EXPECT_EQ(close->reason, "bad \xef\xbf\xbd\xef\xbf\xbd disk");
  EXPECT_EQ(ReadPush(Frame(Push{.kind = Push::Kind::kEnded, .why = "\xed\xa0\x80"})).why,
            "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd");
}

TEST(SessionCodecTest, ATextThatIsTooLongComesBackCutBetweenCharacters) {
  std::string name = "xy";
  while (name.size() < 5000) name += "\xe2\x82\xac";  // three bytes: the limit is within one
  EXPECT_EQ(ReadPush(Frame(Push{.kind = Push::Kind::kClosed, .who = name})).who,
            name.substr(0, 4094));
}

TEST(SessionCodecTest, AStatusComesBackInParts) {
  const MemberReport member{.node = {"10.0.0.7", 4711, 1},
                            .role = MemberReport::Role::kSpare,
                            .silent_for = 1500ms,
                            .late = true,
                            .label = "rack7"};
  RunReport run{.id = "run",
                .phase = RunReport::Phase::kLastCall,
                .round = 3,
                .generation = {7, 8},
                .participants = 2,
                .last_call_left = 7s};
  run.members = {member};
  std::string bytes;
  AppendStatus(bytes, {run}, true);
  std::vector<StatusPart> parts;
  for (std::string_view rest = bytes; !rest.empty();) {
    const size_t size = *SessionFrameSize(rest);
    parts.push_back(std::get<StatusPart>(*ReadSessionReply(rest.substr(0, size))));
    rest.remove_prefix(size);
  }
  ASSERT_EQ(parts.size(), 3u);
  run.members.clear();
  EXPECT_EQ(parts[0].run, run);
  EXPECT_EQ(parts[1].member, member);
  EXPECT_EQ(parts[2].kind, StatusPart::Kind::kDone);
  EXPECT_TRUE(parts[2].more);
}

TEST(SessionCodecTest, AStatusSaysHowLongNodesAreHeldBack) {
  const RunReport run{.id = "run", .phase = RunReport::Phase::kComplete, .held_left = 7s};
  std::string bytes;
  AppendStatus(bytes, {run}, false);
  const auto read = ReadSessionReply(std::string_view(bytes).substr(0, *SessionFrameSize(bytes)));
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(std::get<StatusPart>(*read).run, run);
}

TEST(SessionCodecTest, AnOpenOfALaterVersionIsReadAsFarAsItIsKnown) {
  SessionRequest open = AnOpen();
  open.version = kSessionVersion + 1;
  std::string frame = Frame(open) + "what later versions add";
  frame = Framed(std::string_view(frame).substr(5));
  const auto read = ReadSessionRequest(frame);
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_TRUE(read->IsUnderstood());
  EXPECT_EQ(read->hello.run_id, "run");
  EXPECT_EQ(read->hello.bootstrap_port, 29500);
}

TEST(SessionCodecTest, OfAnOpenWithoutACommonVersionOnlyTheVersionsAreRead) {
  for (const auto& [version, oldest] :
       {std::pair{9, kSessionVersion + 1}, {1, kSessionVersion}, {0, 0}}) {
    std::string body = Frame(AnOpen()).substr(5, 21);
    body += {static_cast<char>(version), static_cast<char>(oldest)};
    const auto read = ReadSessionRequest(Framed(body + "in a layout that nobody knows here"));
    ASSERT_TRUE(read) << read.error().message;
    EXPECT_FALSE(read->IsUnderstood());
    EXPECT_EQ(read->version, version);
    EXPECT_EQ(read->hello.run_id, "");
  }
}

TEST(SessionCodecTest, ARoundCostsANodeFarLessThanAKibibyte) {
  const std::string addr(60, 'n');
  SessionRequest open = AnOpen();
  open.hello.node.addr = addr;
  const size_t bytes = Frame(open).size() + Frame(SessionRequest{.kind = Said::kJoin}).size() +
                       Frame(Push{.kind = Push::Kind::kOpened}).size() +
                       Frame(Push{.kind = Push::Kind::kAdmitted}).size() +
                       Frame(Push{.kind = Push::Kind::kComplete, .addr = addr}).size();
  EXPECT_LT(bytes, 450u);
}

TEST(SessionCodecTest, TheSizeIsKnownFromTheHead) {
  const std::string frame = Frame(AnOpen());
  EXPECT_EQ(*SessionFrameSize(""), 0u);
  EXPECT_EQ(*SessionFrameSize(frame.substr(0, 4)), 0u);
  EXPECT_EQ(*SessionFrameSize(frame.substr(0, 5)), frame.size());
  EXPECT_THAT(SessionFrameSize("\x01").error().message, HasSubstr("byte 1"));
  EXPECT_THAT(SessionFrameSize("\xa0\xff\xff\xff\xff").error().message, HasSubstr("limit 16384"));
}

TEST(SessionCodecTest, EveryTruncationAndExtensionIsRefused) {
  for (const std::string& frame :
       {Frame(AnOpen()), Frame(SessionRequest{.kind = Said::kClose, .reason = "why"})}) {
    const std::string body = frame.substr(5);
    for (size_t size = 0; size < body.size(); ++size) {
      const auto read = ReadSessionRequest(Framed(body.substr(0, size)));
      ASSERT_FALSE(read) << size;
      EXPECT_EQ(read.error().code, Code::kProtocol);
    }
    EXPECT_THAT(ReadSessionRequest(Framed(body + "x")).error().message,
                HasSubstr("1 bytes too many"));
  }
}

TEST(SessionCodecTest, NonsenseIsRefusedAndSaysWhat) {
  EXPECT_THAT(ReadSessionRequest(Framed("\x09" + std::string(20, '\0'))).error().message,
              HasSubstr("kind 9"));
  EXPECT_THAT(ReadSessionReply(Framed("\x63" + std::string(20, '\0'))).error().message,
              HasSubstr("kind 99"));
  SessionRequest strange = AnOpen();
  strange.hello.settings.policy = static_cast<RankPolicy>(9);
  EXPECT_THAT(ReadSessionRequest(Frame(strange)).error().message, HasSubstr("rank policy"));
  std::string no_text = Frame(AnOpen());
  no_text[no_text.find("rack7")] = '\xff';
  EXPECT_THAT(ReadSessionRequest(no_text).error().message, HasSubstr("UTF-8"));
  EXPECT_THAT(ReadSessionRequest(Frame(SessionRequest{.kind = Said::kJoin, .join_timeout = -1s}))
                  .error()
                  .message,
              HasSubstr("a time of -1000 ms"));
  EXPECT_THAT(
      ReadSessionRequest(Frame(SessionRequest{.kind = Said::kLeave, .round = -2})).error().message,
      HasSubstr("a round numbered -2"));
}

RC_GTEST_PROP(SessionCodecTest, AnyBytesAreReadOrRefused, (std::string body)) {
  body.resize(std::min<size_t>(body.size(), kSessionFrameBytesMax));
  (void)ReadSessionRequest(Framed(body));
  (void)ReadSessionReply(Framed(body));
}

}  // namespace
}  // namespace muster::wire
