// What a server keeps of runs that are over, and of runs whose nodes should never meet.
#include <string>
#include <vector>

#include "base/encoding.h"
#include "rendezvous/wire/state_codec.h"
#include "support/eventually.h"
#include "support/session_server_test.h"

namespace muster::test {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using Kind = Push::Kind;
using Refusal = Push::Refusal;

class SessionGenerationsTest : public SessionServerTest {
 protected:
  /// Runs end when their nodes leave, and are forgotten at once.
  static RunSettings Brief() {
    RunSettings settings = Patient(2, 2);
    settings.grace = 0ms;
    return settings;
  }
  void StartForgetful() {
    StoreServerOptions options = Options();
    options.run_kept_max = std::chrono::milliseconds(1);
    Start(options);
  }
  Push MeetAndPart(const std::string& key) {
    SessionTalker a(port(), HelloOf("10.0.0.1", Brief()));
    SessionTalker b(port(), HelloOf("10.0.0.2", Brief()));
    a.Join();
    a.Hear(Kind::kAdmitted);
    b.Join();
    const Push complete = a.Hear(Kind::kComplete);
    RawClient client = Client();
    client.Send(SetBytes(ScopeOf(complete.generation, complete.round) + key, "value"));
    EXPECT_EQ(client.AskNumber(NumKeysBytes()), 1);
    return complete;
  }
  bool IsForgotten(const std::string& run_id) const {
    return SessionTalker(port()).Status(run_id).empty();
  }
};
MUSTER_ON_ONE_AND_TWO_LOOPS(SessionGenerationsTest);

TEST_P(SessionGenerationsTest, TheKeysOfAForgottenRunAreDeletedAndTheNextOneHasOthers) {
  StartForgetful();
  std::vector<std::string> scopes;
  for (int job = 0; job < 3; ++job) {
    const Push complete = MeetAndPart("torchelastic/role_info/0");
    EXPECT_EQ(complete.round, 0) << "numbers begin again, generations do not";
    scopes.push_back(ScopeOf(complete.generation, complete.round));
    ASSERT_TRUE(EventuallyTrue([&] { return IsForgotten("run"); }));
    EXPECT_TRUE(EventuallyTrue([&] { return Client().AskNumber(NumKeysBytes()) == 0; }));
  }
  EXPECT_NE(scopes[0], scopes[1]);
  EXPECT_NE(scopes[1], scopes[2]);
}

TEST_P(SessionGenerationsTest, KeysOfARoundGoWhenTheNextButOneIsComplete) {
  Pair pair = PairInARound();
  const Generation generation = ReportOn("run").generation;
  RawClient client = Client();
  const auto key = [&](int64_t round) { return ScopeOf(generation, round) + "k"; };
  client.Send(SetBytes(key(0), "0"));
  const auto next_round = [&](int64_t round) {
    for (SessionTalker* node : {&pair.a, &pair.b}) node->Join();
    while (pair.a.Hear().kind != Kind::kComplete) {
    }
    while (pair.b.Hear().kind != Kind::kComplete) {
    }
    client.Send(SetBytes(key(round), "1"));
  };
  next_round(1);
  EXPECT_EQ(client.Ask(CheckBytes({key(0)}), 1), kReady) << "a member may still look there";
  next_round(2);
  EXPECT_TRUE(EventuallyTrue([&] { return client.Ask(CheckBytes({key(0)}), 1) == kNotReady; }));
  EXPECT_EQ(client.Ask(CheckBytes({key(1), key(2)}), 1), kReady);
}

TEST_P(SessionGenerationsTest, AStatusOfThousandsOfRunsComesInPages) {
  constexpr int kRuns = 600;
  std::vector<SessionTalker> nodes;
  for (int i = 0; i < kRuns; ++i) {
    nodes.emplace_back(
        port(), HelloOf("n", Patient(2, 2), Concat("run", std::string(3000, 'x'), 1000 + i)));
  }
  SessionTalker asks(port());
  size_t seen = 0;
  size_t pages = 0;
  std::string after;
  for (bool more = true; more; ++pages) {
    asks.Say({.kind = SessionTalker::Said::kStatus, .after = after});
    while (true) {
      auto part = std::get<wire::StatusPart>(ReplyOf(asks.ReceiveFrame()));
      more = part.more;
      if (part.kind == wire::StatusPart::Kind::kDone) break;
      EXPECT_LT(after, part.run.id);
      after = part.run.id;
      ++seen;
    }
  }
  EXPECT_EQ(seen, size_t{kRuns});
  EXPECT_EQ(pages, 3u);
}

// --- Two backends, one run id

TEST_P(SessionGenerationsTest, ANodeOfBackendMusterIsRefusedWhereTheRunIsOneOfC10d) {
  Client().Ask(CompareSetBytes("/torch.rendezvous.run", "", "Y2FuaW1hZGFt"), 8 + 12);
  SessionTalker node(port());
  node.Introduce(HelloOf("10.0.0.1", Patient(2, 2)));
  const Push refused = node.Hear(Kind::kRefused);
  EXPECT_EQ(refused.refusal, Refusal::kSettings);
  EXPECT_THAT(refused.why, AllOf(HasSubstr("'run' is one of backend c10d"), HasSubstr("muster")));
  EXPECT_THAT(node.Status("run"), IsEmpty());
  SessionTalker other(port(), HelloOf("10.0.0.1", Patient(2, 2), "another"));
}

TEST_P(SessionGenerationsTest, ADocumentKeepsNodesOutOnlyWhileNodesOfC10dAreAtWork) {
  const auto open = [this](const std::string& document) {
    static int runs = 0;
    const std::string run = "run" + std::to_string(++runs);
    RawClient client = Client();
    client.Ask(CompareSetBytes("/torch.rendezvous." + run, "", document), 8 + document.size());
    SessionTalker node(port());
    node.Introduce(HelloOf("10.0.0.1", Patient(2, 2), run));
    return node.Hear().kind;
  };
  RendezvousState state;
  EXPECT_EQ(open(Base64Encode(wire::WriteState(state))), Kind::kOpened) << "no node is in it";
  state.participants[{"10.0.0.2", 1, 0}] = 0;
  state.last_heartbeats[{"10.0.0.2", 1, 0}] = WallTime{1'700'000'000'000'000};
  EXPECT_EQ(open(Base64Encode(wire::WriteState(state))), Kind::kRefused);
  state.closed = true;
  EXPECT_EQ(open(Base64Encode(wire::WriteState(state))), Kind::kOpened) << "a job that has ended";
  EXPECT_EQ(open("x"), Kind::kOpened) << "what a stranger writes";
}

TEST_P(SessionGenerationsTest, ANodeOfC10dIsClosedWhereTheRunIsOneOfBackendMuster) {
  Pair pair = PairInARound();
  for (const std::string& write :
       {CompareSetBytes("/torch.rendezvous.run", "", "Y2FuaW1hZGFt"),
        SetBytes("/torch.rendezvous.run", "state"), AddBytes("/torch.rendezvous.run", 1),
        AppendBytes("/torch.rendezvous.run", "state"),
        MultiSetBytes({{"/torch.rendezvous.run", "state"}})}) {
    RawClient client = Client();
    client.Send(SetBytes("/before", "it") + write + SetBytes("/after", "it"));
    EXPECT_EQ(client.ReceiveUntilClosed(), "");
  }
  RawClient client = Client();
  EXPECT_EQ(client.Ask(CheckBytes({"/before"}), 1), kReady);
  EXPECT_EQ(client.Ask(CheckBytes({"/torch.rendezvous.run"}), 1), kNotReady);
  EXPECT_EQ(client.Ask(CheckBytes({"/after"}), 1), kNotReady);
  client.Ask(CompareSetBytes("/torch.rendezvous.run2", "", "state"), 8 + 5);
  ExpectUndisturbed(pair);
}

// --- False claims of foreign nodes

TEST_P(SessionGenerationsTest, AForgedRoundLocksNoNodeOut) {
  Hello forged = HelloOf("10.0.0.9", Brief());
  forged.round = int64_t{1} << 53;
  SessionTalker forger(port(), forged);
  SessionTalker node(port(), HelloOf("10.0.0.1", Brief()));
  forger.Join();
  node.Join();
  while (node.Hear().kind != Kind::kComplete) {
  }
  forger.Close();
  Hello again = HelloOf("10.0.0.2", Brief());
  again.round = node.round;
  SessionTalker back(port(), again);
  back.Join();
  node.Join();
  while (back.Hear().kind != Kind::kComplete) {
  }
  EXPECT_GT(back.round, again.round);
}

}  // namespace muster::test
