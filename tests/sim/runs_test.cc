// The simulated runs of every test run, in parts, so that several are played at a time.
#include "sim/campaign.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/text.h"
#include "sim/seed.h"

namespace muster::sim {
namespace {

// A sanitized world takes ten times as long, and its share is one in forty: enough to reach the
// rarer paths.
#ifdef __SANITIZE_ADDRESS__
constexpr uint64_t kOneIn = 40;
#else
constexpr uint64_t kOneIn = 1;
#endif

struct Part {
  Driver driver;
  uint64_t number;
  uint64_t runs;
};

std::string NameOf(const Part& part) { return Concat(NameOf(part.driver), "_", part.number); }

// There are fewer runs of the document and mixed ones, which take five times as long.
std::vector<Part> AllParts() {
  struct Share {
    Driver driver;
    uint64_t parts;
    uint64_t runs;  // of each part
  };
  std::vector<Part> all;
  for (const Share& share : {Share{Driver::kEtcd, 8, 2'500}, Share{Driver::kCoordinator, 4, 5'000},
                             Share{Driver::kLauncher, 4, 2'000}, Share{Driver::kDocument, 2, 1'000},
                             Share{Driver::kMixed, 2, 1'000}}) {
    for (uint64_t i = 0; i < share.parts; ++i)
      all.push_back({share.driver, i, share.runs / kOneIn});
  }
  return all;
}

class SimulatedRunsTest : public testing::TestWithParam<Part> {};

TEST_P(SimulatedRunsTest, WhateverHappensNothingIsWrongAndAllComeTogether) {
  const Part& part = GetParam();
  const CampaignReport report = RunCampaign({.first_seed = Seed() + part.number * part.runs,
                                             .runs = part.runs,
                                             .constraints = {.driver = part.driver}});
  EXPECT_EQ(report.runs, part.runs);
  for (const Finding& finding : report.findings)
    ADD_FAILURE() << finding.what << "\n  " << finding.plan.ToString();
  EXPECT_THAT(report.complaints, testing::IsEmpty());
}

// A leader that closes the run after a restore records the number of the last round, and no plan.
TEST(SimulatedRunTest, ARoundThatARestoredEtcdHasForgottenIsNotCompletedAgain) {
  const CampaignReport report = RunCampaign(
      {.first_seed = 1'896'709'440, .runs = 1, .constraints = {.driver = Driver::kEtcd}});
  EXPECT_THAT(report.findings, testing::IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(All, SimulatedRunsTest, testing::ValuesIn(AllParts()),
                         [](const auto& each) { return NameOf(each.param); });

}  // namespace
}  // namespace muster::sim
