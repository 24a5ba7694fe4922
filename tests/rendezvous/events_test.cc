// Events: their JSON, where they go, and that unread events cost nothing.
#include "muster/rendezvous_events.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "os/posix/line_writer.h"
#include "rendezvous/event_recorder.h"
#include "support/errors.h"
#include "support/temp_dir.h"

namespace muster::test {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

namespace {

const Node kNode{"host", 4711, 2};
const std::string kEventJson =
    R"({"name": "n", "run_id": "r", "message": "m", "hostname": "h", "pid": 1, )"
    R"("node_state": "RUNNING", "master_endpoint": "", "rank": null, "local_id": 3, )"
    R"("error_trace": ""})";

RendezvousEvent Small() {
  return {.name = "n", .run_id = "r", .message = "m", .hostname = "h", .pid = 1, .local_id = 3};
}

/// The event in this JSON, as any reader of JSON sees it.
RendezvousEvent Read(const std::string& text) {
  const auto json = nlohmann::json::parse(text);
  const auto number = [&](const char* name) {
    return json.at(name).is_null() ? std::nullopt : std::optional(json.at(name).get<int64_t>());
  };
  const std::map<std::string, NodeState> states = {{"INIT", NodeState::kInit},
                                                   {"RUNNING", NodeState::kRunning},
                                                   {"SUCCEEDED", NodeState::kSucceeded},
                                                   {"FAILED", NodeState::kFailed}};
  return {.name = json.at("name"),
          .run_id = json.at("run_id"),
          .message = json.at("message"),
          .hostname = json.at("hostname"),
          .pid = json.at("pid"),
          .node_state = states.at(json.at("node_state")),
          .master_endpoint = json.at("master_endpoint"),
          .rank = number("rank"),
          .local_id = number("local_id"),
          .error_trace = json.at("error_trace")};
}

/// A sink that keeps what it gets.
class Kept {
 public:
  RendezvousEventSink Sink() {
    return [this](const RendezvousEvent& event) { events_.push_back(event); };
  }
  const std::vector<RendezvousEvent>& events() const { return events_; }
  const RendezvousEvent& only() const {
    EXPECT_THAT(events_, SizeIs(1));
    return events_.at(0);
  }

 private:
  std::vector<RendezvousEvent> events_;
};

rc::Gen<uint32_t> CodePoints() {
  return rc::gen::oneOf(rc::gen::inRange<uint32_t>(0, 0x80), rc::gen::inRange<uint32_t>(0, 0xd800),
                        rc::gen::inRange<uint32_t>(0xe000, 0x110000),
                        rc::gen::element<uint32_t>('"', '\\', 0x7f, 0x2028, 0xffff, 0x10ffff));
}

rc::Gen<std::string> Utf8Texts() {
  return rc::gen::map(
      rc::gen::container<std::vector<uint32_t>>(CodePoints()), [](const auto& codes) {
        std::string text;
        for (const uint32_t code : codes) {
          const auto put = [&text](uint32_t byte) { text += static_cast<char>(byte); };
          if (code < 0x80) {
            put(code);
          } else if (code < 0x800) {
            put(0xc0 + code / 0x40), put(0x80 + code % 0x40);
          } else if (code < 0x10000) {
            put(0xe0 + code / 0x1000), put(0x80 + code / 0x40 % 0x40), put(0x80 + code % 0x40);
          } else {
            put(0xf0 + code / 0x40000), put(0x80 + code / 0x1000 % 0x40);
            put(0x80 + code / 0x40 % 0x40), put(0x80 + code % 0x40);
          }
        }
        return text;
      });
}

rc::Gen<std::optional<int64_t>> MaybeNumbers() {
  return rc::gen::map(rc::gen::maybe(rc::gen::arbitrary<int64_t>()), [](const auto& number) {
    return number ? std::optional<int64_t>(*number) : std::nullopt;
  });
}

RendezvousEvent ArbitraryEvent() {
  return {.name = *Utf8Texts(),
          .run_id = *Utf8Texts(),
          .message = *Utf8Texts(),
          .hostname = *Utf8Texts(),
          .pid = *rc::gen::arbitrary<int64_t>(),
          .node_state = *rc::gen::element(NodeState::kInit, NodeState::kRunning,
                                          NodeState::kSucceeded, NodeState::kFailed),
          .master_endpoint = *Utf8Texts(),
          .rank = *MaybeNumbers(),
          .local_id = *MaybeNumbers(),
          .error_trace = *Utf8Texts()};
}

}  // namespace

// A test that sets the sink of the process removes it again.
class ProcessSinkTest : public ::testing::Test {
 protected:
  ~ProcessSinkTest() override { SetRendezvousEventSink(nullptr); }

