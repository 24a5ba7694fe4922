// The fixture of tests that exchange bytes with a StoreServer's coordinator, with one and with two
// loops.
#pragma once

#include <string>

#include "support/raw_server_test.h"
#include "support/session_talker.h"

namespace muster::test {

class SessionServerTest : public RawServerTest {
 protected:
  /// Two nodes in the complete round 0 of a run; with two loops, one on each.
  struct Pair {
    SessionTalker a;
    SessionTalker b;
  };
  Pair PairInARound(const RunSettings& settings = Patient(2, 2),
                    const std::string& run_id = "run") const {
    Pair pair{SessionTalker(port(), HelloOf("10.0.0.1", settings, run_id)),
              SessionTalker(port(), HelloOf("10.0.0.2", settings, run_id))};
    pair.a.Join();
    pair.a.Hear(Push::Kind::kAdmitted);
    pair.b.Join();
    pair.a.Hear(Push::Kind::kComplete);
    pair.b.Hear(Push::Kind::kComplete);
    return pair;
  }

  RunReport ReportOn(const std::string& run_id) const {
    return SessionTalker(port()).Status(run_id).at(0);
  }

  /// The effects on a pair since PairInARound(): "" if there were none, and both still have their
  /// connections and their round.
  std::string Disturbance(Pair& pair, const std::string& run_id = "run") const {
    for (SessionTalker* node : {&pair.a, &pair.b}) {
      if (const auto heard = node->HeardSoFar(); !heard.empty())
        return Concat("received a push of kind ", int{uint8_t(heard[0].kind)}, ": ", heard[0].why);
    }
    const RunReport run = ReportOn(run_id);
    if (run.phase != RunReport::Phase::kComplete || run.round != 0)
      return Concat("the run is in phase ", int{uint8_t(run.phase)}, " of round ", run.round);
    if (run.participants != 2 || run.world_size != 2)
      return Concat("the round has ", run.participants, " of ", run.world_size, " members");
    return "";
  }
  void ExpectUndisturbed(Pair& pair) const { EXPECT_EQ(Disturbance(pair), ""); }
};

}  // namespace muster::test
