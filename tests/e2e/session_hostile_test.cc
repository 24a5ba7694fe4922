// Malicious or broken session messages: each costs its own connection, or is refused, and two nodes
// that have met notice nothing.
#include <rapidcheck.h>

#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "support/session_server_test.h"

namespace muster::test {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

using Kind = Push::Kind;
using Refusal = Push::Refusal;
using Said = SessionTalker::Said;

namespace {

constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();
constexpr int64_t kCentury = int64_t{100} * 365 * 24 * 3600 * 1000;  // the longest time there is

constexpr int64_t kHour = 3600 * 1000;
constexpr int64_t kDay = 24 * kHour;

constexpr size_t kHead = 5;
constexpr size_t kRoundAt = kHead + 1 + 8 + 4;
constexpr size_t kVersionAt = kRoundAt + 8;  // of an Open
constexpr size_t kTimeoutAt = kRoundAt + 8;  // of a Join

/// The positions of the numbers in AnOpen().
constexpr size_t kPidAt = kVersionAt + 2 + 5 + 3;
constexpr size_t kMinNodesAt = kPidAt + 2 * 8;
constexpr size_t kMaxNodesAt = kMinNodesAt + 8;
constexpr size_t kLastCallAt = kMaxNodesAt + 8;
constexpr size_t kIntervalAt = kLastCallAt + 8;
constexpr size_t kAttemptsAt = kIntervalAt + 8;
constexpr size_t kGraceAt = kAttemptsAt + 8;
constexpr size_t kPolicyAt = kGraceAt + 8;

/// Its run is not that of the two nodes that have met.
std::string AnOpen() { return FrameOf({.kind = Said::kOpen, .hello = HelloOf("n", {}, "bad")}); }
std::string With(std::string frame, size_t at, int64_t number) {
  return frame.replace(at, 8, I64(number));
}
std::string WithByte(std::string frame, size_t at, int byte) {
  frame.at(at) = static_cast<char>(byte);
  return frame;
}
std::string TextOf(std::string_view text) {
  std::string out;
  AppendInt(out, static_cast<uint16_t>(text.size()));
  return out += text;
}

/// One message of each kind.
std::vector<std::string> OneOfEach(const SessionTalker& node) {
  wire::SessionRequest join = node.Message(Said::kJoin);
  join.join_timeout = 600s;
  wire::SessionRequest close = node.Message(Said::kClose);
  close.reason = "because";
  return {AnOpen(),
          FrameOf(join),
          FrameOf(close),
          FrameOf(node.Message(Said::kLeave)),
          FrameOf(node.Message(Said::kKeepAlive)),
          FrameOf({.kind = Said::kStatus, .run_id = "run", .names_max = 3})};
}

}  // namespace

class SessionHostileTest : public SessionServerTest {
 protected:
  void SetUp() override {
    SessionServerTest::SetUp();
    pair_.emplace(PairInARound());
  }
  void TearDown() override {
    ExpectUndisturbed(*pair_);
    ExpectServerIsWell();
  }

  /// Sends it after VALIDATE; the connection must be closed without a reply.
  void ExpectClosed(const std::string& bytes, const std::string& what) {
    SCOPED_TRACE(what);
    RawClient client = Client();
    client.Send(bytes);
    EXPECT_EQ(ToHex(client.ReceiveUntilClosed()), "");
    EXPECT_EQ(Disturbance(*pair_), "");
  }
  /// An Open that is refused with a reply. The connection stays open.
  void ExpectRefused(const std::string& open, const std::string& why) {
    SCOPED_TRACE(why);
    SessionTalker client(port());
    client.Send(open);
    const Push push = client.Hear(Kind::kRefused);
    EXPECT_EQ(push.refusal, Refusal::kSettings);
    EXPECT_THAT(push.why, HasSubstr(why));
    EXPECT_EQ(client.SaidSoFar(), "");
    EXPECT_THAT(client.Status("bad"), IsEmpty()) << "no run has come of it";
  }
  /// An unusual but valid Open.
  SessionTalker ExpectOpened(const std::string& open) {
    SessionTalker client(port());
    client.Send(open);
    client.Hear(Kind::kOpened);
    return client;
  }