  Kept kept_;
};

TEST(RendezvousEventTest, Rdzv184HasTheTenKeysInOrderAndSurvivesWritingAndReading) {
  EXPECT_EQ(Small().ToJson(), kEventJson);
  EXPECT_EQ(Read(kEventJson), Small());
  const RendezvousEvent full{.name = "dynamic_rendezvous:f",
                             .run_id = "run \"7\"",
                             .message = "two\nlines\t\\",
                             .hostname =
                                 "gr\xc3\xb6\xc3\x9f"
                                 "e",
                             .pid = std::numeric_limits<int64_t>::min(),
                             .node_state = NodeState::kFailed,
                             .master_endpoint = "a:1",
                             .rank = 0,
                             .local_id = std::numeric_limits<int64_t>::max(),
                             .error_trace = std::string("\0\x7f\xf0\x9f\x98\x80", 6)};
  EXPECT_EQ(full.ToJson(),
            R"({"name": "dynamic_rendezvous:f", "run_id": "run \"7\"", )"
            R"("message": "two\nlines\t\\", "hostname": "gr\u00f6\u00dfe", )"
            R"("pid": -9223372036854775808, "node_state": "FAILED", "master_endpoint": "a:1", )"
            R"("rank": 0, "local_id": 9223372036854775807, )"
            R"("error_trace": "\u0000\u007f\ud83d\ude00"})");
  EXPECT_EQ(Read(full.ToJson()), full);
}

TEST(RendezvousEventTest, WritesTheFourStatesByName) {
  RendezvousEvent event = Small();
  for (const NodeState state :
       {NodeState::kInit, NodeState::kRunning, NodeState::kSucceeded, NodeState::kFailed}) {
    event.node_state = state;
    EXPECT_EQ(Read(event.ToJson()), event);
  }
}

TEST(RendezvousEventTest, WritesBytesThatAreNoUtf8AsReplacementCharacters) {
  RendezvousEvent event = Small();
  event.message = "a\xff\xe2\x82z";
  EXPECT_THAT(event.ToJson(), HasSubstr(R"("a\ufffd\ufffdz")"));
}

TEST(EventRecorderTest, Rdzv185FailuresCarryATraceAndOtherEventsNone) {
  Kept kept;
  const EventRecorder recorder(kept.Sink(), "run");
  recorder.RecordFailure("file:Class.method", &kNode, "no, in line 7");
  EXPECT_EQ(kept.only(), (RendezvousEvent{.name = "file:Class.method",
                                          .run_id = "run",
                                          .message = "no, in line 7",
                                          .hostname = "host",
                                          .pid = 4711,
                                          .node_state = NodeState::kFailed,
                                          .local_id = 2,
                                          .error_trace = "no, in line 7"}));
  recorder.RecordFailure("f", &kNode, "");
  EXPECT_EQ(kept.events().at(1).error_trace, "f");
  for (const NodeState state : {NodeState::kInit, NodeState::kRunning, NodeState::kSucceeded}) {
    recorder.Record("f", state, kNode, "waits for");
    EXPECT_EQ(kept.events().back().node_state, state);
    EXPECT_EQ(kept.events().back().error_trace, "");
  }
}

TEST(EventRecorderTest, Rdzv186OnlyTheEventOfHavingJoinedCarriesARank) {
  Kept kept;
  const EventRecorder recorder(kept.Sink(), "run");
  recorder.RecordJoined("f", kNode, 7, 8, 0);
  recorder.Record("f", NodeState::kRunning, kNode, "waits for");
  recorder.RecordFailure("f", &kNode, "failed");
  EXPECT_EQ(kept.events().at(0).message,
            "node 'host_4711_2' is rank 7 of 8 in round 0 of "
            "rendezvous 'run'");
  EXPECT_EQ(kept.events().at(0).rank, 7);
  EXPECT_EQ(kept.events().at(0).node_state, NodeState::kRunning);
  EXPECT_EQ(kept.events().at(1).rank, std::nullopt);
  EXPECT_EQ(kept.events().at(2).rank, std::nullopt);
}

TEST(EventRecorderTest, Rdzv187WithoutASinkNothingIsBuilt) {
  struct Piece {
    operator std::string_view() const { return ++*built, "text"; }  // NOLINT: implicit
    int* built;
  };
  int built = 0;
  const EventRecorder recorder(nullptr, "run");
  EXPECT_FALSE(recorder.enabled());
  recorder.Record("f", NodeState::kRunning, kNode, Piece{&built});
  recorder.RecordOfProcess("f", NodeState::kRunning, Piece{&built});
  EXPECT_EQ(built, 0);
  SetRendezvousEventSink([](const RendezvousEvent&) {});
  recorder.Record("f", NodeState::kRunning, kNode, Piece{&built});
  SetRendezvousEventSink(nullptr);
  EXPECT_EQ(built, 1);
}

