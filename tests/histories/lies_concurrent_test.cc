// The whole chain: the program finds every lie of a server, and accepts the same server without a
// lie.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "histories/campaign.h"
#include "histories/lying_server.h"
#include "muster/store_server.h"
#include "support/child_process.h"

namespace muster::test {

namespace {

uint64_t Seed() {
  const char* seed = std::getenv("MUSTER_SEED");
  return seed == nullptr ? 1 : std::strtoull(seed, nullptr, 10);
}

CampaignResult Ask(uint16_t port, uint64_t histories, uint64_t fault_percent) {
  return RunCampaign({.port = port,
                      .seed = Seed(),
                      .histories = histories,
                      .lanes = 2,
                      .load = 0,
                      .plan = {.fault_percent = fault_percent},
                      .findings_max = 1},
                     [](const Finding&) {});
}

std::string LieName(const ::testing::TestParamInfo<Lie>& info) {
  std::string name(Name(info.param));
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

}  // namespace

class LiesTest : public ::testing::TestWithParam<Lie> {};
INSTANTIATE_TEST_SUITE_P(All, LiesTest, ::testing::ValuesIn(kAllLies), LieName);

TEST_P(LiesTest, ALiarIsFoundAndAnHonestServerIsNot) {
  LyingServer server(GetParam(), Seed());
  const bool honest = GetParam() == Lie::kNone;
  const CampaignResult result = Ask(server.port(), honest ? 100 : 2'000, 0);
  if (honest) {
    EXPECT_TRUE(result.findings.empty()) << Describe(result.findings.front());
  } else {
    ASSERT_FALSE(result.findings.empty()) << "not found in " << result.histories << " histories";
    EXPECT_FALSE(result.findings.front().violation.empty()) << Describe(result.findings.front());
  }
}

TEST(HistoriesTest, FaultsDoNotHideALie) {
  LyingServer server(Lie::kRepeatedAdd, Seed());
  EXPECT_FALSE(Ask(server.port(), 2'000, 100).findings.empty());
}

TEST(HistoriesTest, MustersServerIsNotAccused) {
  const StoreServer server({.host = "127.0.0.1", .threads = 3});
  const CampaignResult result = Ask(server.port(), 60, 50);
  EXPECT_EQ(result.histories, 60u);
  EXPECT_TRUE(result.findings.empty()) << Describe(result.findings.front());
}

}  // namespace muster::test
