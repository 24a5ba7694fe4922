// Nodes that send queries and do not read, and nodes that try to exhaust a server: their cost is
// bounded, and others are served.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "muster/store_server.h"
#include "support/process_limits.h"
#include "support/server_process.h"
#include "support/session_talker.h"

namespace muster::test {

using ::testing::IsEmpty;
using ::testing::SizeIs;

using Kind = Push::Kind;
using Said = SessionTalker::Said;

namespace {

RunSettings AfterAnHour() {
  RunSettings settings = Patient(1, 1'000);
  settings.grace = std::chrono::hours(1);
  return settings;
}

/// Gives the run so many nodes with labels of so many bytes. They stay when their connections end.
void Populate(uint16_t port, int nodes, size_t label_bytes) {
  for (int i = 0; i < nodes; ++i) {
    Hello hello = HelloOf("n" + std::to_string(i), AfterAnHour(), "crowd");
    hello.label = std::string(label_bytes, 'l');
    SessionTalker(port, hello);
  }
}

/// With little room for replies in the kernel.
SessionTalker Stingy(uint16_t port, const std::string& name) {
  SessionTalker talker(port);
  talker.LimitBuffers(256 * 1024);
  talker.Open(HelloOf(name, AfterAnHour(), "crowd"));
  return talker;
}

constexpr size_t kMebibyte = 1 << 20;

}  // namespace

TEST(SessionFloodTest, TheServerStopsReadingFromANodeThatDoesNotReadItsAnswers) {
  ServerProcess server({.host = "127.0.0.1", .threads = 1});
  Populate(server.port(), 1'300, 250);  // 400 KB for each status
  SessionTalker other(server.port(), HelloOf("other", Patient(2, 2)));
  const size_t before = server.ResidentBytes();

  SessionTalker greedy = Stingy(server.port(), "greedy");
  const std::string status =
      FrameOf({.kind = Said::kStatus, .run_id = "crowd", .names_max = 2'000});
  const size_t sent = SendUntilRefused(greedy, status, 64 * kMebibyte, [&] { other.Settle(); });
  EXPECT_LT(sent, 32 * kMebibyte) << "it was read on and on";
  EXPECT_GT(sent / status.size(), 1'000u) << "too few to show anything";
  if (kMemoryIsMeasurable) {
    EXPECT_LT(server.ResidentBytes(), before + 24 * kMebibyte);
  }
  // Others meet meanwhile.
  SessionTalker another(server.port(), HelloOf("another", Patient(2, 2)));
  another.Join();
  another.Hear(Kind::kAdmitted);
  other.Join();
  another.Hear(Kind::kComplete);
  other.Hear(Kind::kComplete);
  greedy.Close();
  EXPECT_THAT(other.HeardSoFar(), IsEmpty());
  EXPECT_EQ(server.Stop(), 0);
}

TEST(SessionFloodTest, ANodeThatFinallyReadsGetsEveryAnswerInOrder) {
  const StoreServer server({.host = "127.0.0.1", .threads = 1});
  Populate(server.port(), 50, 250);
  SessionTalker other(server.port());
  SessionTalker late = Stingy(server.port(), "late");
  constexpr int kTimes = 1'000;
  std::string requests;
  for (int i = 0; i < kTimes; ++i)
    requests +=
        AddBytes("/n", 1) + FrameOf({.kind = Said::kStatus, .run_id = "crowd", .names_max = 1'000});
  late.Send(requests);
  for (int i = 0; i < 100; ++i) other.Settle();
  for (int i = 0; i < kTimes; ++i) {
    ASSERT_EQ(late.ReceiveNumber(), i + 1);
    ASSERT_THAT(late.HearStatus().at(0).members, SizeIs(51));
  }
  EXPECT_THAT(late.HeardSoFar(), IsEmpty());
}

TEST(SessionFloodTest, AStatusOfAllNodesButOneTakesNoLongerThanOfAll) {
  const StoreServer server({.host = "127.0.0.1", .threads = 1});
  constexpr int kNodes = 16'000;
  Populate(server.port(), kNodes, 0);
  SessionTalker asker(server.port());
  EXPECT_TRUE(EventuallyTrue([&] { return asker.Status("crowd", 1).at(0).idle == kNodes; }));
  milliseconds all = kPatience;
  milliseconds but_one = kPatience;
  const auto time = [&](uint32_t names_max, milliseconds& shortest) {
    const Stopwatch watch;
    asker.Status("crowd", names_max);
    shortest = std::min(shortest, watch.Elapsed());
  };
  // The shortest of several tells what the work costs; a single one may have waited for a core.
  for (int i = 0; i < 5; ++i) {
    time(kNodes, all);
    time(kNodes - 1, but_one);
  }
  EXPECT_LT(but_one, 2 * all + milliseconds(50)) << "each is compared with all others";
}

TEST(SessionFloodTest, StatusRepliesCountAmongThoseThatWaitForAll) {
  ServerProcess server({.host = "127.0.0.1",
                        .threads = 1,
                        .reply_bytes_max = 4 * kMebibyte,
                        .store_bytes_max = 16 * kMebibyte});
  Populate(server.port(), 7'800, 250);
  const size_t before = server.ResidentBytes();
  std::vector<SessionTalker> greedy;
  for (int i = 0; i < 40; ++i) {
    greedy.push_back(Stingy(server.port(), "greedy" + std::to_string(i)));
    std::string requests;
    for (int j = 0; j < 4; ++j)
      requests += FrameOf({.kind = Said::kStatus, .run_id = "crowd", .names_max = 10'000});
    greedy.back().Send(requests);  // when nothing more may wait, the connection ends
  }
  SessionTalker other(server.port());
  for (int i = 0; i < 100; ++i) other.Settle();
  if (kMemoryIsMeasurable) {
    EXPECT_LT(server.ResidentBytes(), before + 32 * kMebibyte) << "96 MiB were asked for";
  }
  EXPECT_EQ(server.Stop(), 0);
}

TEST(SessionFloodTest, PushesForAMemberThatDoesNotReadAreBounded) {
  ServerProcess server({.host = "127.0.0.1", .threads = 1});
  RunSettings settings = Patient(1, 100);
  settings.last_call = 300ms;
  std::vector<SessionTalker> members;
  for (int i = 0; i < 10; ++i) {
    members.emplace_back(server.port());
    members.back().LimitBuffers(256 * 1024);
    members.back().Open(HelloOf("n" + std::to_string(i), settings));
  }
  for (SessionTalker& member : members) member.Join();
  members[0].Hear(Kind::kAdmitted);
  EXPECT_EQ(members[0].Hear(Kind::kComplete).world_size, 10);
  const size_t before = server.ResidentBytes();
  SessionTalker restless(server.port(), HelloOf("restless", settings));
  wire::SessionRequest join = restless.Message(Said::kJoin);
  join.join_timeout = 600s;
  std::string requests;
  for (int i = 0; i < 1'000; ++i)
    requests += FrameOf(join) + FrameOf(restless.Message(Said::kLeave));
  for (int i = 0; i < 150; ++i) {
    restless.Send(requests);
    restless.Receive(1'000 * (34 + 26));  // kWaiting and kLeft
  }
  // 150,000 notices "one waits" and "none waits", for each of ten nodes.
  if (kMemoryIsMeasurable) {
    EXPECT_LT(server.ResidentBytes(), before + 32 * kMebibyte);
  }
  EXPECT_EQ(server.Stop(), 0);
}

}  // namespace muster::test
