// The fixture of tests that speak to a StoreServer's coordinator in bytes, with one and with two
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

  /// Both are where PairInARound() left them, connected, and have heard nothing since.
  void ExpectUndisturbed(Pair& pair, const std::string& run_id = "run") const {
    EXPECT_THAT(pair.a.HeardSoFar(), ::testing::IsEmpty());
    EXPECT_THAT(pair.b.HeardSoFar(), ::testing::IsEmpty());
    const RunReport report = ReportOn(run_id);
    EXPECT_EQ(report.phase, RunReport::Phase::kComplete);
    EXPECT_EQ(report.round, 0);
    EXPECT_EQ(report.world_size, 2);
    EXPECT_EQ(report.participants, 2);
    EXPECT_EQ(report.closed_by, "");
  }
};

}  // namespace muster::test
