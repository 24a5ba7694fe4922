#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <limits>
#include <string>

#include "base/calendar.h"
#include "base/encoding.h"
#include "base/limits.h"
#include "rendezvous/wire/pickle.h"
#include "rendezvous/wire/state_codec.h"
#include "support/bytes.h"
#include "support/state_pickles.h"

namespace muster::wire {
namespace {

using test::kMorning;
using test::pickle::kMorningBytes;
namespace p = test::pickle;

RendezvousState MustRead(std::string_view pickle) {
  const auto state = ReadState(pickle);
  EXPECT_TRUE(state) << state.error().message;
  return state ? *state : RendezvousState{};
}

const Node kNode{.addr = "a", .pid = 1, .local_id = 2};

/// The initial state with one node on the wait list, given as opcodes, and its heartbeat.
std::string WithNode(const std::string& node, const std::string& time) {
  return p::StateWith(
      {{"wait_list", p::Set({node})}, {"last_heartbeats", p::Dict({{node, time}})}});
}

// --- Reading

TEST(StateCodecTest, Rdzv160ReadsTheVectors) {
  EXPECT_EQ(MustRead(test::Vector1()), test::State1());
  EXPECT_EQ(MustRead(test::Vector2()), test::State2());
  EXPECT_EQ(MustRead(test::Vector3()), test::State3());
  EXPECT_EQ(MustRead(test::Vector4()), test::State1());
  EXPECT_EQ(MustRead(test::Vector5()), test::State2());
}

TEST(StateCodecTest, Rdzv160ReadsTheBase64OfTheFirstVector) {
  const std::string cell =
      "gASVywAAAAAAAACMN3RvcmNoLmRpc3RyaWJ1dGVkLmVsYXN0aWMucmVuZGV6dm91cy5keW5hbWljX3JlbmRlenZvdXOU"
      "jBBfUmVuZGV6dm91c1N0YXRllJOUKYGUfZQojAVyb3VuZJRLAIwIY29tcGxldGWUiYwIZGVhZGxpbmWUTowGY2xvc2Vk"
      "lImMDHBhcnRpY2lwYW50c5R9lIwJd2FpdF9saXN0lI+UjA9yZWR1bmRhbmN5X2xpc3SUj5SMD2xhc3RfaGVhcnRiZWF0"
      "c5R9lHViLg==";
  EXPECT_EQ(Base64Decode(cell).value(), test::Vector1());
  EXPECT_EQ(Base64Encode(test::Vector1()), cell);
}

TEST(StateCodecTest, Rdzv162AcceptsProtocolFiveRejectsOthers) {
  for (int protocol = 0; protocol < 256; ++protocol) {
    std::string pickle = test::Vector3();
    pickle[1] = static_cast<char>(protocol);
    const auto state = ReadState(pickle);
    ASSERT_EQ(state.has_value(), protocol == 4 || protocol == 5) << protocol;
    EXPECT_TRUE(state ? *state == test::State3() : state.error().code == Code::kProtocol);
  }
}

TEST(StateCodecTest, Rdzv163ReadsSingleEntriesAndEmptyGroups) {
  const std::string node = p::Node("a", 1, 2);
  const std::string time = p::DateTime({kMorningBytes, p::Utc()});
  const std::string pickle = p::StateWith({{"participants", "}" + node + p::Int(7) + "s"},
                                           {"wait_list", "\x8f(\x90(\x90"},
                                           {"redundancy_list", "\x8f(" + node + "\x90(\x90"},
                                           {"last_heartbeats", "}(u" + node + time + "s"}});
  RendezvousState wanted;
  wanted.participants = {{kNode, 7}};
  wanted.redundancy_list = {kNode};
  wanted.last_heartbeats = {{kNode, kMorning}};
  EXPECT_EQ(MustRead(pickle), wanted);
}

TEST(StateCodecTest, Rdzv163ReadsBatchesOverAThousandAndLongMemoNumbers) {
  // Given nodes that are memoized, in groups as Python writes them, and heartbeats that refer to
  // them, the one memo number in one byte, the other in four.
  std::string list = "\x8f";
  std::string heartbeats = "}";
  RendezvousState wanted;
  for (uint32_t i = 0; i < 2500; ++i) {
    const std::string addr = "node" + std::to_string(i);
    if (i % 1000 == 0) list += i == 0 ? "(" : "\x90(";
    if (i % 1000 == 0) heartbeats += i == 0 ? "(" : "u(";
    list += p::Node(addr, 1, 2) + "\x94";
    heartbeats += i < 256 ? "h" + std::string(1, static_cast<char>(i)) : "j" + test::U32(i);
    heartbeats += p::DateTime({kMorningBytes, p::Utc()});
    wanted.wait_list.insert({.addr = addr, .pid = 1, .local_id = 2});
    wanted.last_heartbeats[{.addr = addr, .pid = 1, .local_id = 2}] = kMorning;
  }
  EXPECT_EQ(
      MustRead(p::StateWith({{"wait_list", list + "\x90"}, {"last_heartbeats", heartbeats + "u"}})),
      wanted);
}

TEST(StateCodecTest, Rdzv163ReadsSeveralFrames) {
  const std::string body = test::Vector4().substr(2);
  const size_t cut = body.find(
      "\x8c\x08"
      "complete");
  const std::string pickle = "\x80\x04\x95" + test::U64(cut) + body.substr(0, cut) + "\x95" +
                             test::U64(body.size() - cut) + body.substr(cut);
  EXPECT_EQ(MustRead(pickle), test::State1());
}

TEST(StateCodecTest, ReadsNumbersOfEverySize) {
  const std::vector<std::pair<std::string, int64_t>> numbers = {
      {"K\xff", 255},
      {"M\xff\xff", 65'535},
      {"J\xff\xff\xff\xff", -1},
      {std::string("J\0\0\0\x80", 5), std::numeric_limits<int32_t>::min()},
      {p::Long(""), 0},
      {p::Long("\xff"), -1},
      {p::Long({"\0\0\0\x80\0", 5}), int64_t{1} << 31},
      {p::Long({"\0\0\0\0\0\0\0\x80", 8}), std::numeric_limits<int64_t>::min()},
      {p::Long("\xff\xff\xff\xff\xff\xff\xff\x7f"), std::numeric_limits<int64_t>::max()},
  };
  for (const auto& [opcodes, number] : numbers) {
    const std::string node = p::NewObject(
        p::NodeClass(), {{"addr", p::Text("a")}, {"pid", opcodes}, {"local_id", p::Int(0)}});
    const RendezvousState state = MustRead(p::StateWith(
        {{"last_heartbeats", p::Dict({{node, p::DateTime({kMorningBytes, p::Utc()})}})}}));
    EXPECT_EQ(state.last_heartbeats.begin()->first.pid, number);
  }
}

TEST(StateCodecTest, ReadsAStateOfAnOldPeerWithoutRedundancyList) {
  EXPECT_EQ(MustRead(p::StateWith({{"redundancy_list", ""}})), RendezvousState{});
}

TEST(StateCodecTest, Rdzv168NoticesTimesWithoutAZone) {
  const std::string naive = p::DateTime({kMorningBytes});
  RendezvousState wanted;
  wanted.wait_list = {kNode};
  wanted.last_heartbeats = {{kNode, kMorning}};
  wanted.naive_times = true;
  EXPECT_EQ(MustRead(WithNode(p::Node("a", 1, 2), naive)), wanted);
  const RendezvousState with_deadline = MustRead(p::StateWith({{"deadline", naive}}));
  EXPECT_EQ(with_deadline.deadline, kMorning);
  EXPECT_TRUE(with_deadline.naive_times);
  // They are written as they were read, and not as something else.
  EXPECT_EQ(MustRead(WriteState(wanted)), wanted);
}

TEST(StateCodecTest, ConvertsOtherZonesToUtc) {
  const auto deadline = [](const p::Pieces& zone) {
    const RendezvousState state =
        MustRead(p::StateWith({{"deadline", p::DateTime({kMorningBytes, p::TimeZone(zone)})}}));
    EXPECT_FALSE(state.naive_times);
    return state.deadline.value();
  };
  const std::string two_hours = "M\x20\x1c";                                 // 7200 s
  const std::string day_less_hour = "J\x70\x43\x01" + std::string(1, '\0');  // 82800 s
  EXPECT_EQ(deadline({p::TimeDelta({p::Int(0), two_hours, p::Int(0)})}), kMorning + -2h);
  EXPECT_EQ(deadline({p::TimeDelta({p::Int(0), two_hours, p::Int(0)}), p::Text("EET")}),
            kMorning + -2h);
  EXPECT_EQ(deadline({p::TimeDelta({"J\xff\xff\xff\xff", day_less_hour, p::Int(0)})}),
            kMorning + 1h);
}

TEST(StateCodecTest, TheLastOfTwoEqualAttributesCounts) {
  const std::string state = p::NewObject(p::StateClass(), {{"round", p::Text("no number")},
                                                           {"round", p::Int(4)},
                                                           {"complete", p::kTrue},
                                                           {"deadline", "N"},
                                                           {"closed", p::kFalse},
                                                           {"participants", "}"},
                                                           {"wait_list", "\x8f"},
                                                           {"last_heartbeats", "}"}});
  EXPECT_EQ(MustRead(p::Whole(state)).round, 4);
}

// --- Writing

TEST(StateCodecTest, WritesOneFrameOfProtocolFour) {
  const std::string pickle = WriteState(test::State3());
  EXPECT_EQ(pickle.substr(0, 3), "\x80\x04\x95");
  EXPECT_EQ(pickle.substr(3, 8), test::U64(pickle.size() - 11));
  EXPECT_LE(pickle.size(), test::Vector3().size());
}

TEST(StateCodecTest, WritesTheSmallestFormOfANumber) {
  const std::vector<std::pair<int64_t, std::string>> numbers = {
      {0, "4b 00"},
      {255, "4b ff"},
      {256, "4d 00 01"},
      {65'535, "4d ff ff"},
      {65'536, "4a 00 00 01 00"},
      {-1, "4a ff ff ff ff"},
      {std::numeric_limits<int32_t>::max(), "4a ff ff ff 7f"},
      {int64_t{1} << 31, "8a 05 00 00 00 80 00"},
      {-(int64_t{1} << 31) - 1, "8a 05 ff ff ff 7f ff"},
      {int64_t{1} << 39, "8a 06 00 00 00 00 80 00"},
      {-(int64_t{1} << 39), "8a 05 00 00 00 00 80"},
      {std::numeric_limits<int64_t>::max(), "8a 08 ff ff ff ff ff ff ff 7f"},
      {std::numeric_limits<int64_t>::min(), "8a 08 00 00 00 00 00 00 00 80"},
  };
  for (const auto& [number, wanted] : numbers) {
    std::string opcodes;
    AppendNumber(opcodes, number);
    EXPECT_EQ(opcodes, test::Hex(wanted)) << number;
  }
}

TEST(StateCodecTest, WritesLongTexts) {
  RendezvousState state;
  for (const size_t size : {0, 255, 256, 1024}) {
    state.wait_list.insert({.addr = std::string(size, 'x'), .pid = 1, .local_id = 0});
  }
  state.closed_by = std::string(100'000, 'y');
  EXPECT_EQ(MustRead(WriteState(state)), state);
}

TEST(StateCodecTest, WritesTextsThatPeersCanRead) {
  RendezvousState state;
  state.closed = true;
  state.closed_by = "h\xc3\xa9: broken \xff\xc3";
  EXPECT_EQ(MustRead(WriteState(state)).closed_by, "h\xc3\xa9: broken \xef\xbf\xbd\xef\xbf\xbd");
}

TEST(StateCodecTest, WritesADeadlineBeyondTheCalendarAsItsEnd) {
  RendezvousState state;
  state.deadline = WallTime{std::numeric_limits<int64_t>::max()};
  EXPECT_EQ(MustRead(WriteState(state)).deadline, kWallTimeMax);
}

TEST(StateCodecTest, WhoClosedItIsWrittenOnlyIfItIsKnown) {
  RendezvousState state;
  state.closed = true;
  EXPECT_EQ(WriteState(state).find("muster_closed_by"), std::string::npos);
  state.closed_by = "host_4711_0: workers failed";
  EXPECT_NE(WriteState(state).find("muster_closed_by"), std::string::npos);
  EXPECT_EQ(MustRead(WriteState(state)), state);
}

TEST(StateCodecTest, Rdzv169StaysSmall) {
  const auto node = [](int i) {
    return Node{.addr = "node-" + std::to_string(100'000'000 + i) + ".cluster.example.com.local",
                .pid = 100'000 + i,
                .local_id = 0};
  };
  for (const auto& [count, most] : {std::pair{5, 2u << 10}, std::pair{50, 16u << 10},
                                    std::pair{500, 160u << 10}, std::pair{5000, 1600u << 10}}) {
    RendezvousState state;
    state.complete = true;
    state.deadline = kMorning;
    for (int i = 0; i < count; ++i) {
      state.participants[node(i)] = i;
      state.wait_list.insert(node(count + i));
    }
    for (int i = 0; i < 2 * count; ++i) state.last_heartbeats[node(i)] = kMorning + i * 1ms;
    ASSERT_EQ(node(0).addr.size(), 40u);
    EXPECT_LE(Base64Encode(WriteState(state)).size(), most) << count;
    EXPECT_EQ(MustRead(WriteState(state)), state);
  }
}

// --- Unknown attributes

/// One value of every kind that may be passed on.
const p::Named kForeign = {
    {"none", p::kNone},
    {"truth", p::kTrue},
    {"big", p::Long(std::string(200, '\x7f'))},
    {"float", "G" + std::string("\x3f\xf8\0\0\0\0\0\0", 8)},
    {"text", p::Text("h\xc3\xa9llo")},
    {"long_text", p::Text(std::string(300, 'z'))},
    {"bytes", std::string("C\x03\0\xff\x80", 5)},
    {"long_bytes", "B" + test::U32(300) + std::string(300, '\xfe')},
    {"tuples", p::Tuple({p::Tuple({}), p::Tuple({p::Int(1)}), p::Tuple({"N", "N"})})},
    {"long_tuple", "(" + p::Int(1) + p::Int(2) + p::Int(3) + p::Int(4) + "t"},
    {"list", p::List({p::Int(1), "]", p::Text("x")})},
    {"dict", p::Dict({{p::Int(1), "}"}, {p::Text("k"), p::Dict({{"N", "N"}})}})},
    {"set", p::Set({p::Int(1), p::Text("x")})},
    {"node", p::Node("elsewhere", 3, 4)},
    {"time", p::DateTime({kMorningBytes, p::Utc()})},
    {"zone", p::TimeZone({p::TimeDelta({p::Int(0), p::Int(60), p::Int(0)}), p::Text("X")})},
};

TEST(StateCodecTest, Rdzv167UnknownAttributesSurvive) {
  p::Named of_node = {{"addr", p::Text("a")}, {"pid", p::Int(1)}, {"local_id", p::Int(2)}};
  of_node.insert(of_node.end(), kForeign.begin(), kForeign.end());
  p::Named of_state = kForeign;
  of_state.emplace_back("wait_list", p::Set({p::NewObject(p::NodeClass(), of_node)}));
  const RendezvousState state = MustRead(p::StateWith(of_state));
  // The values are exactly the bytes that were read, because these were written without the memo.
  const std::map<std::string, std::string> wanted(kForeign.begin(), kForeign.end());
  EXPECT_EQ(state.unknown, wanted);
  EXPECT_EQ(state.unknown_of_nodes.at(kNode), wanted);
  EXPECT_EQ(state.wait_list, std::set<Node>{kNode});
  EXPECT_FALSE(state.naive_times);
  EXPECT_EQ(MustRead(WriteState(state)), state);
}

TEST(StateCodecTest, Rdzv167UnknownValuesAreFreedFromTheMemo) {
  // Given an attribute that refers to a node, a text and a time that were written before.
  const std::string time = p::DateTime({kMorningBytes, p::Utc()});
  const std::string pickle =
      p::StateWith({{"wait_list", p::Set({p::Node("a", 1, 2) + "\x94"})},
                    {"last_heartbeats", p::Dict({{std::string("h\0", 2), time + "\x94"}})},
                    {"spares", p::List({std::string("h\0", 2), std::string("h\x01", 2)})}});
  const RendezvousState state = MustRead(pickle);
  EXPECT_EQ(state.unknown.at("spares"), p::List({p::Node("a", 1, 2), time}));
  EXPECT_EQ(MustRead(WriteState(state)), state);
}

TEST(StateCodecTest, Rdzv167LongListsSurvive) {
  std::string list = "](";
  for (int i = 0; i < 2500; ++i) list += "N";
  const RendezvousState state = MustRead(p::StateWith({{"list", list + "e"}}));
  EXPECT_EQ(MustRead(WriteState(state)), state);
}

// --- All states

rc::Gen<std::string> Texts() {
  return rc::gen::element<std::string>("", "a", "node-1.example.com", "h\xc3\xa9", "10.0.0.7",
                                       "\xf0\x9f\x9a\x80", std::string("nul\0", 4),
                                       std::string(300, 'x'));
}

rc::Gen<int64_t> Numbers() {
  return rc::gen::oneOf(
      rc::gen::inRange<int64_t>(-2, 300), rc::gen::arbitrary<int64_t>(),
      rc::gen::map(rc::gen::inRange(0, 63), [](int n) { return int64_t{1} << n; }));
}

rc::Gen<int64_t> Counts(int64_t most) {
  return rc::gen::oneOf(rc::gen::inRange<int64_t>(0, 300), rc::gen::inRange<int64_t>(0, most + 1),
                        rc::gen::just(most));
}

rc::Gen<WallTime> Times() {
  return rc::gen::map(
      rc::gen::inRange(static_cast<int64_t>(kWallTimeMin), static_cast<int64_t>(kWallTimeMax) + 1),
      [](int64_t us) { return WallTime{us}; });
}

rc::Gen<Node> Nodes() {
  return rc::gen::build<Node>(rc::gen::set(&Node::addr, Texts()),
                              rc::gen::set(&Node::pid, Numbers()),
                              rc::gen::set(&Node::local_id, Numbers()));
}

std::map<std::string, std::string> SomeForeign() {
  std::map<std::string, std::string> some;
  for (const auto& one : *rc::gen::container<p::Named>(rc::gen::elementOf(kForeign))) {
    some.insert(one);
  }
  return some;
}

RendezvousState AnyState() {
  RendezvousState state;
  state.round = *Counts(int64_t{1} << 62);
  state.complete = *rc::gen::arbitrary<bool>();
  state.closed = *rc::gen::arbitrary<bool>();
  state.closed_by = *Texts();
  if (*rc::gen::arbitrary<bool>()) {
    state.completion = {*Counts(int64_t{1} << 62), *Counts(kStateNodesMax)};
  }
  state.unknown = SomeForeign();
  if (*rc::gen::arbitrary<bool>()) state.deadline = *Times();
  for (const Node& node : *rc::gen::container<std::vector<Node>>(Nodes())) {
    const int place = *rc::gen::inRange(0, 3);
    if (place == 0) state.participants[node] = *Counts(kStateNodesMax);
    if (place == 1) state.wait_list.insert(node);
    if (place == 2) state.redundancy_list.insert(node);
    state.last_heartbeats[node] = *Times();
    if (*rc::gen::inRange(0, 4) == 0) state.unknown_of_nodes[node] = SomeForeign();
  }
  std::erase_if(state.unknown_of_nodes, [](const auto& entry) { return entry.second.empty(); });
  const bool has_times = state.deadline || !state.last_heartbeats.empty();
  state.naive_times = has_times && *rc::gen::arbitrary<bool>();
  return state;
}

RC_GTEST_PROP(StateCodecTest, ReadsBackWhatItWrote, ()) {
  const RendezvousState state = AnyState();
  const auto read = ReadState(WriteState(state));
  RC_ASSERT(read.has_value());
  RC_ASSERT(*read == state);
}

}  // namespace
}  // namespace muster::wire
