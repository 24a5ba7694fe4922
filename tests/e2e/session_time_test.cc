// Time in the coordinator of a server process: where it runs out for several at once, where it
// stood still, and where two loops read it. These tests may end the server, so it has a process of
// its own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <thread>

#include "muster/store_server.h"
#include "support/child_process.h"
#include "support/server_process.h"
#include "support/session_talker.h"

namespace muster::test {

using ::testing::IsEmpty;

using Kind = Push::Kind;
using Said = SessionTalker::Said;

namespace {

/// A server that can be stopped: ServerProcess does not show its process.
ChildProcess Server() {
  return ChildProcess::Fork([](int input, int output) {
    const StoreServer server({.host = "127.0.0.1", .threads = 1});
    dprintf(output, "%d\n", server.port());
    char end;
    return read(input, &end, 1) == 0 ? 0 : 1;
  });
}
uint16_t PortOf(ChildProcess& server) {
  return static_cast<uint16_t>(std::stoi(server.ReadLine().value()));
}

void StopFor(const ChildProcess& server, milliseconds time) {
  kill(server.pid(), SIGSTOP);
  const Stopwatch watch;
  EXPECT_TRUE(EventuallyTrue([&] { return watch.Elapsed() >= time; }));
  kill(server.pid(), SIGCONT);
}

}  // namespace

TEST(SessionTimeTest, ALastCallAndAJoinThatEndTogetherDoNotEndTheServer) {
  ServerProcess server({.host = "127.0.0.1", .threads = 1});
  for (int i = 0; i < 5; ++i) {
    RunSettings settings = Patient(2, 4);
    settings.last_call = 50ms;
    const std::string run = "run" + std::to_string(i);
    SessionTalker first(server.port(), HelloOf("a", settings, run));
    SessionTalker second(server.port(), HelloOf("b", settings, run));
    SessionTalker third(server.port(), HelloOf("c", settings, run));
    first.Join(50ms);
    second.Join();
    third.Join();
    second.Hear(Kind::kAdmitted);
    second.Hear(Kind::kComplete);  // with or without the first
  }
  EXPECT_EQ(server.Stop(), 0);
}

// Loops read the clock before they wait for each other. The error shows only on a busy machine:
// with three busy loops, within 5 seconds.
TEST(SessionTimeTest, NoNodeWasLastSeenInTheFuture) {
  const StoreServer server({.host = "127.0.0.1", .threads = 2});
  SessionTalker node(server.port(), HelloOf("a", Patient(1, 1)));
  SessionTalker asker(server.port());
  std::string keep_alives;
  for (int i = 0; i < 200; ++i) keep_alives += FrameOf(node.Message(Said::kKeepAlive));
  std::atomic<bool> done = false;
  std::thread alive([&] {
    while (!done) node.Send(keep_alives);
  });
  const Stopwatch watch;
  std::string wrong;
  while (watch.Elapsed() < seconds(5) && wrong.empty()) {
    try {
      asker.Status("run");
    } catch (const std::runtime_error& error) {
      wrong = error.what();
    }
  }
  done = true;
  alive.join();
  EXPECT_EQ(wrong, "");
}

TEST(SessionTimeTest, AServerThatStoodStillForgivesSilenceAndEvictsLateNodes) {
  ChildProcess server = Server();
  const uint16_t port = PortOf(server);
  RunSettings settings = Patient(2, 2);
  settings.keep_alive_interval = 400ms;
  settings.keep_alive_max_attempt = 3;
  SessionTalker late(port, HelloOf("late", Patient(2, 2), "late"));
  SessionTalker a(port, HelloOf("a", settings));
  SessionTalker b(port, HelloOf("b", settings));
  a.Join();
  a.Hear(Kind::kAdmitted);
  b.Join();
  a.Hear(Kind::kComplete);
  b.Hear(Kind::kComplete);
  late.Join(100ms);
  late.Hear(Kind::kAdmitted);
  // As a virtual machine that is migrated: for longer than a node may be silent, and longer than a
  // late node has before it is evicted.
  StopFor(server, milliseconds(5'300));
  EXPECT_THAT(a.HeardSoFar(), IsEmpty());
  EXPECT_THAT(b.HeardSoFar(), IsEmpty());
  late.Hear(Kind::kTimedOut);
  SessionTalker other(port, HelloOf("other", Patient(2, 2), "late"));
  other.Join();
  EXPECT_EQ(other.Hear().kind, Kind::kAdmitted) << "complete with one that has timed out";
  server.CloseInput();
  EXPECT_EQ(server.Wait(), 0);
}

}  // namespace muster::test
