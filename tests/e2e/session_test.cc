// Sessions of nodes with a StoreServer, in bytes: the examples of docs/reference/protocol.md, and
// the answers to nodes that join, leave, reconnect and send stale messages.
#include "rendezvous/wire/session_codec.h"

#include <string>
#include <vector>

#include "support/machine.h"
#include "support/session_server_test.h"

namespace muster::test {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

using Kind = Push::Kind;
using Said = SessionTalker::Said;

class SessionTest : public SessionServerTest {};
MUSTER_ON_ONE_AND_TWO_LOOPS(SessionTest);

// --- Discovery

TEST_P(SessionTest, CheckFindsTheKeyThatShowsACoordinator) {
  const std::string key(wire::kSessionKey);
  RawClient client = Client();
  EXPECT_EQ(client.Ask(CheckBytes({key}), 1), kReady);
  EXPECT_EQ(client.Ask(CheckBytes({key, "/absent"}), 1), kNotReady);
  EXPECT_EQ(client.Ask(CheckBytes({key + "0"}), 1), kNotReady);
  client.Send(SetBytes("/there", ""));
  EXPECT_EQ(client.Ask(CheckBytes({"/there", key}), 1), kReady);
}

TEST_P(SessionTest, TheGreetingOfANodeIsAnsweredWithOneByte) {
  RawClient client(port());
  client.Send(wire::SessionGreeting(true));
  EXPECT_EQ(client.Receive(1), std::string(1, wire::kSessionsSpoken));
  EXPECT_EQ(client.SaidSoFar(), "");
}

TEST_P(SessionTest, NothingElseFindsTheKey) {
  const std::string key(wire::kSessionKey);
  RawClient client = Client();
  EXPECT_EQ(client.AskNumber(NumKeysBytes()), 0);
  EXPECT_EQ(client.AskNumber(ListKeysBytes()), 0);
  EXPECT_EQ(client.AskBlob(GetBytes(key)), "");
  EXPECT_EQ(client.AskNumber(DeleteBytes(key)), 0);
  client.Send(WaitBytes({key}));
  EXPECT_EQ(client.SaidSoFar(), "");
  EXPECT_EQ(client.Ask(CancelBytes(), 1), kCancelled);
  EXPECT_EQ(client.Ask(CheckBytes({key}), 1), kReady) << "deleting it has done nothing";
}

TEST_P(SessionTest, AUsersKeyOfThatNameIsAKeyLikeAnyOther) {
  const std::string key = "/" + std::string(wire::kSessionKey);
  RawClient client = Client();
  EXPECT_EQ(client.Ask(CheckBytes({key}), 1), kNotReady);
  client.Send(SetBytes(key, "mine"));
  EXPECT_EQ(client.Ask(CheckBytes({key}), 1), kReady);
  EXPECT_EQ(client.AskBlob(GetBytes(key)), "mine");
  EXPECT_EQ(client.AskNumber(NumKeysBytes()), 1);
  EXPECT_EQ(client.AskNumber(DeleteBytes(key)), 1);
  EXPECT_EQ(client.Ask(CheckBytes({key}), 1), kNotReady);
}

// --- A round, in bytes

namespace {

/// Token and generation are random: they are replaced by as many bytes 77.
std::string Masked(std::string frame) {
  const bool is_complete = static_cast<uint8_t>(frame.at(5)) == uint8_t(Kind::kComplete);
  if (is_complete) frame.replace(frame.size() - 16, 16, std::string(16, '\x77'));
  return frame.replace(6, 8, std::string(8, '\x77'));
}

/// In one line, however long: ToHex() cuts.
std::string InHex(const std::string& bytes) {
  std::string out;
  for (size_t i = 0; i < bytes.size(); i += 32)
    out += (i == 0 ? "" : " ") + ToHex(std::string_view(bytes).substr(i, 32));
  return out;
}

constexpr std::string_view kOpenHead =
    "a0 6b 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 ff ff ff ff ff ff ff ff 02 02 "
    "03 00 6a 6f 62 08 00 ";
constexpr std::string_view kOpenTail =
    " 67 12 00 00 00 00 00 00 00 00 00 00 00 00 00 00 "
    "02 00 00 00 00 00 00 00 02 00 00 00 00 00 00 00 30 75 00 00 00 00 00 00 "
    "88 13 00 00 00 00 00 00 03 00 00 00 00 00 00 00 2c 01 00 00 00 00 00 00 00 00 00 3c 73";

}  // namespace

TEST_P(SessionTest, TwoNodesMeetAsDocumented) {
  SessionTalker one(port());
  SessionTalker two(port());
  const auto say = [](SessionTalker& who, std::string_view hex) {
    std::string frame = Hex(hex);
    if (who.token != 0) frame.replace(6, 8, U64(who.token));
    who.Send(frame);
  };
  const auto expect = [](SessionTalker& who, const std::string& hex) {
    const std::string frame = who.ReceiveFrame();
    EXPECT_EQ(InHex(Masked(frame)), hex);
    if (who.token == 0) who.token = std::get<Push>(ReplyOf(frame)).token;
  };
  const std::string opened =
      "a0 21 00 00 00 00 77 77 77 77 77 77 77 77 01 00 00 00 00 00 00 00 00 00 00 00 02 00 08 00 ";
  say(one, std::string(kOpenHead) + "31 30 2e 30 2e 30 2e 31" + std::string(kOpenTail));
  expect(one, opened + "31 30 2e 30 2e 30 2e 31");
  constexpr std::string_view kJoin =
      "a0 1d 00 00 00 01 77 77 77 77 77 77 77 77 01 00 00 00 ff ff ff ff ff ff ff ff "
      "c0 27 09 00 00 00 00 00";
  say(one, kJoin);
  expect(one,
         "a0 1d 00 00 00 02 77 77 77 77 77 77 77 77 01 00 00 00 00 00 00 00 00 00 00 00 "
         "01 00 00 00 00 00 00 00");

  say(two, std::string(kOpenHead) + "31 30 2e 30 2e 30 2e 32" + std::string(kOpenTail));
  expect(two, opened + "31 30 2e 30 2e 30 2e 32");
  say(two, kJoin);
  const auto complete = [](const std::string& rank) {
    return "a0 49 00 00 00 05 77 77 77 77 77 77 77 77 01 00 00 00 00 00 00 00 00 00 00 00 " + rank +
           " 00 00 00 00 00 00 00 02 00 00 00 00 00 00 00 02 00 00 00 00 00 00 00 "
           "08 00 31 30 2e 30 2e 30 2e 31 3c 73 "
           "77 77 77 77 77 77 77 77 77 77 77 77 77 77 77 77";
  };
  expect(two, complete("01"));
  expect(one, complete("00"));

  say(one, "a0 15 00 00 00 04 77 77 77 77 77 77 77 77 01 00 00 00 00 00 00 00 00 00 00 00");
  EXPECT_EQ(one.SaidSoFar(), "") << "a keep-alive has no answer";
  say(one, "a0 15 00 00 00 02 77 77 77 77 77 77 77 77 01 00 00 00 00 00 00 00 00 00 00 00");
  expect(one, "a0 15 00 00 00 0a 77 77 77 77 77 77 77 77 01 00 00 00 00 00 00 00 00 00 00 00");
  EXPECT_NE(one.token, two.token);
}

TEST_P(SessionTest, RanksFollowAddressesAndTheFirstServesTheWorkers) {
  std::vector<SessionTalker> nodes;
  for (const char* addr : {"node10", "node2", "node1"}) {
    Hello hello = HelloOf(addr, Patient(3, 3));
    hello.bootstrap_port = static_cast<uint16_t>(1'000 + nodes.size());
    nodes.emplace_back(port(), hello);
  }
  for (size_t i = 0; i < 3; ++i) {
    nodes[i].Join();
    if (i < 2) nodes[i].Hear(Kind::kAdmitted);
  }
  for (size_t i = 0; i < 3; ++i) {
    const Push complete = nodes[i].Hear(Kind::kComplete);
    EXPECT_EQ(complete.rank, 2 - static_cast<int64_t>(i));
    EXPECT_EQ(complete.world_size, 3);
    EXPECT_EQ(complete.round, 0);
    EXPECT_EQ(complete.addr, "node1");
    EXPECT_EQ(complete.port, 1'002);
  }
}

TEST_P(SessionTest, TheLastCallCompletesARoundWithEnough) {
  RunSettings settings = Patient(1, 3);
  settings.last_call = 50ms;
  SessionTalker node(port(), HelloOf("n", settings));
  const Stopwatch watch;
  node.Join();
  node.Hear(Kind::kAdmitted);
  EXPECT_EQ(node.Hear(Kind::kComplete).world_size, 1);
  EXPECT_GE(watch.Elapsed(), milliseconds(50));
}

TEST_P(SessionTest, ALateNodeWaitsAndIsReportedAndOneWithoutAPlaceIsASpare) {
  RunSettings settings = Patient(1, 2);
  settings.last_call = 1ms;
  SessionTalker first(port(), HelloOf("a", settings));
  first.Join();
  first.Hear(Kind::kAdmitted);
  first.Hear(Kind::kComplete);
  SessionTalker late(port(), HelloOf("b", settings));
  late.Join();
  late.Hear(Kind::kWaiting);
  EXPECT_EQ(first.Hear(Kind::kNodesWaiting).count, 1);
  first.Join();  // leaves round 0, which ends then, and is the first in the next
  first.Hear(Kind::kAdmitted);
  EXPECT_EQ(late.Hear(Kind::kComplete).round, 1);
  EXPECT_EQ(first.Hear(Kind::kComplete).round, 1);
  SessionTalker spare(port(), HelloOf("c", settings));
  spare.Join();
  spare.Hear(Kind::kSpare);
  EXPECT_THAT(first.HeardSoFar(), IsEmpty());
}

TEST_P(SessionTest, AJoinThatTimesOutReportsWhichNodesWereThere) {
  SessionTalker node(port(), HelloOf("n", Patient(2, 2)));
  const Stopwatch watch;
  node.Join(50ms);
  node.Hear(Kind::kAdmitted);
  const Push push = node.Hear(Kind::kTimedOut);
  EXPECT_GE(watch.Elapsed(), milliseconds(50));
  EXPECT_THAT(push.why, AllOf(HasSubstr("n_4711_0"), HasSubstr("1 more is needed")));
  node.Join();
  node.Hear(Kind::kAdmitted);
}

// --- On one connection with the store

TEST_P(SessionTest, TheFirstSegmentMayHoldEverything) {
  RawClient client(port());
  const Hello hello = HelloOf("n", Patient(2, 2));
  client.Send(wire::SessionGreeting(true) + FrameOf({.kind = Said::kOpen, .hello = hello}) +
              PingBytes(7));
  EXPECT_EQ(client.Receive(1), kReady);
  const Push opened = std::get<Push>(ReplyOf(client.Receive(5 + 21 + 2 + 2 + 1)));
  EXPECT_EQ(opened.kind, Kind::kOpened);
  EXPECT_EQ(opened.addr, "n");
  EXPECT_EQ(client.Receive(4), U32(7));
}

TEST_P(SessionTest, StoreAndSessionShareAConnectionInOneSegment) {
  SessionTalker node(port());
  node.Send(CheckBytes({std::string(wire::kSessionKey)}) +
            FrameOf({.kind = Said::kOpen, .hello = HelloOf("n", Patient(2, 2))}) + PingBytes(7));
  EXPECT_EQ(node.Receive(1), kReady);
  node.Hear(Kind::kOpened);
  EXPECT_EQ(node.Receive(4), U32(7));

  wire::SessionRequest join = node.Message(Said::kJoin);
  join.join_timeout = 600s;
  node.Send(SetBytes("/k", "v") + FrameOf(join) + GetBytes("/k") +
            FrameOf(node.Message(Said::kKeepAlive)) + AddBytes("/n", 5) +
            FrameOf({.kind = Said::kStatus, .run_id = "run", .names_max = 1}) + PingBytes(8) +
            FrameOf(node.Message(Said::kLeave)) + WaitBytes({"/k"}));
  EXPECT_EQ(node.Hear(Kind::kAdmitted).count, 1);
  EXPECT_EQ(node.ReceiveBlob(), "v");
  EXPECT_EQ(node.ReceiveNumber(), 5);
  const auto status = node.HearStatus();
  ASSERT_THAT(status, SizeIs(1));
  EXPECT_EQ(status[0].participants, 1);
  EXPECT_EQ(node.Receive(4), U32(8));
  node.Hear(Kind::kLeft);
  EXPECT_EQ(node.Receive(1), kStop);
  EXPECT_EQ(node.SaidSoFar(), "");
}

TEST_P(SessionTest, StoreAndSessionShareAConnectionByteByByte) {
  SessionTalker node(port());
  SendInPieces(node,
               PingBytes(6) + FrameOf({.kind = Said::kOpen, .hello = HelloOf("n", Patient(2, 2))}) +
                   PingBytes(7),
               1, Settling());
  EXPECT_EQ(node.Receive(4), U32(6));
  node.Hear(Kind::kOpened);
  EXPECT_EQ(node.Receive(4), U32(7));
  wire::SessionRequest join = node.Message(Said::kJoin);
  join.join_timeout = 600s;
  SendInPieces(node,
               SetBytes("/k", "v") + FrameOf(join) + GetBytes("/k") +
                   FrameOf({.kind = Said::kStatus, .run_id = "run"}) + AddBytes("/n", 5),
               1, Settling());
  node.Hear(Kind::kAdmitted);
  EXPECT_EQ(node.ReceiveBlob(), "v");
  EXPECT_THAT(node.HearStatus(), SizeIs(1));
  EXPECT_EQ(node.ReceiveNumber(), 5);
  EXPECT_EQ(node.SaidSoFar(), "");
}

TEST_P(SessionTest, HundredsOfPipelinedMessagesAreAnsweredInOrder) {
  SessionTalker node(port(), HelloOf("n", Patient(2, 2)));
  wire::SessionRequest join = node.Message(Said::kJoin);
  join.join_timeout = 600s;
  std::string requests;
  constexpr int kTimes = 300;
  for (int i = 0; i < kTimes; ++i)
    requests += AddBytes("/n", 1) + FrameOf(join) + FrameOf(node.Message(Said::kLeave));
  node.Send(requests);
  for (int i = 0; i < kTimes; ++i) {
    ASSERT_EQ(node.ReceiveNumber(), i + 1);
    node.Hear(Kind::kAdmitted);
    node.Hear(Kind::kLeft);
  }
  EXPECT_EQ(node.SaidSoFar(), "");
}

TEST_P(SessionTest, ARoundCompletesWhileAWaitIsParked) {
  SessionTalker a(port(), HelloOf("a", Patient(2, 2)));
  SessionTalker b(port(), HelloOf("b", Patient(2, 2)));
  a.Send(WaitBytes({"/gate"}));
  a.Join();
  a.Hear(Kind::kAdmitted);
  b.Join();
  a.Hear(Kind::kComplete);
  b.Send(SetBytes("/gate", ""));
  EXPECT_EQ(a.Receive(1), kStop);
}

// --- Addresses

TEST_P(SessionTest, ANodeWithoutAnAddressIsKnownByTheOneItComesFrom) {
  SessionTalker node(port());
  EXPECT_EQ(node.Open(HelloOf("", Patient(1, 1))).addr, "127.0.0.1");
  node.Join();
  EXPECT_EQ(node.Hear(Kind::kComplete).addr, "127.0.0.1");
  EXPECT_EQ(ReportOn("run").members.at(0).node.addr, "127.0.0.1");
}

TEST_P(SessionTest, AnAddressThatANodeGivesIsKept) {
  SessionTalker node(port());
  EXPECT_EQ(node.Open(HelloOf("knoten-7.example", Patient(1, 1))).addr, "knoten-7.example");
  node.Join();
  EXPECT_EQ(node.Hear(Kind::kComplete).addr, "knoten-7.example");
}

TEST_P(SessionTest, BehindASocketForBothFamiliesAddressesAreThoseOfTheirOwn) {
  Start({.host = "", .threads = GetParam()});
  EXPECT_EQ(SessionTalker(port()).Open(HelloOf("", Patient(1, 1))).addr, "127.0.0.1");
  MUSTER_REQUIRE(Ipv6Need());
  SessionTalker six(port(), Family::kIpv6);
  EXPECT_EQ(six.Open(HelloOf("", Patient(1, 1))).addr, "::1");
}

// --- Lost, and back again

TEST_P(SessionTest, AMemberWhoseConnectionEndsIsLostWhenItsGraceIsOver) {
  RunSettings settings = Patient(2, 2);
  settings.grace = 100ms;
  auto [a, b] = PairInARound(settings);
  const Stopwatch watch;
  b.Close();
  const Push lost = a.Hear(Kind::kLost);
  EXPECT_GE(watch.Elapsed(), milliseconds(100));
  EXPECT_LT(watch.Elapsed(), seconds(10));
  EXPECT_EQ(lost.who, "10.0.0.2_4711_0");
  EXPECT_EQ(lost.count, 1);
  EXPECT_EQ(lost.round, 0);
  EXPECT_THAT(lost.why, HasSubstr("connection"));
}

TEST_P(SessionTest, AResetEndsAConnectionAsWell) {
  RunSettings settings = Patient(2, 2);
  settings.grace = 0ms;
  auto [a, b] = PairInARound(settings);
  b.CloseAbruptly();
  EXPECT_EQ(a.Hear(Kind::kLost).who, "10.0.0.2_4711_0");
}

TEST_P(SessionTest, AMemberThatFallsSilentIsLostAndNotified) {
  RunSettings settings = Patient(2, 2);
  settings.keep_alive_interval = 250ms;
  settings.keep_alive_max_attempt = 2;
  auto [a, b] = PairInARound(settings);
  std::vector<Push> heard;
  EXPECT_TRUE(EventuallyTrue([&a = a, &heard] { return !(heard = a.HeardSoFar()).empty(); }));
  ASSERT_THAT(heard, SizeIs(1));
  EXPECT_EQ(heard[0].kind, Kind::kLost);
  EXPECT_THAT(heard[0].why, HasSubstr("not heard of for"));
  EXPECT_THAT(b.Hear(Kind::kEnded).why, HasSubstr("not heard of for"));
  EXPECT_EQ(b.ReceiveUntilClosed(), "");
}

TEST_P(SessionTest, ANodeThatReconnectsInTimeHasLostNothingAndNoOtherIsNotified) {
  Pair pair = PairInARound();
  const uint64_t token = pair.b.token;
  pair.b.Close();
  EXPECT_TRUE(EventuallyTrue([&] { return !ReportOn("run").members.at(1).connected; }));
  pair.b = SessionTalker(port());
  const Push opened = pair.b.Open(HelloOf("10.0.0.2", Patient(2, 2)), token);
  EXPECT_TRUE(opened.resumed);
  EXPECT_EQ(opened.incarnation, 2u);
  EXPECT_EQ(opened.token, token);
  const Push complete = pair.b.Hear(Kind::kComplete);  // in case it was sent meanwhile
  EXPECT_EQ(complete.round, 0);
  EXPECT_EQ(complete.rank, 1);
  EXPECT_EQ(complete.world_size, 2);
  EXPECT_EQ(pair.b.Hear(Kind::kNodesWaiting).count, 0);  // the waiting node may have left meanwhile
  ExpectUndisturbed(pair);
}

TEST_P(SessionTest, TheOldConnectionOfAResumedSessionEnds) {
  Pair pair = PairInARound();
  SessionTalker old = std::move(pair.b);
  pair.b = SessionTalker(port());
  EXPECT_TRUE(pair.b.Open(HelloOf("10.0.0.2", Patient(2, 2)), old.token).resumed);
  pair.b.Hear(Kind::kComplete);
  pair.b.Hear(Kind::kNodesWaiting);
  const Push ended = old.Hear(Kind::kEnded);
  EXPECT_EQ(ended.incarnation, 1u);
  EXPECT_THAT(ended.why, HasSubstr("on another connection"));
  EXPECT_EQ(old.ReceiveUntilClosed(), "");
  ExpectUndisturbed(pair);
}

TEST_P(SessionTest, AnotherTokenTakesNothingUpAgain) {
  auto [a, b] = PairInARound();
  const uint64_t token = b.token;
  b.Close();
  EXPECT_TRUE(EventuallyTrue([&] { return !ReportOn("run").members.at(1).connected; }));
  SessionTalker again(port());
  const Push opened = again.Open(HelloOf("10.0.0.2", Patient(2, 2)), token ^ 1);
  EXPECT_FALSE(opened.resumed);
  EXPECT_EQ(opened.incarnation, 1u);
  EXPECT_NE(opened.token, token);
  EXPECT_NE(opened.token, token ^ 1);
  EXPECT_THAT(a.Hear(Kind::kLost).why, HasSubstr("anew"));
}

TEST_P(SessionTest, AfterTheGraceTheTokenIsWorthNothing) {
  RunSettings settings = Patient(2, 2);
  settings.grace = 20ms;
  auto [a, b] = PairInARound(settings);
  const uint64_t token = b.token;
  b.Close();
  a.Hear(Kind::kLost);
  SessionTalker again(port());
  const Push opened = again.Open(HelloOf("10.0.0.2", settings), token);
  EXPECT_FALSE(opened.resumed);
  EXPECT_EQ(opened.incarnation, 1u);
  EXPECT_NE(opened.token, token);
  EXPECT_THAT(again.HeardSoFar(), IsEmpty());
}

TEST_P(SessionTest, ATokenOfAnotherNodeTakesNothingUpAgain) {
  Pair pair = PairInARound();
  SessionTalker thief(port());
  EXPECT_FALSE(thief.Open(HelloOf("10.0.0.3", Patient(2, 2)), pair.a.token).resumed);
  ExpectUndisturbed(pair);
}

}  // namespace muster::test
