// What a node sends to its coordinator after a broken connection, and what it no longer sends. The
// test plays the server.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/session/session_link.h"
#include "rendezvous/wire/session_codec.h"
#include "sim/network.h"
#include "sim/process.h"

namespace muster::sim {
namespace {

using Said = wire::SessionRequest::Kind;

class SessionLinkTest : public testing::Test, public RendezvousLinkListener {
 protected:
  SessionLinkTest() {
    network.Listen(server, 29400, [this](std::shared_ptr<Socket> socket) {
      said.clear();
      greeted_ = false;
      socket_ = std::move(socket);
      socket_->on_event = [this] { Read(); };
    });
    link->Start();
    Pass();
  }

  ~SessionLinkTest() override {
    link.reset();
    socket_.reset();
    node.Kill(Network::Ending::kNotified);
    server.Kill(Network::Ending::kNotified);
  }

  /// Time for everything under way, and for a new connection.
  void Pass() { PassFor(500ms); }
  void PassFor(Duration time) { scheduler.RunUntil(scheduler.now() + time); }

  void Tell(Push push) {
    push.token = kToken;
    push.incarnation = incarnation_;
    std::string frame;
    wire::AppendSessionFrame(frame, push);
    socket_->Write(frame);
    Pass();
  }
  void TellRound(int64_t round) { Tell({.kind = Push::Kind::kComplete, .round = round}); }

  /// The node notices and reconnects at once.
  void Break() {
    socket_->Close();
    Pass();
  }

  bool HasSaid(Said kind) const { return std::count(said.begin(), said.end(), kind) > 0; }

  Scheduler scheduler;
  Trace trace;
  Network network{scheduler, {}, 1, trace};
  SimProcess server{scheduler, network, network.AddHost("10.0.0.1"), 1, {}, 1};
  SimProcess node{scheduler, network, network.AddHost("10.1.0.1"), 2, {}, 2};
  std::unique_ptr<LoopThread> thread = node.StartLoop();
  std::unique_ptr<SessionLink> link = std::make_unique<SessionLink>(
      thread->loop(), thread->connector(),
      SessionLinkOptions{.server = {"10.0.0.1", 29400},
                         .hello = {.run_id = "run",
                                   .node = {"10.1.0.1", 2, 0},
                                   .settings = {.keep_alive_interval = 500ms,
                                                .keep_alive_max_attempt = 3,
                                                .grace = 500ms}}},
      *this);
  /// The answer to a node that opens its session; none: the connection breaks instead.
  std::optional<Push::Kind> answer = Push::Kind::kOpened;
  Push::Refusal refusal = Push::Refusal::kIdentity;
  std::vector<Said> said;         // through the present connection
  std::vector<int64_t> assigned;  // rounds that the owner received
  int64_t refused = 0;            // how often the owner received that the link has stopped
  std::vector<std::string> lost;  // why the owner's place is lost

 private:
  static constexpr uint64_t kToken = 7;

  void Read() {
    if (!greeted_) {
      const std::string greeting = wire::SessionGreeting(true);
      const std::string brief = wire::SessionGreeting(false);
      const bool asks = socket_->inbox.starts_with(greeting);
      socket_->inbox.erase(0, asks ? greeting.size() : brief.size());
      if (asks) socket_->Write(std::string(1, wire::kSessionsSpoken));
      greeted_ = true;
    }
    while (true) {
      const Result<size_t> size = wire::SessionFrameSize(socket_->inbox);
      ASSERT_TRUE(size);
      if (*size == 0 || *size > socket_->inbox.size()) return;
      const auto request = wire::ReadSessionRequest(socket_->inbox.substr(0, *size));
      ASSERT_TRUE(request) << request.error().message;
      socket_->inbox.erase(0, *size);
      said.push_back(request->kind);
      if (request->kind != Said::kOpen) continue;
      if (!answer) return socket_->Close();
      std::string frame;
      Push push{.kind = *answer, .token = kToken};
      if (push.kind == Push::Kind::kRefused) {
        push.refusal = refusal;
        push.why = "it has a session already";
      } else {
        push.resumed = incarnation_ > 0;
        push.incarnation = ++incarnation_;
      }
      wire::AppendSessionFrame(frame, push);
      socket_->Write(frame);
    }
  }

  void OnPush(const Push& push) override {
    if (push.kind == Push::Kind::kComplete) assigned.push_back(push.round);
    if (push.kind == Push::Kind::kRefused) ++refused;
  }
  void OnPlaceLost(const std::string& why) override { lost.push_back(why); }
  void OnReport(std::optional<RunReport>) override {}
  void OnTrouble(const std::string&) override {}
  void OnPlainServer() override { ADD_FAILURE() << "it speaks sessions"; }

  std::shared_ptr<Socket> socket_;
  bool greeted_ = false;
  uint32_t incarnation_ = 0;
};

TEST_F(SessionLinkTest, ALeaveThatWasNotAnsweredIsSentAgain) {
  link->Leave();
  Break();
  EXPECT_TRUE(HasSaid(Said::kLeave));
}

// Found by seed 18501: the node left the round that it had joined since.
TEST_F(SessionLinkTest, ALeaveThatWasNotAnsweredIsNotRepeatedInTheNextRound) {
  link->Join(10s);
  Pass();
  TellRound(1);
  link->Leave();  // and no answer
  link->Join(10s);
  Pass();
  TellRound(2);
  EXPECT_EQ(assigned, (std::vector<int64_t>{1, 2}));
  Break();
  EXPECT_FALSE(HasSaid(Said::kLeave));
}

// Found by seed 22537: the call had timed out, and the earlier round was used as the answer to the
// next call.
TEST_F(SessionLinkTest, ARoundThatIsSentAgainIsNotPassedOn) {
  link->Join(10s);
  Pass();
  TellRound(1);
  Break();
  link->Join(10s);
  Pass();
  TellRound(1);  // as a server does when a session is resumed
  EXPECT_EQ(assigned, (std::vector<int64_t>{1}));
  TellRound(2);
  EXPECT_EQ(assigned, (std::vector<int64_t>{1, 2}));
}

// Found by seed 911274: the node went on in its round. A server that refuses to resume a session
// does not have it any more.
TEST_F(SessionLinkTest, ARefusedSessionHasLostItsPlace) {
  for (const auto why : {Push::Refusal::kIdentity, Push::Refusal::kLimit}) {
    lost.clear();
    refusal = why;
    answer = Push::Kind::kRefused;
    Break();
    ASSERT_FALSE(lost.empty());
    EXPECT_EQ(lost[0], "the server did not resume its session: it has a session already");
    EXPECT_EQ(refused, 0) << "it keeps trying";
    answer = Push::Kind::kOpened;
    PassFor(2s);
    EXPECT_TRUE(link->is_open());
  }
}

// Found by seed 911274: the time was counted from a refusal by an earlier life of the server. Each
// attempt that is not answered may have opened a session, which stands in the way of the next one.
TEST_F(SessionLinkTest, AnUnansweredAttemptRestartsTheTimeForWhichItMayBeItsOwnOldSelf) {
  answer = Push::Kind::kRefused;
  Break();
  answer.reset();
  PassFor(4s);  // longer than another node with its name may be this node itself
  answer = Push::Kind::kRefused;
  PassFor(1500ms);
  EXPECT_EQ(refused, 0);
  PassFor(4s);
  EXPECT_EQ(refused, 1) << "it is another node";
}

}  // namespace
}  // namespace muster::sim
