// Bytes that are no state, most of them on purpose. Whatever comes, ReadState() answers with
// kProtocol (or a state), soon, and without taking more memory than the bytes deserve.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <string>

#include "base/bytes.h"
#include "base/limits.h"
#include "rendezvous/wire/state_codec.h"
#include "support/bytes.h"
#include "support/state_pickles.h"

namespace muster::wire {
namespace {

using test::pickle::kMorningBytes;
using ::testing::AllOf;
using ::testing::HasSubstr;
namespace p = test::pickle;

/// Reads bytes that stand alone in memory, so that a look past their end is caught by the
/// sanitizer.
Result<RendezvousState> ReadAlone(std::string_view bytes) {
  const auto alone = std::make_unique<char[]>(bytes.size());
  std::copy(bytes.begin(), bytes.end(), alone.get());
  return ReadState({alone.get(), bytes.size()});
}

/// What is wrong with the bytes; fails if nothing is.
std::string Complaint(std::string_view bytes) {
  const auto state = ReadAlone(bytes);
  EXPECT_FALSE(state) << "read " << test::ToHex(bytes);
  if (state) return "";
  EXPECT_EQ(state.error().code, Code::kProtocol);
  EXPECT_LE(state.error().message.size(), 1000u);
  return state.error().message;
}

std::string Repeat(std::string_view piece, size_t times) {
  std::string out;
  out.reserve(piece.size() * times);
  for (size_t i = 0; i < times; ++i) out += piece;
  return out;
}

std::string Get(uint8_t number) { return {'h', static_cast<char>(number)}; }

/// A state with one heartbeat, of a node given as opcodes.
std::string WithNode(const std::string& node) {
  return p::StateWith(
      {{"last_heartbeats", p::Dict({{node, p::DateTime({kMorningBytes, p::Utc()})}})}});
}

std::string WithDeadline(const std::string& time) { return p::StateWith({{"deadline", time}}); }

// --- What is no state at all

TEST(StateHostileTest, Rdzv047ZeroBytesAreAStateError) {
  EXPECT_THAT(Complaint(""), HasSubstr("ends after 0 bytes"));
}

TEST(StateHostileTest, Rdzv047OtherRootsAreStateErrors) {
  for (const std::string& root :
       {p::kNone, p::kTrue, p::kEmptyDict, p::kEmptySet, p::Int(1), p::Text("state"), p::Tuple({}),
        std::string("]"), p::Node("a", 1, 2), p::StateClass(), p::Utc()}) {
    EXPECT_THAT(Complaint(p::Whole(root)), HasSubstr("instead of a rendezvous state"));
  }
  EXPECT_THAT(Complaint(p::Whole(p::StateClass() + ")\x81")), HasSubstr("has no attributes"));
}

TEST(StateHostileTest, Rdzv047InvalidTextIsAStateError) {
  for (const std::string& text : {std::string("\xff"), std::string("\xc3"), std::string("\xc0\x80"),
                                  std::string("a\x80"), std::string("\xed\xa0\x80"),
                                  std::string("\xf4\x90\x80\x80"), std::string("\xe0\x80\x80")}) {
    EXPECT_THAT(Complaint(p::StateWith({{"muster_closed_by", p::Text(text)}})),
                HasSubstr("not UTF-8"));
    EXPECT_THAT(Complaint(WithNode(p::Node(text, 1, 2))), HasSubstr("not UTF-8"));
    EXPECT_THAT(Complaint(p::StateWith({{text, "N"}})), HasSubstr("not UTF-8"));
  }
}

// --- What would run code in Python

TEST(StateHostileTest, Rdzv047Rdzv164OnlyFiveClassesAreAllowed) {
  EXPECT_THAT(Complaint(p::Whole(p::Class("os", "system"))),
              HasSubstr("class os.system at byte 14 is not allowed"));
  const std::string module = "torch.distributed.elastic.rendezvous.dynamic_rendezvous";
  for (const auto& [where, what] : {std::pair<std::string, std::string>{"builtins", "eval"},
                                    {"datetime", "date"},
                                    {"datetime", "datetime.datetime"},
                                    {"datetime", "_NodeDesc"},
                                    {module, "timedelta"},
                                    {module, "_RendezvousState "},
                                    {module, "os"},
                                    {module + ".x", "_NodeDesc"},
                                    {"", ""},
                                    {std::string("datetime\0", 9), "datetime"}}) {
    EXPECT_THAT(Complaint(p::StateWith({{"x", p::Class(where, what)}})),
                HasSubstr("is not allowed"));
  }
  EXPECT_THAT(Complaint(p::Whole(p::Text("datetime") + "N\x93")), HasSubstr("named by"));
}

TEST(StateHostileTest, Rdzv164GadgetsEndBeforeTheyDoAnything) {
  const std::string command = p::Tuple({p::Text("echo")});
  EXPECT_EQ(Complaint("\x80\x04"
                      "cos\nsystem\n" +
                      command + "R."),
            "opcode 0x63 (GLOBAL) at byte 2 is not part of a rendezvous state");
  EXPECT_THAT(Complaint(p::Whole(p::Reduce(p::Class("posix", "system"), command))),
              HasSubstr("posix.system"));
  EXPECT_THAT(Complaint(p::StateWith({{"round", p::Reduce(p::Class("os", "system"), command)}})),
              HasSubstr("os.system"));
  EXPECT_THAT(Complaint("\x80\x04(" + p::Text("echo") + "ios\nsystem\n."), HasSubstr("INST"));
  EXPECT_THAT(Complaint("\x80\x04(cos\nsystem\n" + p::Text("echo") + "o."), HasSubstr("GLOBAL"));
  EXPECT_THAT(Complaint("cos\nsystem\n(S'echo'\ntR."), HasSubstr("no protocol number"));
  EXPECT_THAT(Complaint("\x80\x04Pid\n."), HasSubstr("PERSID"));
  EXPECT_THAT(Complaint("\x80\x04\x82\x01."), HasSubstr("EXT1"));
  EXPECT_THAT(Complaint(p::Whole(p::StateClass() + ")}\x92")), HasSubstr("NEWOBJ_EX"));
}

TEST(StateHostileTest, Rdzv164EveryOtherOpcodeIsRefused) {
  const std::string known =
      "\x80\x95.N\x88\x89KMJ\x8aG\x8cXCB()\x85\x86\x87t]ae}su\x8f\x90\x94hj"
      "\x93\x81"
      "bR";
  for (int opcode = 0; opcode < 256; ++opcode) {
    const char byte = static_cast<char>(opcode);
    const std::string complaint = Complaint(std::string("\x80\x04") + byte + "NNNN.");
    if (known.find(byte) == std::string::npos) {
      EXPECT_THAT(complaint, HasSubstr("is not part of a rendezvous state")) << opcode;
    }
  }
  EXPECT_THAT(Complaint("\x80\x04\x80\x04N."), HasSubstr("(PROTO) at byte 2"));
}

TEST(StateHostileTest, Rdzv165ObjectsAreMadeInOneWayOnly) {
  EXPECT_THAT(Complaint(p::Whole(p::Reduce(p::StateClass(), ")"))), HasSubstr("REDUCE on _Rend"));
  EXPECT_THAT(Complaint(p::Whole(p::Reduce(p::NodeClass(), ")"))),
              HasSubstr("REDUCE on _NodeDesc"));
  EXPECT_THAT(Complaint(p::Whole(p::Class("datetime", "datetime") + ")\x81")), HasSubstr("NEWOBJ"));
  EXPECT_THAT(Complaint(p::Whole(p::StateClass() + p::Tuple({"N"}) + "\x81")),
              HasSubstr("with arguments"));
  EXPECT_THAT(Complaint(p::Whole(p::StateClass() + "]\x81")), HasSubstr("with arguments"));
  EXPECT_THAT(Complaint(p::Whole("N)\x81")), HasSubstr("new object of none"));
  EXPECT_THAT(Complaint(p::Whole("N)R")), HasSubstr("call of none"));
  EXPECT_THAT(Complaint(p::Whole(p::Class("datetime", "datetime") + "NR")), HasSubstr("arguments"));
}

TEST(StateHostileTest, Rdzv165AttributesAreADictWithNames) {
  const std::string object = p::StateClass() + ")\x81";
  EXPECT_THAT(Complaint(p::Whole(object + "Nb")), HasSubstr("instead of a dict"));
  EXPECT_THAT(Complaint(p::Whole(object + p::Tuple({"}", "}"}) + "b")), HasSubstr("of a dict"));
  EXPECT_THAT(Complaint(p::Whole(object + p::Dict({{p::Int(1), "N"}}) + "b")),
              HasSubstr("named by an integer"));
  EXPECT_THAT(Complaint(p::Whole("}}b")), HasSubstr("attributes for a dict"));
  EXPECT_THAT(Complaint(p::Whole(object + "}b}b")), HasSubstr("that has some"));
  // One dict for two objects, and one that changes after it was used: nothing that Python writes.
  EXPECT_THAT(Complaint(p::Whole(object +
                                 "}\x94"
                                 "b" +
                                 object + Get(0) + "b")),
              HasSubstr("another object"));
  EXPECT_THAT(Complaint(p::Whole(object +
                                 "}\x94"
                                 "b" +
                                 Get(0) + p::Text("x") + "Ns")),
              HasSubstr("change after"));
}

// --- Broken bytes

TEST(StateHostileTest, Rdzv166EveryTruncationIsRefused) {
  for (const std::string& whole : {test::Vector3(), test::Vector5(), WriteState(test::State3())}) {
    for (size_t size = 0; size < whole.size(); ++size) Complaint(whole.substr(0, size));
  }
}

TEST(StateHostileTest, Rdzv166TrailingBytesAndFramesThatOverrunAreRefused) {
  EXPECT_THAT(Complaint(test::Vector1() + "."), HasSubstr("1 bytes after the end"));
  EXPECT_THAT(Complaint(test::Vector4() + test::Vector4()), HasSubstr("after the end"));
  for (const uint64_t size : {uint64_t{204}, uint64_t{1} << 31, ~uint64_t{0}}) {
    std::string pickle = test::Vector1();
    pickle.replace(3, 8, test::U64(size));
    EXPECT_THAT(Complaint(pickle), HasSubstr("a frame of"));
  }
}

TEST(StateHostileTest, Rdzv166MemoNumbersAndUnderflowAreChecked) {
  EXPECT_THAT(Complaint(p::Whole(Get(0))), HasSubstr("memo entry 0 of 0"));
  EXPECT_THAT(Complaint(p::Whole("N\x94" + Get(1))), HasSubstr("memo entry 1 of 1"));
  EXPECT_THAT(Complaint(p::Whole("N\x94j" + test::U32(0xffffffff))), HasSubstr("4294967295 of 1"));
  for (const std::string opcodes : {"\x94", "\x85", "N\x86", "NN\x87", "a", "]a", "s", "}Ns", "R",
                                    "NR", "b", "}b", "\x81", "N\x81", "\x93", "N\x93"}) {
    EXPECT_THAT(Complaint(p::Whole(opcodes)), HasSubstr("takes")) << test::ToHex(opcodes);
    // What lies below an open group is out of reach, too.
    EXPECT_THAT(Complaint(p::Whole("NNNN(" + opcodes)), HasSubstr("takes"));
  }
  for (const std::string opcodes : {"u", "e", "\x90", "t"}) {
    EXPECT_THAT(Complaint(p::Whole(opcodes)), HasSubstr("not opened"));
  }
  for (const std::string opcodes : {"(u", "(e", "(\x90", "N((u"}) {
    EXPECT_THAT(Complaint(p::Whole(opcodes)), HasSubstr("belongs to nothing"));
  }
  EXPECT_THAT(Complaint(p::Whole("}(Nu")), HasSubstr("a key without its value"));
  EXPECT_THAT(Complaint(p::Whole("](Nu")), HasSubstr("given to a list"));
  EXPECT_THAT(Complaint(p::Whole("NN")), HasSubstr("2 values"));
  EXPECT_THAT(Complaint(p::Whole("")), HasSubstr("0 values"));
  EXPECT_THAT(Complaint(p::Whole("N(")), HasSubstr("1 open groups"));
}

TEST(StateHostileTest, Rdzv166PromisedLengthsReserveNothing) {
  for (const std::string opcodes : {"X", "B"}) {
    for (const uint32_t length : {uint32_t{1} << 31, ~uint32_t{0}}) {
      EXPECT_THAT(Complaint(p::Whole(opcodes + test::U32(length) + "x")), HasSubstr("ends after"));
    }
  }
  EXPECT_THAT(Complaint(p::Whole("\x8b" + test::U32(0x7fffffff))), HasSubstr("LONG4"));
  EXPECT_THAT(Complaint(p::Whole("\x8d" + test::U64(uint64_t{1} << 62))), HasSubstr("BINUNICODE8"));
  EXPECT_THAT(Complaint(p::Whole("\x8a\xff")), HasSubstr("ends after"));
}

TEST(StateHostileTest, Rdzv166ImpossibleTimesAreRefused) {
  const auto payload = [](std::string_view hex) { return "C\x0a" + test::Hex(hex); };
  for (const char* hex :
       {"0000 01 01 00 00 00 000000", "2710 01 01 00 00 00 000000", "07ea 00 01 00 00 00 000000",
        "07ea 0d 01 00 00 00 000000", "07ea 02 1d 00 00 00 000000", "07ea 01 00 00 00 00 000000",
        "07ea 01 01 18 00 00 000000", "07ea 01 01 00 3c 00 000000", "07ea 01 01 00 00 3c 000000",
        "07ea 01 01 00 00 00 0f4240"}) {
    EXPECT_THAT(Complaint(WithDeadline(p::DateTime({payload(hex), p::Utc()}))),
                HasSubstr("there is no time"));
  }
  const std::string delta = p::TimeDelta({p::Int(0), p::Int(0), p::Int(0)});
  const std::string huge = p::Long(std::string(9, '\x7f'));
  for (const std::string& time :
       {p::DateTime({}), p::DateTime({"N"}), p::DateTime({p::Text("0123456789")}),
        p::DateTime({"C\x09" + std::string(9, '\1')}), p::DateTime({kMorningBytes, "N"}),
        p::DateTime({kMorningBytes, delta}), p::DateTime({kMorningBytes, p::Utc(), "N"}),
        p::TimeZone({}), p::TimeZone({p::Int(0)}), p::TimeZone({delta, p::Int(0)}),
        p::TimeDelta({p::Int(0)}), p::TimeDelta({p::Int(0), p::Int(0), p::kTrue}),
        p::TimeDelta({huge, p::Int(0), p::Int(0)}),
        p::TimeDelta({p::Int(0), "J\xff\xff\xff\xff", p::Int(0)}),
        p::TimeZone({p::TimeDelta({p::Int(1), p::Int(0), p::Int(0)})}),
        p::TimeZone({p::TimeDelta({"J\xff\xff\xff\xff", p::Int(0), p::Int(0)})})}) {
    EXPECT_THAT(Complaint(WithDeadline(time)), HasSubstr("at byte"));
  }
  // A valid time, but in UTC it would be in the year 0.
  const std::string east = p::TimeZone({p::TimeDelta({p::Int(0), p::Int(60), p::Int(0)})});
  EXPECT_THAT(Complaint(WithDeadline(p::DateTime({payload("0001 01 01 00 00 00 000000"), east}))),
              HasSubstr("years 1 to 9999"));
}

TEST(StateHostileTest, AttributesHaveTheirTypes) {
  const std::string big = p::Long(std::string(9, '\x7f'));
  const p::Named wrong = {
      {"round", p::kTrue},
      {"round", "N"},
      {"round", big},
      {"complete", p::Int(1)},
      {"closed", "N"},
      {"deadline", p::Int(1)},
      {"participants", "\x8f"},
      {"wait_list", "}"},
      {"redundancy_list", "]"},
      {"last_heartbeats", "N"},
      {"muster_closed_by", p::Int(1)},
      {"wait_list", p::Set({p::Int(1)})},
      {"wait_list", p::Set({p::StateClass() + ")\x81"})},
      {"participants", p::Dict({{p::Text("a"), p::Int(0)}})},
      {"participants", p::Dict({{p::Node("a", 1, 2), p::kFalse}})},
      {"participants", p::Dict({{p::Node("a", 1, 2), big}})},
      {"last_heartbeats", p::Dict({{p::Node("a", 1, 2), p::Int(0)}})},
  };
  for (const auto& [name, value] : wrong) {
    EXPECT_THAT(Complaint(p::StateWith({{name, value}})), HasSubstr("attribute '" + name + "'"));
  }
  for (const char* name : {"round", "complete", "deadline", "closed", "participants", "wait_list",
                           "last_heartbeats"}) {
    EXPECT_EQ(Complaint(p::StateWith({{name, ""}})), "no attribute '" + std::string(name) + "'");
  }
}

TEST(StateHostileTest, Rdzv166NumbersFromWhichCountingOnWouldOverflowAreRefused) {
  const auto number = [](int64_t value) {
    std::string bytes;
    AppendInt(bytes, value);
    return p::Long(bytes);
  };
  const auto ranked = [](const std::string& rank) {
    return p::StateWith({{"participants", p::Dict({{p::Node("a", 1, 2), rank}})}});
  };
  for (const int64_t round : {int64_t{-1}, std::numeric_limits<int64_t>::min(),
                              std::numeric_limits<int64_t>::max(), (int64_t{1} << 62) + 1}) {
    EXPECT_THAT(Complaint(p::StateWith({{"round", number(round)}})),
                AllOf(HasSubstr("'round'"), HasSubstr("from 0 to")));
  }
  for (const int64_t rank : {int64_t{-7}, int64_t{kStateNodesMax} + 1}) {
    EXPECT_THAT(Complaint(ranked(number(rank))), HasSubstr("'participants'"));
  }
  EXPECT_TRUE(ReadAlone(p::StateWith({{"round", number(int64_t{1} << 62)}})));
  EXPECT_TRUE(ReadAlone(ranked(number(0))));
}

TEST(StateHostileTest, Rdzv166StrangeAttributesAreKeptUpToALimit) {
  const auto with = [](size_t count) {
    p::Named attributes;
    for (size_t i = 0; i < count; ++i) attributes.emplace_back("x" + std::to_string(i), p::Int(1));
    return p::StateWith(attributes);
  };
  EXPECT_EQ(ReadAlone(with(kStateUnknownMax)).value().unknown.size(), kStateUnknownMax);
  EXPECT_THAT(Complaint(with(kStateUnknownMax + 1)), HasSubstr("limit 1024"));
}

TEST(StateHostileTest, NodesHaveTheirAttributes) {
  const auto node = [](const p::Named& attributes) {
    return WithNode(p::NewObject(p::NodeClass(), attributes));
  };
  EXPECT_THAT(
      Complaint(node({{"fqdn", p::Text("a")}, {"pid", p::Int(1)}, {"local_id", p::Int(0)}})),
      HasSubstr("has 'fqdn' instead of 'addr'"));
  EXPECT_EQ(Complaint(node({{"pid", p::Int(1)}, {"local_id", p::Int(0)}})), "no attribute 'addr'");
  EXPECT_EQ(Complaint(node({{"addr", p::Text("a")}, {"pid", p::Int(1)}})),
            "no attribute 'local_id'");
  EXPECT_THAT(Complaint(node({{"addr", p::Text("a")}, {"pid", p::kTrue}, {"local_id", p::Int(0)}})),
              HasSubstr("attribute 'pid': a boolean"));
  EXPECT_THAT(Complaint(WithNode(p::NodeClass() + ")\x81")), HasSubstr("has no attributes"));
  EXPECT_THAT(Complaint(WithNode(p::Node(std::string(1025, 'x'), 1, 2))), HasSubstr("1025 bytes"));
}

// --- Too much

TEST(StateHostileTest, Rdzv166DepthCostsNothing) {
  constexpr size_t kDeep = 1'000'000;
  const std::string tuples = ")" + Repeat("\x85", kDeep);
  EXPECT_THAT(Complaint(p::Whole(tuples)), HasSubstr("a tuple"));
  EXPECT_THAT(Complaint(p::StateWith({{"round", tuples}})), HasSubstr("a tuple"));
  EXPECT_THAT(Complaint(p::StateWith({{"unknown", tuples}})), HasSubstr("nested"));
  EXPECT_THAT(Complaint(p::StateWith({{"unknown", Repeat("]", kDeep) + Repeat("a", kDeep - 1)}})),
              HasSubstr("nested"));
  EXPECT_THAT(Complaint(p::Whole(Repeat("(", kDeep))), HasSubstr("open groups"));
  EXPECT_THAT(Complaint(p::Whole(Repeat("N", 2 * kDeep))), HasSubstr("pending values"));
  // Up to the limit, what is deep survives.
  const std::string allowed = p::StateWith({{"unknown", ")" + Repeat("\x85", kStateDepthMax)}});
  ASSERT_TRUE(ReadAlone(allowed));
  EXPECT_EQ(ReadState(WriteState(*ReadAlone(allowed))).value(), *ReadAlone(allowed));
  const std::string dicts =
      Repeat("}" + p::Int(1), kStateDepthMax) + "}" + Repeat("s", kStateDepthMax);
  const std::string deep_dicts = p::StateWith({{"unknown", dicts}});
  ASSERT_TRUE(ReadAlone(deep_dicts));
  EXPECT_EQ(ReadState(WriteState(*ReadAlone(deep_dicts))).value(), *ReadAlone(deep_dicts));
}

TEST(StateHostileTest, Rdzv166WhatContainsItselfIsRefused) {
  EXPECT_THAT(Complaint(p::StateWith({{"x", "]\x94" + Get(0) + "a"}})), HasSubstr("in itself"));
  EXPECT_THAT(Complaint(p::StateWith({{"x", "]\x94(" + Get(0) + Get(0) + "e"}})), HasSubstr("at"));
  EXPECT_THAT(Complaint(p::StateWith({{"x",
                                       "}\x94"
                                       "N" +
                                           Get(0) + "s"}})),
              HasSubstr("in itself"));
  const std::string node =
      p::NodeClass() + ")\x81\x94" +
      p::Attributes(
          {{"addr", p::Text("a")}, {"pid", p::Int(1)}, {"local_id", p::Int(0)}, {"self", Get(0)}}) +
      "b";
  EXPECT_THAT(Complaint(WithNode(node)), HasSubstr("in itself"));
}

TEST(StateHostileTest, Rdzv166LaughterStaysBounded) {
  // Each list holds the one before ten times: 10^60 items, in a kilobyte.
  std::string lists = "(]\x94";
  for (uint8_t i = 0; i < 60; ++i) lists += "](" + Repeat(Get(i), 10) + "e\x94";
  EXPECT_THAT(Complaint(p::StateWith({{"x", lists + "t"}})), HasSubstr("unfold"));
  // A text, a name and an address of a megabyte (or the most that is allowed), again and again.
  const std::string text = p::Text(std::string(1 << 20, 'x')) + "\x94";
  EXPECT_THAT(Complaint(p::StateWith({{"x", p::List({text, Repeat(Get(0), 1000)})}})),
              HasSubstr("unfold"));
  std::string names;
  std::string addresses;
  for (int i = 0; i < 50'000; ++i) {
    const std::string plain = p::Text("pid") + test::Hex("4d") +
                              test::U32(static_cast<uint32_t>(i)).substr(0, 2) +
                              p::Text("local_id") + p::Int(0);
    const std::string object = Get(1) + ")\x81}(" + plain + p::Text("addr");
    names += object + p::Text("a") + Get(0) + "Nub";
    addresses += object + Get(0) + "ub";
  }
  const std::string start = p::Tuple({text, p::NodeClass() + "\x94"});
  EXPECT_THAT(Complaint(p::StateWith({{"x", start}, {"wait_list", "\x8f(" + names + "\x90"}})),
              HasSubstr("unfold"));
  const std::string address =
      p::Tuple({p::Text(std::string(1024, 'x')) + "\x94", p::NodeClass() + "\x94"});
  EXPECT_THAT(
      Complaint(p::StateWith({{"x", address}, {"wait_list", "\x8f(" + addresses + "\x90"}})),
      HasSubstr("unfold"));
}

TEST(StateHostileTest, Rdzv166OneCollectionManyTimesIsLookedAtOnce) {
  // Given a set of a hundred thousand references, and four hundred thousand times the attribute
  // that it is the value of.
  const std::string node = p::Node("a", 1, 2) + "\x94";
  const std::string set = "\x8f\x94(" + node + Repeat(Get(1), 100'000) + "\x90";
  const std::string name = p::Text("wait_list") + "\x94";
  std::string pickle = p::StateWith({{"redundancy_list", set}, {"x", name}});
  pickle.insert(pickle.size() - 3, Repeat(Get(2) + Get(0), 400'000));
  EXPECT_EQ(ReadAlone(pickle).value().wait_list.size(), 1u);
}

TEST(StateHostileTest, Rdzv166LimitsAreLimits) {
  EXPECT_THAT(Complaint(std::string(kStateBytesMax + 1, 'N')), HasSubstr("limit 6 MiB"));
  std::string values = "]";
  for (int group = 0; group < 5; ++group) values += "(" + Repeat("N", 1'000'000) + "e";
  EXPECT_THAT(Complaint(p::Whole(values)), HasSubstr("values"));
  std::string items = "]N\x94";
  for (int group = 0; group < 3; ++group) items += "(" + Repeat(Get(0), 1'000'000) + "t";
  EXPECT_THAT(Complaint(p::Whole(items)), HasSubstr("items"));
  EXPECT_THAT(Complaint(p::Whole("N" + Repeat("\x94", 5'000'000))), HasSubstr("memo entries"));
  const std::string many =
      "\x8f(" + p::Node("a", 1, 2) + "\x94" + Repeat(Get(0), kStateNodesMax) + "\x90";
  EXPECT_THAT(Complaint(p::StateWith({{"wait_list", many}})), HasSubstr("nodes, limit"));
}

TEST(StateHostileTest, KeysThatPythonCannotHashAreRefused) {
  for (const std::string opcodes : {"]", "}", "\x8f"}) {
    EXPECT_THAT(Complaint(p::StateWith({{"x", p::Dict({{opcodes, "N"}})}})), HasSubstr("as key"));
    EXPECT_THAT(Complaint(p::StateWith({{"x", p::Set({opcodes})}})), HasSubstr("as key"));
  }
}

// --- Anything

void ReadOrRefuse(const std::string& bytes) {
  const auto state = ReadAlone(bytes);
  if (!state) {
    RC_ASSERT(state.error().code == Code::kProtocol);
    return;
  }
  RC_TAG("still a state");
  RC_ASSERT(ReadState(WriteState(*state)).value() == *state);
}

RC_GTEST_PROP(StateHostileTest, Rdzv166AnyBytesAreReadOrRefused, (std::string bytes)) {
  ReadOrRefuse(bytes);
  ReadOrRefuse("\x80\x04" + bytes);
}

RC_GTEST_PROP(StateHostileTest, Rdzv166AnyOpcodesAreReadOrRefused, ()) {
  const std::vector<std::string> pieces = {"N",
                                           "(",
                                           ")",
                                           "]",
                                           "}",
                                           "\x8f",
                                           "\x85",
                                           "\x86",
                                           "\x87",
                                           "t",
                                           "a",
                                           "e",
                                           "s",
                                           "u",
                                           "\x90",
                                           "\x94",
                                           "\x81",
                                           "b",
                                           "R",
                                           "h" + std::string(1, '\0'),
                                           "h\x01",
                                           p::Int(1),
                                           p::Text("round"),
                                           p::NodeClass(),
                                           p::StateClass(),
                                           kMorningBytes,
                                           p::Class("datetime", "datetime"),
                                           p::Utc(),
                                           p::Node("a", 1, 2)};
  std::string body;
  for (const auto& piece :
       *rc::gen::container<std::vector<std::string>>(rc::gen::elementOf(pieces))) {
    body += piece;
  }
  ReadOrRefuse(p::Whole(body));
  ReadOrRefuse(p::StateWith({{"x", body + "N"}}));
}

RC_GTEST_PROP(StateHostileTest, Rdzv166MutationsAreReadOrRefused, ()) {
  std::string bytes = *rc::gen::element(test::Vector3(), test::Vector5(), test::Vector2(),
                                        WriteState(test::State3()));
  const int changes = *rc::gen::inRange(1, 4);
  for (int i = 0; i < changes; ++i) {
    const auto at = *rc::gen::inRange<size_t>(0, bytes.size());
    const int kind = *rc::gen::inRange(0, 4);
    if (kind == 0) bytes[at] = *rc::gen::arbitrary<char>();
    if (kind == 1) bytes.erase(at, *rc::gen::inRange<size_t>(1, 20));
    if (kind == 2) bytes.insert(at, bytes.substr(*rc::gen::inRange<size_t>(0, bytes.size()), 8));
    if (kind == 3) bytes[at] = static_cast<char>(bytes[at] ^ (1 << *rc::gen::inRange(0, 8)));
    if (bytes.empty()) break;
  }
  ReadOrRefuse(bytes);
}

}  // namespace
}  // namespace muster::wire
