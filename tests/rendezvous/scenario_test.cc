// Every file in tests/scenarios is a story: its purpose, its events, and after "----" the results.
// MUSTER_REWRITE=1 writes the present results; the difference is reviewed like code.
#include "rendezvous/scenario.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "support/place.h"

namespace muster::testing {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> Stories() {
  std::vector<fs::path> found;
  for (const auto& entry : fs::directory_iterator(fs::path(test::TestsFolder()) / "scenarios")) {
    if (entry.path().extension() == ".txt") found.push_back(entry.path());
  }
  std::ranges::sort(found);
  return found;
}

class ScenarioTest : public ::testing::TestWithParam<fs::path> {};

TEST_P(ScenarioTest, HappensAsWritten) {
  std::ifstream in(GetParam());
  std::stringstream text;
  text << in.rdbuf();
  const std::string story = text.str();
  const size_t line = story.find("----\n");
  ASSERT_NE(line, story.npos) << GetParam();
  std::string commands;
  std::istringstream lines(story.substr(0, line));
  for (std::string one; std::getline(lines, one);) {
    if (!one.starts_with('#')) commands += one + "\n";
  }
  const std::string happened = Scenario().Play(commands);
  if (std::getenv("MUSTER_REWRITE") != nullptr) {
    std::ofstream(GetParam()) << story.substr(0, line + 5) << happened;
  } else {
    EXPECT_EQ(happened, story.substr(line + 5)) << GetParam();
  }
}

INSTANTIATE_TEST_SUITE_P(Scenarios, ScenarioTest, ::testing::ValuesIn(Stories()),
                         [](const auto& story) { return story.param.stem().string(); });

}  // namespace
}  // namespace muster::testing