  std::optional<Pair> pair_;
};
MUSTER_ON_ONE_AND_TWO_LOOPS(SessionHostileTest);

// --- Frames

TEST_P(SessionHostileTest, AFrameOverTheLimitIsJudgedByItsHead) {
  const std::string opcode(1, static_cast<char>(wire::kSessionOpcode));
  for (const uint32_t size : {16u * 1024 + 1, 1u << 16, 1u << 31, 0xffffffffu})
    ExpectClosed(opcode + U32(size), "a frame of " + std::to_string(size));
}

TEST_P(SessionHostileTest, AFrameAtTheLimitIsReadAndThenRefused) {
  for (const int kind : {0, 1, 2, 3, 4, 5}) {
    for (const char filling : {'\xff', '\0'}) {
      std::string body(16 * 1024, filling);
      body[0] = static_cast<char>(kind);
      // Without one of our versions an Open is refused instead.
      if (kind == 0) body.replace(kVersionAt - kHead, 2, "\x02\x02");
      ExpectClosed(Framed(body), filling == '\0' ? "of zeros" : "of 0xff");
    }
  }
}

TEST_P(SessionHostileTest, AnIncompleteFrameDelaysNoOtherNode) {
  RawClient client = Client();
  client.Send(Framed(std::string(16 * 1024, '\0')).substr(0, 10'000));
  Settle();
  EXPECT_EQ(Disturbance(*pair_), "");
  client.CloseSending();
  EXPECT_EQ(client.ReceiveUntilClosed(), "");
}

TEST_P(SessionHostileTest, AnUnknownKindIsClosed) {
  for (int kind = 6; kind < 256; ++kind) {
    for (const size_t rest : {size_t{0}, size_t{20}, size_t{200}}) {
      ExpectClosed(Framed(static_cast<char>(kind) + std::string(rest, '\0')),
                   "kind " + std::to_string(kind));
    }
  }
}

TEST_P(SessionHostileTest, ABodyOfAnotherSizeIsClosed) {
  ExpectClosed(Framed(""), "nothing");
  for (const std::string& frame : OneOfEach(pair_->a)) {
    const std::string body = frame.substr(kHead);
    const std::string of = " of kind " + std::to_string(body[0]);
    for (size_t size = 1; size < body.size(); ++size)
      ExpectClosed(Framed(body.substr(0, size)), std::to_string(size) + " bytes" + of);
    ExpectClosed(Framed(body + '\0'), "a byte more" + of);
    ExpectClosed(Framed(body + body), "twice" + of);
  }
}

TEST_P(SessionHostileTest, AnEndInsideAFrameDiscardsIt) {
  const std::string open = AnOpen();
  for (size_t size = 1; size < open.size(); ++size) {
    RawClient client = Client();
    client.Send(open.substr(0, size));
    client.CloseSending();
    EXPECT_EQ(client.ReceiveUntilClosed(), "") << size;
  }
  EXPECT_THAT(SessionTalker(port()).Status("bad"), IsEmpty());
}

TEST_P(SessionHostileTest, WhatCameBeforeTheMistakeIsAnswered) {
  SessionTalker node = ExpectOpened(AnOpen());
  wire::SessionRequest join = node.Message(Said::kJoin);
  join.join_timeout = 600s;
  node.Send(PingBytes(3) + FrameOf(join) + Framed("") + SetBytes("/after", "1"));
  EXPECT_EQ(node.Receive(4), U32(3));
  node.Hear(Kind::kComplete);
  EXPECT_EQ(node.ReceiveUntilClosed(), "");
  EXPECT_EQ(Client().AskNumber(NumKeysBytes()), 0);
}

TEST_P(SessionHostileTest, NothingIsAcceptedBeforeValidate) {
  for (const std::string& frame : OneOfEach(pair_->a)) {
    RawClient client(port());
    client.Send(frame + ValidateBytes() + frame);
    EXPECT_EQ(ToHex(client.ReceiveUntilClosed()), "");
  }
  EXPECT_THAT(SessionTalker(port()).Status("bad"), IsEmpty());
}

TEST_P(SessionHostileTest, ANodeWithoutACommonVersionIsRefusedWithBothRanges) {
  const int ours = kSessionVersion;
  for (int version = 0; version < 256; ++version) {
    const int oldest = version < ours ? version : ours + 1;
    if (version >= kSessionVersionOldest && version <= ours) continue;
    SessionTalker node(port());
    node.Send(WithByte(WithByte(AnOpen(), kVersionAt, version), kVersionAt + 1, oldest));
    const Push refused = node.Hear();
    ASSERT_EQ(refused.kind, Push::Kind::kRefused) << version;
    EXPECT_EQ(refused.refusal, Push::Refusal::kVersion);
    EXPECT_THAT(refused.why, HasSubstr("to " + std::to_string(version)));
    EXPECT_THAT(refused.why, HasSubstr("to " + std::to_string(ours)));
  }
}

TEST_P(SessionHostileTest, WithALaterNodeTheHighestCommonVersionIsSpoken) {
  SessionTalker node(port());
  node.Send(WithByte(AnOpen(), kVersionAt, kSessionVersion + 5));
  const Push opened = node.Hear();
  EXPECT_EQ(opened.kind, Push::Kind::kOpened);
  EXPECT_EQ(opened.version, kSessionVersion);
}

TEST_P(SessionHostileTest, WithAnEarlierNodeItsVersionIsSpoken) {
  SessionTalker node(port());
  node.Send(FrameOf(
      {.kind = Said::kOpen, .version = kSessionVersionOldest, .hello = HelloOf("n", {}, "bad")}));
  const Push opened = node.Hear();
  EXPECT_EQ(opened.kind, Push::Kind::kOpened);
  EXPECT_EQ(opened.version, kSessionVersionOldest);
}

// --- Texts

TEST_P(SessionHostileTest, TextsThatAreNotUtf8AreClosed) {
  for (const std::string bad :
       {"\xff", "\xc0\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "a\xe2\x82"}) {
    // Our own writer does not write such texts: they are put into what it has written.
    const std::string mark(bad.size(), '@');
    const auto damaged = [&](const wire::SessionRequest& request) {
      std::string frame = FrameOf(request);
      return frame.replace(frame.find(mark), mark.size(), bad);
    };
    Hello hello = HelloOf("n", {}, mark);
    ExpectClosed(damaged({.kind = Said::kOpen, .hello = hello}), "run id");
    hello = HelloOf(mark, {}, "bad");
    ExpectClosed(damaged({.kind = Said::kOpen, .hello = hello}), "address");
    hello = HelloOf("n", {}, "bad");
    hello.label = mark;
    ExpectClosed(damaged({.kind = Said::kOpen, .hello = hello}), "label");
    ExpectClosed(damaged({.kind = Said::kClose, .reason = mark}), "reason");
    ExpectClosed(damaged({.kind = Said::kStatus, .run_id = mark}), "run id of a status");
  }
}

TEST_P(SessionHostileTest, TextsLongerThanTheyMayBeOrThanTheirFrameAreClosed) {
  const std::string close = FrameOf({.kind = Said::kClose}).substr(kHead, kRoundAt + 8 - kHead);
  ExpectClosed(Framed(close + TextOf(std::string(4'097, 'x'))), "4097 bytes");
  ExpectClosed(Framed(close + TextOf(std::string(16'000, 'x'))), "16000 bytes");
  ExpectClosed(Framed(close + Hex("ff ff") + "x"), "65535 bytes that are not there");
  ExpectClosed(Framed(close + Hex("02 00") + "x"), "a byte that is not there");
}

TEST_P(SessionHostileTest, AnAddressThatDoesNotPrintIsRefused) {
  using namespace std::string_literals;
  for (const std::string& addr : {"a\nb"s, "\0"s, "\x7f"s, "\x1b[2J"s, "\u0085"s, "a\tb"s})
    ExpectRefused(FrameOf({.kind = Said::kOpen, .hello = HelloOf(addr, {}, "bad")}), "printable");
  const std::string longest(256, 'x');
  ExpectRefused(FrameOf({.kind = Said::kOpen, .hello = HelloOf(longest + "x", {}, "bad")}),
                "at most 256 bytes");
  EXPECT_EQ(SessionTalker(port()).Open(HelloOf(longest, {}, "long")).addr, longest);
}

// All labels of a run are compared with each other in one step when a round is complete.
TEST_P(SessionHostileTest, ALongLabelIsRefused) {
  Hello hello = HelloOf("n", {}, "labelled");
  hello.label = std::string(257, 'l');
  ExpectRefused(FrameOf({.kind = Said::kOpen, .hello = hello}), "257 bytes. Allowed: at most 256");
  hello.label.pop_back();
  EXPECT_EQ(SessionTalker(port()).Open(hello).addr, "n");
}

TEST_P(SessionHostileTest, ARunWithoutANameIsRefused) {
  ExpectRefused(FrameOf({.kind = Said::kOpen, .hello = HelloOf("n", {}, "")}), "run id is empty");
}

TEST_P(SessionHostileTest, LongAndUnusualTextsComeBackWhole) {
  using namespace std::string_literals;
  Hello hello = HelloOf("gr\u00fc\u00dfe", {}, "\0\n\x1b"s + std::string(4'000, 'r'));
  hello.label = "\x01\u20ac" + std::string(250, 'l');
  SessionTalker node(port(), hello);
  const RunReport run = node.Status(hello.run_id).at(0);
  EXPECT_EQ(run.id, hello.run_id);
  EXPECT_EQ(run.members.at(0).label, hello.label);
  EXPECT_EQ(run.members.at(0).node.addr, hello.node.addr);
}

// --- Numbers

TEST_P(SessionHostileTest, InvalidTimesAreClosed) {
  const std::string join = FrameOf({.kind = Said::kJoin});
  for (const int64_t time : {int64_t{-1}, kLeast, kCentury + 1, kMost / 1'000'000 + 1, kMost}) {
    ExpectClosed(With(join, kTimeoutAt, time), "join timeout " + std::to_string(time));
    ExpectClosed(With(AnOpen(), kLastCallAt, time), "last call " + std::to_string(time));
    ExpectClosed(With(AnOpen(), kIntervalAt, time), "keep-alives " + std::to_string(time));
    ExpectClosed(With(AnOpen(), kGraceAt, time), "grace " + std::to_string(time));
  }
}

TEST_P(SessionHostileTest, InvalidRoundsAreClosed) {
  for (const int64_t round : {int64_t{-2}, kLeast, (int64_t{1} << 60) + 1, kMost}) {
    for (const std::string& frame : OneOfEach(pair_->a))
      ExpectClosed(With(frame, kRoundAt, round), "round " + std::to_string(round));
  }
}

TEST_P(SessionHostileTest, RankPoliciesThatThereAreNotAreClosed) {
  for (const int policy : {4, 5, 127, 128, 255})
    ExpectClosed(WithByte(AnOpen(), kPolicyAt, policy), "policy " + std::to_string(policy));
}

TEST_P(SessionHostileTest, NodeCountsThatCannotBeAreRefused) {
  for (const int64_t min : {int64_t{0}, int64_t{-1}, kLeast, int64_t{2}, kMost})
    ExpectRefused(With(AnOpen(), kMinNodesAt, min), "a round of " + std::to_string(min) + " to 1");
  for (const int64_t max : {int64_t{0}, int64_t{-1}, kLeast})
    ExpectRefused(With(AnOpen(), kMaxNodesAt, max), "a round of 1 to " + std::to_string(max));
}

TEST_P(SessionHostileTest, KeepAlivesThatCannotBeAreRefused) {
  for (const int64_t interval : {int64_t{0}, kDay + 1, kCentury}) {
    ExpectRefused(With(AnOpen(), kIntervalAt, interval),
                  "keep-alives every " + std::to_string(interval) + " ms");
  }
  for (const int64_t attempts : {int64_t{0}, int64_t{-1}, kLeast, int64_t{10'001}, kMost}) {
    ExpectRefused(With(AnOpen(), kAttemptsAt, attempts),
                  "keep_alive_max_attempt " + std::to_string(attempts));
  }
  for (const int64_t grace : {kHour + 1, kCentury}) {
    ExpectRefused(With(AnOpen(), kGraceAt, grace), "a grace of " + std::to_string(grace) + " ms");
  }
}

TEST_P(SessionHostileTest, TheLargestNumbersThatCanBeMeantOverflowNothing) {
  std::string open = With(With(AnOpen(), kPidAt, kLeast), kPidAt + 8, kMost);
  open = With(With(open, kMaxNodesAt, kMost), kLastCallAt, kCentury);
  open = With(With(open, kIntervalAt, kDay), kAttemptsAt, 10'000);
  open = With(open, kGraceAt, kHour);
  SessionTalker node = ExpectOpened(open);
  std::string join = FrameOf(node.Message(Said::kJoin));
  node.Send(With(join, kTimeoutAt, kCentury));
  node.Hear(Kind::kAdmitted);
  SessionTalker second = ExpectOpened(With(open, kPidAt, kMost));
  second.Send(With(FrameOf(second.Message(Said::kJoin)), kTimeoutAt, 0));
  second.Hear(Kind::kAdmitted);
  EXPECT_EQ(second.Hear(Kind::kTimedOut).count, 1) << "time passes for it alone";
  node.Close();
  EXPECT_TRUE(EventuallyTrue([&] { return !second.Status("bad").at(0).members.at(0).connected; }));
  const RunReport run = second.Status("bad").at(0);
  EXPECT_EQ(run.phase, RunReport::Phase::kLastCall);
  EXPECT_EQ(run.settings.max_nodes, kMost);
  EXPECT_GT(*run.last_call_left, std::chrono::hours(24));
  EXPECT_EQ(run.members.at(0).node, (Node{"n", kLeast, kMost}));
}

TEST_P(SessionHostileTest, TheSmallestValidNumbersKeepNoProcessBusy) {
  std::string open = With(With(AnOpen(), kLastCallAt, 0), kIntervalAt, 1);
  open = With(With(open, kAttemptsAt, 1), kGraceAt, 0);
  SessionTalker node(port());
  node.Send(With(open, kMaxNodesAt, kMost));
  node.Hear(Kind::kOpened);
  node.Hear(Kind::kEnded);  // a millisecond later
  EXPECT_EQ(node.ReceiveUntilClosed(), "");
}

TEST_P(SessionHostileTest, ARoundThatTheServerGaveMayBeSent) {
  Hello hello = HelloOf("n", Patient(1, 1), "bad");
  hello.round = int64_t{1} << 53;
  SessionTalker node(port(), hello);
  node.Join();
  node.Hear(Kind::kComplete);
  EXPECT_THAT(node.HeardSoFar(), IsEmpty()) << "closed, because it sent what it had received";
}

// --- Random input

namespace {

/// Flips a bit, cuts out or inserts something, a few times.
std::string Damaged(std::string frame) {
  const int times = *rc::gen::inRange(0, 4);
  for (int i = 0; i < times && !frame.empty(); ++i) {
    const auto at = *rc::gen::inRange<size_t>(0, frame.size());
    switch (*rc::gen::inRange(0, 3)) {
      case 0:
        frame[at] = static_cast<char>(frame[at] ^ (1 << *rc::gen::inRange(0, 8)));
        break;
      case 1:
        frame.erase(at, *rc::gen::inRange<size_t>(1, 9));
        break;
      default:
        frame.insert(at, *rc::gen::container<std::string>(rc::gen::arbitrary<char>()));
    }
  }
  return frame;
}

}  // namespace

TEST_P(SessionHostileTest, DamagedFramesHarmNoOtherNode) {
  int runs = 0;
  EXPECT_TRUE(rc::check("damaged frames during a round", [&] {
    const std::string suffix = std::to_string(++runs);
    Pair pair = PairInARound(Patient(2, 2), "pair" + suffix);
    RunSettings settings = Patient(1, 2);
    settings.grace = 0ms;
    SessionTalker client(port(), HelloOf("n", settings, "bad" + suffix));
    std::vector<std::string> frames = OneOfEach(client);
    frames.push_back(FrameOf(
        {.kind = Said::kOpen, .hello = HelloOf("10.0.0.1", Patient(2, 2), "pair" + suffix)}));
    frames.push_back(FrameOf(
        {.kind = Said::kOpen, .hello = HelloOf("10.0.0.3", Patient(2, 2), "pair" + suffix)}));
    std::string bytes;
    const int count = *rc::gen::inRange(1, 8);
    for (int i = 0; i < count; ++i) bytes += Damaged(*rc::gen::elementOf(frames));
    // An Open is accepted on a new connection only.
    if (*rc::gen::arbitrary<bool>()) client = SessionTalker(port());
    client.Send(bytes);
    client.CloseSending();
    client.ReceiveUntilClosed();
    RC_ASSERT(Disturbance(pair, "pair" + suffix) == "");
  }));
}

}  // namespace muster::test
