#include "sim/side_by_side.h"

#include <cstdint>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/seed.h"

namespace muster::sim {
namespace {

std::string Replay(const Plan& plan) {
  return "muster-lab sim --seed " + std::to_string(plan.seed);
}

TEST(SideBySideTest, AWorldAmongOthersIsTheWorldThatItIsAlone) {
  std::vector<Plan> plans;
  for (uint64_t i = 0; i < 5; ++i) plans.push_back(Draw(Seed() + i, {}));
  const SideBySide beside = PlaySideBySide(plans, Replay);
  ASSERT_EQ(beside.outcomes.size(), plans.size());
  for (size_t i = 0; i < plans.size(); ++i) {
    const RunOutcome alone = World(plans[i]).Run();
    EXPECT_EQ(beside.outcomes[i].hash, alone.hash) << plans[i].ToString();
    EXPECT_EQ(beside.outcomes[i].steps, alone.steps) << plans[i].ToString();
    EXPECT_EQ(beside.outcomes[i].violation, "") << plans[i].ToString();
    EXPECT_GE(beside.turns[i] * 10ms, alone.virtual_time) << "it took turns with the others";
  }
}

TEST(SideBySideTest, OneWorldTakesNoTurns) {
  const Plan plan = Draw(Seed(), {});
  EXPECT_THAT(PlaySideBySide({plan}, Replay).outcomes,
              testing::ElementsAre(testing::Field(&RunOutcome::hash, World(plan).Run().hash)));
}

TEST(SideBySideTest, AWorldMayTakeTurnsEveryHundredthOfASecond) {
  World world(Draw(Seed(), {.driver = Driver::kCoordinator}));
  int64_t turns = 0;
  world.on_turn = [&] { ++turns; };
  const WorldTime lasted = world.Run().virtual_time;
  EXPECT_GE(turns * 10ms, lasted);
  EXPECT_LE(turns * 10ms, lasted + 10ms) << "and once more where the trouble ends";
}

}  // namespace
}  // namespace muster::sim
