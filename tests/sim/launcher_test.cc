#include "sim/launcher.h"

#include <gtest/gtest.h>

#include <string>

#include "sim/bugs.h"
#include "sim/campaign.h"
#include "sim/probes.h"
#include "sim/seed.h"
#include "sim/world.h"

namespace muster::sim {
namespace {

// A sanitized world takes ten times as long.
#ifdef __SANITIZE_ADDRESS__
constexpr uint64_t kRuns = 100;
constexpr uint64_t kRunsTwice = 20;
#else
constexpr uint64_t kRuns = 800;
constexpr uint64_t kRunsTwice = 100;
#endif

constexpr Constraints kLaunchers{.driver = Driver::kLauncher};

std::string Tell(const CampaignReport& report) {
  std::string text;
  for (const std::string& complaint : report.complaints) text += complaint + "\n";
  for (const Finding& finding : report.findings)
    text += finding.what + "\n  " + finding.plan.ToString() + "\n";
  return text;
}

RunOutcome PlaySeed(uint64_t seed) { return World(Draw(seed, kLaunchers)).Run(); }

TEST(LauncherTest, WhateverHappensNothingIsWrongAndAllEnd) {
  const CampaignReport report =
      RunCampaign({.first_seed = Seed(), .runs = kRuns, .constraints = kLaunchers});
  EXPECT_EQ(report.runs, kRuns);
  EXPECT_EQ(Tell(report), "");
  const JobFigures& jobs = report.drivers[static_cast<size_t>(Driver::kLauncher)].jobs;
  EXPECT_GT(jobs.attempts, jobs.launchers / 2) << "or else nothing was tried";
  EXPECT_GT(jobs.succeeded, jobs.launchers / 5);
  EXPECT_GT(jobs.restarts, kRuns / 10);
}

TEST(LauncherTest, ASeedIsARun) {
  const CampaignReport report = RunCampaign({.first_seed = Seed() + 1'000'000,
                                             .runs = kRunsTwice,
                                             .constraints = kLaunchers,
                                             .twice = true});
  EXPECT_TRUE(report.findings.empty()) << Tell(report);
  EXPECT_EQ(report.same_twice, kRunsTwice);
}

TEST(LauncherTest, WithoutFaultsOneAttemptOfEachIsEnough) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Plan plan = Draw(seed, {.driver = Driver::kLauncher, .faults = false});
    plan.settings.min_nodes = plan.settings.max_nodes = plan.nodes;
    plan.settings.forming->expected = 0;
    plan.launch.barrier_max = 2 * plan.launch.work_max;
    const RunOutcome outcome = World(plan).Run();
    EXPECT_EQ(outcome.violation, "") << plan.ToString();
    EXPECT_EQ(outcome.rounds, 1u) << plan.ToString();
    EXPECT_EQ(outcome.jobs.succeeded, static_cast<uint64_t>(plan.nodes)) << plan.ToString();
    EXPECT_EQ(outcome.jobs.attempts, static_cast<uint64_t>(plan.nodes)) << plan.ToString();
  }
}

TEST(LauncherTest, AWorkerThatAlwaysCrashesEndsTheJobAfterAllRestarts) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Plan plan = Draw(seed, {.driver = Driver::kLauncher, .nodes = 2, .faults = false});
    plan.settings.min_nodes = plan.settings.max_nodes = plan.nodes = 2;
    plan.settings.forming->expected = 0;
    plan.settings.grace = 0ms;
    plan.launch.crash = 100;
    plan.launch.fall = 100;
    plan.launch.work_max = 200ms;
    plan.launch.verdict_patience = 300ms;
    plan.launch.starts_again = false;  // another job of that name would begin
    plan.trouble = 60s;
    const RunOutcome outcome = World(plan).Run();
    EXPECT_EQ(outcome.violation, "") << plan.ToString();
    EXPECT_EQ(outcome.jobs.succeeded, 0u) << plan.ToString();
    // Either node may fail first and spends a restart; the one without any left ends the job.
    const auto restarts = static_cast<uint64_t>(plan.launch.max_restarts);
    EXPECT_GT(outcome.jobs.restarts, restarts) << plan.ToString();
    EXPECT_LE(outcome.jobs.restarts, 2 * restarts + 1) << plan.ToString();
    EXPECT_EQ(outcome.rounds, outcome.jobs.restarts) << "each is a failure, and each is counted";
  }
}

TEST(LauncherTest, TheLauncherIsNeverDrawn) {
  for (uint64_t seed = 1; seed < 1'000; ++seed)
    EXPECT_NE(Draw(seed, {}).driver, Driver::kLauncher) << seed;
}

// Each of these seeds has found it.

TEST(LauncherStoryTest, AJobFailureIsReportedBeforeTheStoreIsRead) {
  for (const uint64_t seed : {7, 114, 253}) EXPECT_EQ(PlaySeed(seed).violation, "") << seed;
}

TEST(LauncherStoryTest, TheNodeThatFailedFirstHasItsGraceToJoinAgain) {
  for (const uint64_t seed : {847, 906, 1190}) EXPECT_EQ(PlaySeed(seed).violation, "") << seed;
}

#ifdef MUSTER_INSTRUMENTED

TEST(LaunchProbesTest, AreNotAmongThoseOfTheRendezvous) {
  EXPECT_GT(LaunchProbes().size(), 10u);
  for (const Probe& probe : LaunchProbes()) {
    for (const Probe& other : AllProbes()) EXPECT_STRNE(probe.name, other.name);
  }
}

#endif

}  // namespace
}  // namespace muster::sim
