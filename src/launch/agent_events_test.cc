#include "launch/agent_events.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "base/text.h"
#include "support/temp_dir.h"

namespace muster {
namespace {

using nlohmann::json;
using test::ReadFile;
using test::TempDir;
using testing::HasSubstr;

constexpr WallTime kNow{1'769'851'230'123'456};

AgentEventRecord AgentSucceeded() {
  return {.state = "SUCCEEDED",
          .run_id = "llama",
          .group_rank = 1,
          .group_world_size = 2,
          .hostname = "node7.example.org",
          .total_run_time_seconds = 17,
          .rdzv_backend = "c10d",
          .entry_point = "/opt/train.py",
          .agent_restarts = 3};
}

AgentEventRecord WorkerFailed() {
  AgentEventRecord event = AgentSucceeded();
  event.state = "FAILED";
  event.raw_error = "{\"message\": \"m\"}";
  event.worker = EventWorker{.ranks = {.first_rank = 4, .first_role_rank = 3, .role_world_size = 8},
                             .local_rank = 1,
                             .pid = 4242,
                             .failed_with = -11};
  return event;
}

/// What a sink with these options writes to its console for one event.
std::string ConsoleOutput(AgentEventSinkOptions options, const AgentEventRecord& event) {
  std::string heard;
  options.console = [&](std::string_view line) { heard += Concat(line, '\n'); };
  auto sink = OpenAgentEventSink(options);
  EXPECT_TRUE(sink.has_value());
  if (sink && *sink) (*sink)(event, kNow);
  return heard;
}

TEST(AgentEventsTest, AnEventOfTheAgentIsOneLine) {
  EXPECT_EQ(
      AgentSucceeded().ToJsonLine(),
      R"({"name":"torchelastic.worker.status.SUCCEEDED","source":"AGENT","timestamp":0,"metadata":)"
      R"({"run_id":"llama","global_rank":null,"group_rank":1,"worker_id":null,"role":"default",)"
      R"("hostname":"node7.example.org","state":"SUCCEEDED","total_run_time":17,)"
      R"("rdzv_backend":"c10d","raw_error":null,)"
      R"("metadata":"{\"group_world_size\":2,\"entry_point\":\"train.py\"}",)"
      R"("agent_restarts":3,"duration_ms":null}})");
}

TEST(AgentEventsTest, Launch141_TimestampsAreZeroWorkerIdAndInnerMetadataAreText) {
  const json event = json::parse(WorkerFailed().ToJsonLine());
  EXPECT_EQ(event["timestamp"], 0);
  EXPECT_EQ(event["metadata"]["worker_id"], "4242");
  ASSERT_TRUE(event["metadata"]["metadata"].is_string());
  EXPECT_TRUE(json::accept(event["metadata"]["metadata"].get<std::string>()));
}

TEST(AgentEventsTest, AWorkersEventTellsItsRanksAndItsEnd) {
  const json event = json::parse(WorkerFailed().ToJsonLine());
  EXPECT_EQ(event["source"], "WORKER");
  EXPECT_EQ(event["name"], "torchelastic.worker.status.FAILED");
  EXPECT_EQ(event["metadata"]["global_rank"], 5);
  EXPECT_EQ(event["metadata"]["raw_error"], "{\"message\": \"m\"}");
  EXPECT_EQ(json::parse(event["metadata"]["metadata"].get<std::string>()),
            json::parse(R"({"group_world_size": 2, "entry_point": "train.py", "local_rank": [1],
                "role_rank": [4], "role_world_size": [8], "exit_code": [-11],
                "worker_pid": [4242]})"));
}

TEST(AgentEventsTest, OfAWorkerThatDidNotFailNeitherCodeNorPidIsInside) {
  AgentEventRecord event = WorkerFailed();
  event.worker->failed_with.reset();
  const json inner =
      json::parse(json::parse(event.ToJsonLine())["metadata"]["metadata"].get<std::string>());
  EXPECT_EQ(inner["exit_code"], json::array({nullptr}));
  EXPECT_EQ(inner["worker_pid"], json::array({nullptr}));
}

TEST(AgentEventsTest, BeforeTheFirstRoundRankAndSizeAreNull) {
  const AgentEventRecord event{.state = "RENDEZVOUS", .duration_ms = 1200};
  const json line = json::parse(event.ToJsonLine());
  EXPECT_TRUE(line["metadata"]["group_rank"].is_null());
  EXPECT_EQ(line["metadata"]["duration_ms"], 1200);
  EXPECT_EQ(line["metadata"]["metadata"], R"({"group_world_size":null,"entry_point":""})");
}

TEST(AgentEventsTest, AWatchdogsEventHasItsOwnName) {
  AgentEventRecord event = AgentSucceeded();
  event.state = "RUNNING";
  event.watchdog = "timer expired";
  event.watchdog_details = {{"worker_pid", "7"}, {"signal", "9"}};
  const json line = json::parse(event.ToJsonLine());
  EXPECT_EQ(line["name"], "timer expired");
  EXPECT_EQ(line["metadata"]["state"], "RUNNING");
  EXPECT_EQ(line["metadata"]["metadata"],
            R"({"watchdog_event":"timer expired","worker_pid":"7","signal":"9"})");
}

TEST(AgentEventsTest, AnyTextStaysOnOneLineOfAscii) {
  AgentEventRecord event = WorkerFailed();
  event.run_id = "a\nb\xff\xe2\x82\xac\x1b";
  event.raw_error = std::string("\0\r", 2);
  for (const char c : event.ToJsonLine(kNow)) EXPECT_TRUE(c >= 0x20 && c < 0x7f) << int{c};
}

TEST(AgentEventSinkTest, TheConsoleGetsOneLineForEachEvent) {
  EXPECT_EQ(ConsoleOutput({.name = "console"}, AgentSucceeded()),
            AgentSucceeded().ToJsonLine() + "\n");
}

TEST(AgentEventSinkTest, Launch144_HigherLogLevelsSilenceTheConsole) {
  for (const char* level : {"WARNING", "WARN", "ERROR", "CRITICAL", "FATAL", "warning"}) {
    EXPECT_EQ(ConsoleOutput({.name = "console", .log_level = level}, AgentSucceeded()), "")
        << level;
  }
  for (const char* level : {"", "INFO", "DEBUG", "NOTSET", "no such level"}) {
    EXPECT_NE(ConsoleOutput({.name = "console", .log_level = level}, AgentSucceeded()), "")
        << level;
  }
}

TEST(AgentEventSinkTest, NullIsTheDefaultAndSaysNothing) {
  EXPECT_EQ(ConsoleOutput({}, AgentSucceeded()), "");
  EXPECT_EQ(ConsoleOutput({.name = "dynamic_rendezvous"}, AgentSucceeded()), "");
}

TEST(AgentEventSinkTest, AnUnknownSinkIsRefusedWithTheNamesOfThoseThereAre) {
  for (const char* name : {"nope", "", "Console", "file", "file:"}) {
    const auto sink = OpenAgentEventSink({.name = name});
    ASSERT_FALSE(sink.has_value()) << name;
    EXPECT_EQ(sink.error().code, Code::kInvalid);
    EXPECT_EQ(sink.error().message, Concat("there is no event log handler '", name,
                                           "'; known are null, console and file:PATH"));
  }
}

TEST(AgentEventSinkTest, AFileIsAppendedToAndTellsTheTime) {
  const TempDir folder;
  const std::string path = folder.File("events.jsonl");
  test::WriteFile(path, "before\n");
  for (int i = 0; i < 2; ++i) {
    auto sink = OpenAgentEventSink({.name = "file:" + path, .log_level = "ERROR"});
    ASSERT_TRUE(sink.has_value());
    (*sink)(AgentSucceeded(), kNow);
  }
  json expected = json::parse(AgentSucceeded().ToJsonLine());
  expected["time"] = "2026-01-31T09:20:30.123456Z";
  const std::string line = AgentSucceeded().ToJsonLine(kNow);
  EXPECT_EQ(json::parse(line), expected);
  EXPECT_EQ(ReadFile(path), Concat("before\n", line, "\n", line, "\n"));
}

TEST(AgentEventSinkTest, AFileThatCannotBeOpenedIsAnErrorThatNamesIt) {
  const TempDir folder;
  ASSERT_EQ(mkfifo(folder.File("fifo").c_str(), 0600), 0);
  for (const char* name : {"none/events", "fifo"}) {
    const auto sink = OpenAgentEventSink({.name = "file:" + folder.File(name)});
    ASSERT_FALSE(sink.has_value()) << name;
    EXPECT_EQ(sink.error().code, Code::kUnavailable);
    EXPECT_THAT(sink.error().message, HasSubstr(folder.File(name)));
  }
}

TEST(AgentEventSinkTest, LostEventsAreSaidOnce) {
  std::string heard;
  const auto console = [&](std::string_view line) { heard += Concat(line, '\n'); };
  auto sink = OpenAgentEventSink({.name = "file:/dev/full", .console = console});
  ASSERT_TRUE(sink.has_value());
  for (int i = 0; i < 3; ++i) (*sink)(AgentSucceeded(), kNow);
  EXPECT_EQ(heard, "muster: events are lost: /dev/full: No space left on device\n");
}

}  // namespace
}  // namespace muster
