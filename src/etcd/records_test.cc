#include "etcd/records.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "base/text.h"

namespace muster::wire {
namespace {

using ::testing::HasSubstr;

EtcdMember SomeMember() {
  return {.hello = {.run_id = "",
                    .node = {"host_1", 4711, 2},
                    .settings = {.min_nodes = 2,
                                 .max_nodes = 4,
                                 .last_call = 1500ms,
                                 .keep_alive_interval = 2s,
                                 .keep_alive_max_attempt = 5,
                                 .grace = 0s,
                                 .policy = RankPolicy::kLabel,
                                 .forming = Forming{.reform_timeout = 0s,
                                                    .rejoin_window = 1500ms,
                                                    .expected = 3}},
                    .label = "rack \"7\"",
                    .bootstrap_port = 29500,
                    .round = 3},
          .serial = 9,
          .request = EtcdMember::Request::kJoin,
          .join_timeout = 60s,
          .closes = true,
          .close_reason = "enough"};
}

TEST(EtcdRecordsTest, KeysAreReadableAndSafe) {
  const EtcdKeys keys("/muster", "my run/2");
  EXPECT_EQ(keys.Leader(), "/muster/my%20run%2F2/leader");
  EXPECT_EQ(keys.Member({"fe80::1%eth0", 1, 0}), "/muster/my%20run%2F2/members/fe80::1%25eth0_1_0");
  EXPECT_EQ(keys.Plan("3-17", 2), "/muster/my%20run%2F2/plans/3-17/2");
  EXPECT_TRUE(keys.Notice({"h", 1, 0}).starts_with(keys.Notices()));
  // No run's keys are among another one's.
  EXPECT_FALSE(EtcdKeys("/muster", "a/b").root().starts_with(EtcdKeys("/muster", "a").root()));
}

TEST(EtcdRecordsTest, KeysTellTheirRun) {
  const EtcdKeys keys("/muster", "my run/2");
  for (const std::string& key : {keys.Status(), keys.Run(), keys.Member({"a", 1, 0})})
    EXPECT_EQ(EtcdKeys::RunOf("/muster", key), "my run/2") << key;
  for (const char* key :
       {"/muster/status", "/muster//status", "/muster/a/b/status", "/muster/a/statust",
        "/other/a/status", "/musterx/a/status", "/muster/%/status", "/muster/store/keys/a"})
    EXPECT_EQ(EtcdKeys::RunOf("/muster", key), std::nullopt) << key;
}

TEST(EtcdRecordsTest, MembersAreReadAsTheyWereWritten) {
  const EtcdMember member = SomeMember();
  const auto read = Read<EtcdMember>("key", Write(member));
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(Write(*read), Write(member));
  EXPECT_EQ(read->hello.node, member.hello.node);
  EXPECT_EQ(read->hello.settings, member.hello.settings);
  EXPECT_EQ(read->hello.round, 3);
  EXPECT_EQ(read->request, EtcdMember::Request::kJoin);
  EXPECT_EQ(read->join_timeout, 60s);
  EXPECT_TRUE(read->closes);
}

TEST(EtcdRecordsTest, ARecordOfAnEarlierVersionSaysNothingOfForming) {
  EtcdMember member = SomeMember();
  const std::string with = Write(member);
  member.hello.settings.forming.reset();
  const std::string without = Write(member);
  EXPECT_THAT(with,
              HasSubstr(R"("reform_timeout_ms": 0, "rejoin_window_ms": 1500, "expected": 3)"));
  EXPECT_THAT(without, ::testing::Not(HasSubstr("reform_timeout_ms")));
  EXPECT_THAT(without, ::testing::Not(HasSubstr("rejoin_window_ms")));
  const auto read = Read<EtcdMember>("key", without);
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->hello.settings, member.hello.settings);
}

TEST(EtcdRecordsTest, AStatusSaysHowLongNodesAreHeldBack) {
  RunReport report{.id = "", .phase = RunReport::Phase::kComplete, .held_left = 7s};
  report.settings.grace = 0s;
  const auto read = Read<RunReport>("key", Write(report));
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(*read, report);
}

TEST(EtcdRecordsTest, NoticesAreReadAsTheyWereWritten) {
  const EtcdNotice notice{.session = 5,
                          .lease = 6,
                          .serial = 2,
                          .stage = {.kind = Push::Kind::kComplete,
                                    .refusal = Push::Refusal::kPast,
                                    .round = 4,
                                    .count = 8,
                                    .why = "w"},
                          .is_final = true,
                          .place = {.kind = Push::Kind::kComplete,
                                    .round = 4,
                                    .rank = 0,
                                    .world_size = 8,
                                    .token = 77,
                                    .addr = "h",
                                    .port = 1,
                                    .who = "4-17"},
                          .lost = {.kind = Push::Kind::kLost, .count = 2, .who = "a", .why = "b"},
                          .waiting = 3,
                          .closed = true,
                          .closing = {.kind = Push::Kind::kClosed, .graceful = true, .who = "c"}};
  EXPECT_EQ(
      Write(notice),
      R"({"session": 5, "lease": 6, "said": 2, "stage": "complete", "stage_round": 4, )"
      R"("count": 8, "why": "w", "refusal": "past", "for_good": true, "round": 4, "rank": 0, )"
      R"("world_size": 8, "addr": "h", "port": 1, "plan": "4-17", "lost": 2, )"
      R"("lost_who": "a", "lost_why": "b", "nodes_waiting": 3, "closed": true, )"
      R"("graceful": true, "closed_by": "c", "run_lease": 77})");
  auto read = Read<EtcdNotice>("key", Write(notice));
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(Write(*read), Write(notice));
  EXPECT_EQ(read->place.count, 8);
  EXPECT_EQ(read->lost.round, 4);
  EXPECT_EQ(read->closing.round, 4);
  read = Read<EtcdNotice>("key", Write(EtcdNotice{.session = 1}));
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(Write(*read), R"({"session": 1, "stage": "opened"})");
  EXPECT_EQ(read->place.round, -1);
}

TEST(EtcdRecordsTest, RunsAreReadAsTheyWereWritten) {
  const EtcdRun run{.settings = SomeMember().hello.settings,
                    .settings_of = "n",
                    .round = 0,
                    .world_size = 2,
                    .addr = "a",
                    .port = 3,
                    .plan = "0-9",
                    .parts = 1,
                    .closed = true,
                    .closed_by = "x"};
  const auto read = Read<EtcdRun>("key", Write(run));
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(Write(*read), Write(run));
  EXPECT_EQ(read->round, 0);
}

TEST(EtcdRecordsTest, APlanKeepsNamesWithSpaces) {
  const std::vector<EtcdPlace> places{{.node = {"  rack 7 ", 4711, 2}, .session = 17, .rank = 3}};
  const auto read = ReadPlan("key", WritePlan(places).at(0));
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->at(0).node, places[0].node);
}

