#include "sim/world.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "sim/bugs.h"
#include "sim/campaign.h"
#include "sim/probes.h"
#include "sim/seed.h"

namespace muster::sim {
namespace {

// A sanitized world takes ten times as long.
#ifdef __SANITIZE_ADDRESS__
constexpr uint64_t kRunsTwice = 30;
#else
constexpr uint64_t kRunsTwice = 300;
#endif

std::string Tell(const CampaignReport& report) {
  std::string text;
  for (const std::string& complaint : report.complaints) text += complaint + "\n";
  for (const Finding& finding : report.findings)
    text += finding.what + "\n  " + finding.plan.ToString() + "\n";
  return text;
}

class DriversTest : public testing::TestWithParam<Driver> {};

TEST_P(DriversTest, ASeedIsARun) {
  const CampaignReport report = RunCampaign({.first_seed = Seed() + 1'000'000,
                                             .runs = kRunsTwice,
                                             .constraints = {.driver = GetParam()},
                                             .twice = true});
  EXPECT_TRUE(report.findings.empty()) << Tell(report);
}

TEST_P(DriversTest, WithoutFaultsOneRoundIsEnough) {
  // Nodes that come after the last call of the first round are in the second.
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Plan plan = Draw(seed, {.driver = GetParam(), .faults = false});
    plan.settings.min_nodes = plan.settings.max_nodes = plan.nodes;
    const RunOutcome outcome = World(plan).Run();
    EXPECT_EQ(outcome.violation, "") << plan.ToString();
    EXPECT_EQ(outcome.rounds, 1u) << plan.ToString();
  }
}

INSTANTIATE_TEST_SUITE_P(All, DriversTest,
                         testing::Values(Driver::kCoordinator, Driver::kDocument, Driver::kMixed,
                                         Driver::kEtcd),
                         [](const auto& each) { return std::string(NameOf(each.param)); });

TEST(PlanTest, TheSamePlanFromTheSameSeed) {
  for (uint64_t seed = 1; seed < 100; ++seed)
    EXPECT_EQ(Draw(seed, {}).ToString(), Draw(seed, {}).ToString());
  EXPECT_NE(Draw(1, {}).ToString(), Draw(2, {}).ToString());
}

// All clock faults, in different runs: wall clocks that differ and jump, machines that are
// suspended.
TEST(PlanTest, ClocksJumpInRunsOfTheCoordinatorAndOfLaunchers) {
  for (const Driver driver : {Driver::kCoordinator, Driver::kLauncher}) {
    size_t skew = 0;
    size_t jump = 0;
    size_t suspend = 0;
    for (uint64_t seed = 1; seed <= 100; ++seed) {
      const Faults faults = Draw(seed, {.driver = driver}).faults;
      skew += faults.skew ? 1 : 0;
      jump += faults.jump ? 1 : 0;
      suspend += faults.suspend ? 1 : 0;
    }
    EXPECT_GT(skew, 10u) << NameOf(driver);
    EXPECT_GT(jump, 10u) << NameOf(driver);
    EXPECT_GT(suspend, 5u) << NameOf(driver);
  }
}

TEST(ScaleTest, AThousandNodesAndTheirTroubles) {
  const RunOutcome outcome = World(Draw(Seed(), {.nodes = 1'000})).Run();
  EXPECT_EQ(outcome.violation, "");
  EXPECT_GE(outcome.rounds, 1u);
}

#ifdef MUSTER_INSTRUMENTED

class PlantedBugTest : public testing::TestWithParam<PlantedBug> {
 protected:
  void TearDown() override { Plant(Bug::kNone); }
};

TEST_P(PlantedBugTest, IsFoundWithinAThousandSeedsByTheRightViolation) {
  const Hunted hunted = Hunt(GetParam(), {.first_seed = Seed(), .runs = 1'000});
  EXPECT_EQ(hunted.wrong, "") << hunted.finding.plan.ToString();
}

INSTANTIATE_TEST_SUITE_P(All, PlantedBugTest, testing::ValuesIn(AllBugs()), [](const auto& each) {
  std::string name(each.param.name);
  std::ranges::replace(name, '-', '_');
  return name;
});

TEST(HuntTest, ABugThatIsFoundByAnotherViolationIsNotFound) {
  constexpr Sign kOther[] = {{"closed, and open again"}};
  const Hunted hunted = Hunt({Bug::kRankByArrival, "rank-by-arrival", Driver::kCoordinator, kOther},
                             {.first_seed = 1, .runs = 100});
  EXPECT_NE(hunted.wrong.find("not its own"), std::string::npos) << hunted.wrong;
  EXPECT_NE(hunted.wrong.find("out of order"), std::string::npos) << hunted.wrong;
}

TEST(HuntTest, ABugThatOnlyTheTimeLimitShowsIsNotFoundIfItHasACheckOfItsOwn) {
  constexpr Sign kOther[] = {{"closed, and open again"}, {"not together", "that comes of it"}};
  const Hunted hunted = Hunt({Bug::kGraceForever, "grace-forever", Driver::kCoordinator, kOther},
                             {.first_seed = 1, .runs = 100});
  EXPECT_NE(hunted.wrong.find("other checks than its own"), std::string::npos) << hunted.wrong;
}

TEST(HuntTest, ABugThatIsNotThereIsNotFound) {
  constexpr Sign kOther[] = {{"closed, and open again"}};
  const Hunted hunted =
      Hunt({Bug::kNone, "none", Driver::kCoordinator, kOther}, {.first_seed = 1, .runs = 20});
  EXPECT_EQ(hunted.wrong, "not found");
}

TEST(HuntTest, ATimeLimitIsASignOnlyWithAReason) {
  for (const PlantedBug& bug : AllBugs()) {
    EXPECT_FALSE(bug.signs.empty()) << bug.name;
    for (const Sign& sign : bug.signs)
      EXPECT_TRUE(sign.text.find("not together") == std::string::npos || !sign.why.empty())
          << bug.name;
  }
}

TEST(ProbesTest, AreListedAlsoIfNeverHit) {
  EXPECT_GT(AllProbes().size(), 20u);
  const auto is_named = [](const Probe& probe) {
    return std::string(probe.name) == "a spare was promoted";
  };
  EXPECT_TRUE(std::ranges::any_of(AllProbes(), is_named));
}

#endif

}  // namespace
}  // namespace muster::sim
