#include "sim/campaign.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace muster::sim {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

CampaignReport Report(Driver driver, const DriverFigures& figures) {
  CampaignReport report;
  report.drivers[static_cast<size_t>(driver)] = figures;
  return report;
}

TEST(CampaignTest, PercentilesAreOfAllRunsThatHealed) {
  DriverFigures figures{.healed_ms = {{100, 50}, {200, 49}, {9'000, 1}}};
  EXPECT_EQ(figures.HealedWithin(50), 100ms);
  EXPECT_EQ(figures.HealedWithin(99), 200ms);
  EXPECT_EQ(figures.HealedWithin(100), 9s);
  EXPECT_EQ(DriverFigures().HealedWithin(99), 0s);
}

TEST(CampaignTest, OneRunInAHundredMayBeSlowAndTwoMayNot) {
  DriverFigures figures{.runs = 1'000, .healed_ms = {{100, 990}, {30'000, 10}}};
  EXPECT_THAT(Judge(Report(Driver::kCoordinator, figures)), IsEmpty());
  figures.healed_ms = {{100, 980}, {30'000, 20}};
  EXPECT_THAT(
      Judge(Report(Driver::kCoordinator, figures)),
      ElementsAre("99 of 100 runs of the driver coordinator healed within 30000 ms; allowed "
                  "are 3400 ms"));
}

TEST(CampaignTest, FewRunsGiveNoResult) {
  const DriverFigures figures{.runs = 999, .healed_ms = {{30'000, 999}}, .exempt = 900};
  EXPECT_THAT(Judge(Report(Driver::kMixed, figures)), IsEmpty());
}

TEST(CampaignTest, MixedRunsAreExemptRarely) {
  DriverFigures figures{.runs = 10'000, .healed_ms = {{100, 9'986}}, .exempt = 14};
  EXPECT_THAT(Judge(Report(Driver::kMixed, figures)), IsEmpty());
  figures.exempt = 15;
  EXPECT_THAT(Judge(Report(Driver::kMixed, figures)),
              ElementsAre(HasSubstr("15 of 10000 runs of the driver mixed ended with a PyTorch "
                                    "node left behind; allowed are 14")));
}

constexpr uint64_t kExempt = 11'002'993;

TEST(CampaignTest, AnExemptRunIsCountedAndNotAsHealed) {
  const RunOutcome outcome = World(Draw(kExempt, {.driver = Driver::kMixed})).Run();
  EXPECT_TRUE(outcome.exempt);
  EXPECT_EQ(outcome.violation, "");
  const CampaignReport report =
      RunCampaign({.first_seed = kExempt, .runs = 1, .constraints = {.driver = Driver::kMixed}});
  const DriverFigures& figures = report.drivers[static_cast<size_t>(Driver::kMixed)];
  EXPECT_EQ(figures.exempt, 1u);
  EXPECT_THAT(figures.healed_ms, IsEmpty());
}

}  // namespace
}  // namespace muster::sim