TEST(EtcdRecordsTest, APlanOfManyNodesIsCutIntoValuesThatEtcdTakes) {
  std::vector<EtcdPlace> seats;
  for (int64_t i = 0; i < 20'000; ++i)
    seats.push_back({.node = {Concat("node", i, ".some.cluster"), 1, 0}, .session = i, .rank = i});
  const auto parts = WritePlan(seats);
  EXPECT_GT(parts.size(), 1u);
  std::vector<EtcdPlace> read;
  for (const std::string& part : parts) {
    EXPECT_LT(part.size(), 1024u * 1024);
    const auto more = ReadPlan("key", part);
    ASSERT_TRUE(more) << more.error().message;
    read.insert(read.end(), more->begin(), more->end());
  }
  ASSERT_EQ(read.size(), seats.size());
  EXPECT_EQ(read.back().node, seats.back().node);
  EXPECT_EQ(read.back().rank, 19'999);
}

TEST(EtcdRecordsTest, StatusIsReadAsItWasWritten) {
  const RunReport report{
      .id = "",
      .phase = RunReport::Phase::kLastCall,
      .round = 2,
      .settings = SomeMember().hello.settings,
      .world_size = 0,
      .participants = 1,
      .waiting = 2,
      .spares = 3,
      .idle = 4,
      .last_call_left = 700ms,
      .closed_by = "x",
      .members = {{.node = {"a", 1, 0}, .role = MemberReport::Role::kParticipant},
                  {.node = {"b", 1, 0}, .role = MemberReport::Role::kIdle}}};
  const auto read = Read<RunReport>("key", Write(report));
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(*read, report);
}

TEST(EtcdRecordsTest, StatusOfACompleteRoundHasItsRanks) {
  const RunReport report{
      .id = "",
      .phase = RunReport::Phase::kComplete,
      .settings = SomeMember().hello.settings,
      .world_size = 2,
      .participants = 2,
      .waiting = 1,
      .members = {{.node = {"b", 1, 0}, .role = MemberReport::Role::kParticipant, .rank = 1},
                  {.node = {"a", 1, 0}, .role = MemberReport::Role::kParticipant, .rank = 0},
                  {.node = {"c", 1, 0}, .role = MemberReport::Role::kWaiting}}};
  std::string json = Write(report);
  EXPECT_EQ(*Read<RunReport>("key", json), report);
  // A status with fewer ranks, or none, is read without them.
  json.replace(json.find(R"(["1", "0"])"), 10, R"(["1"])");
  const auto read = Read<RunReport>("key", json);
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->members.size(), 3u);
  EXPECT_EQ(read->members[0].rank, -1);
}

TEST(EtcdRecordsTest, WhatSomebodyElseWroteIsRefusedWithItsKey) {
  const auto with = [](std::string json, std::string_view part, std::string_view instead) {
    const size_t at = json.find(part);
    EXPECT_NE(at, json.npos) << part;
    return json.replace(at, part.size(), instead);
  };
  const std::string member = Write(SomeMember());
  for (const auto& [part, instead] : std::vector<std::pair<const char*, const char*>>{
           {R"("pid": 4711)", R"("pid": -1)"},
           {R"("pid": 4711, )", ""},
           {R"("wish": "join")", R"("wish": "sleep")"},
           {R"("port": 29500)", R"("port": 65536)"},
           {R"("min_nodes": 2)", R"("min_nodes": 0)"},
           {R"("rank_policy": "label")", R"("rank_policy": "best")"}}) {
    const auto read = Read<EtcdMember>("/m/k", with(member, part, instead));
    ASSERT_FALSE(read) << instead;
    EXPECT_EQ(read.error().code, Code::kProtocol);
    EXPECT_THAT(read.error().message, HasSubstr("/m/k"));
  }
  EXPECT_FALSE(
      Read<EtcdNotice>("k", R"({"session": 1, "stage": "complete", "refusal": "", "round": 1,
                                       "rank": 2, "world_size": 2})"));
  EXPECT_FALSE(Read<EtcdNotice>("k", R"({"stage": "opened"})"));
  EXPECT_FALSE(Read<EtcdRun>("k", "{}"));
  EXPECT_FALSE(ReadPlan("k", R"({"seats": ["0 1 nobody"]})"));
  EXPECT_FALSE(ReadPlan("k", R"({"seats": ["0 1"]})"));
}

}  // namespace
}  // namespace muster::wire