TEST(EventRecorderTest, AnEventWithoutANodeComesFromTheProcess) {
  Kept kept;
  const EventRecorder recorder(kept.Sink(), "run", "this.machine");
  recorder.RecordOfProcess("f", NodeState::kInit, "serves");
  EXPECT_EQ(kept.only().hostname, "this.machine");
  EXPECT_EQ(kept.only().pid, ::getpid());
  EXPECT_EQ(kept.only().local_id, std::nullopt);
  EXPECT_EQ(kept.only().message, "serves");
}

TEST(EventRecorderTest, ASinkThatThrowsHarmsNoCaller) {
  const EventRecorder recorder([](const RendezvousEvent&) { throw std::runtime_error("full"); },
                               "run");
  EXPECT_NO_THROW(recorder.Record("f", NodeState::kRunning, kNode, "waits for"));
  EXPECT_NO_THROW(recorder.RecordJoined("f", kNode, 0, 1, 0));
  EXPECT_NO_THROW(recorder.RecordFailure("f", &kNode, "failed"));
}

TEST_F(ProcessSinkTest, IsLookedUpForEachEvent) {
  const EventRecorder recorder(nullptr, "run");
  recorder.Record("before", NodeState::kRunning, kNode, "waits for");
  SetRendezvousEventSink(kept_.Sink());
  EXPECT_TRUE(recorder.enabled());
  recorder.Record("during", NodeState::kRunning, kNode, "waits for");
  SetRendezvousEventSink(nullptr);
  EXPECT_FALSE(recorder.enabled());
  recorder.Record("after", NodeState::kRunning, kNode, "waits for");
  EXPECT_EQ(kept_.only().name, "during");
}

TEST_F(ProcessSinkTest, IsNotForThoseWithTheirOwn) {
  Kept own;
  SetRendezvousEventSink(kept_.Sink());
  EventRecorder(own.Sink(), "run").Record("f", NodeState::kRunning, kNode, "waits for");
  EXPECT_THAT(own.events(), SizeIs(1));
  EXPECT_THAT(kept_.events(), IsEmpty());
}

TEST_F(ProcessSinkTest, MayReplaceItself) {
  SetRendezvousEventSink([this](const RendezvousEvent&) { SetRendezvousEventSink(kept_.Sink()); });
  const EventRecorder recorder(nullptr, "run");
  recorder.Record("first", NodeState::kRunning, kNode, "waits for");
  recorder.Record("second", NodeState::kRunning, kNode, "waits for");
  EXPECT_EQ(kept_.only().name, "second");
}

TEST(EventsToStderrTest, WritesOneLineForEachEvent) {
  ::testing::internal::CaptureStderr();
  EventsToStderr()(Small());
  EventsToStderr()(Small());
  EXPECT_TRUE(StandardError().Flush(std::chrono::seconds(60)));
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), kEventJson + "\n" + kEventJson + "\n");
}

TEST(EventsToFileTest, AppendsOneLineForEachEventAtOnce) {
  const TempDir dir;
  const std::string path = dir.File("events");
  WriteFile(path, "was here\n");
  const RendezvousEventSink sink = EventsToFile(path);
  const RendezvousEventSink another = EventsToFile(path);
  const RendezvousEventSink copy = sink;
  sink(Small());
  EXPECT_EQ(ReadFile(path), "was here\n" + kEventJson + "\n");
  another(Small());
  copy(Small());
  EXPECT_EQ(ReadFile(path),
            "was here\n" + kEventJson + "\n" + kEventJson + "\n" + kEventJson + "\n");
}

TEST(EventsToFileTest, ReportsWhyAFileCannotBeOpened) {
  const TempDir dir;
  const std::string path = dir.File("missing/events");
  EXPECT_THAT(ErrorOf<std::runtime_error>([&] { EventsToFile(path); }),
              AllOf(HasSubstr(path), HasSubstr("No such file")));
}

RC_GTEST_PROP(RendezvousEventTest, SurvivesWritingAndReadingWhateverItsTextIs, ()) {
  const RendezvousEvent event = ArbitraryEvent();
  const std::string json = event.ToJson();
  RC_ASSERT(Read(json) == event);
  RC_ASSERT(std::all_of(json.begin(), json.end(), [](char c) { return c >= 0x20 && c < 0x7f; }));
}

RC_GTEST_PROP(RendezvousEventTest, AnyBytesBecomeJsonThatCanBeRead, (std::string bytes)) {
  RendezvousEvent event = Small();
  event.message = bytes;
  const RendezvousEvent read = Read(event.ToJson());
  RC_ASSERT(Read(read.ToJson()) == read);
}

}  // namespace muster::test
