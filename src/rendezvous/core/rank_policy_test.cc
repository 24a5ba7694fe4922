#include "rendezvous/core/rank_policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>

namespace muster {
namespace {

using ::testing::ElementsAre;

std::vector<Candidate> At(const std::vector<std::string>& addresses) {
  std::vector<Candidate> candidates;
  for (const std::string& addr : addresses) candidates.push_back({.node = {addr, 1, 0}});
  return candidates;
}

TEST(NaturalLessTest, NumbersCountByTheirValue) {
  EXPECT_TRUE(NaturalLess("node2", "node10"));
  EXPECT_TRUE(NaturalLess("10.0.0.9", "10.0.0.10"));
  EXPECT_TRUE(NaturalLess("rack1-node10", "rack2-node1"));
  EXPECT_TRUE(NaturalLess("a", "a1"));
  EXPECT_TRUE(NaturalLess("1", "a"));
  EXPECT_FALSE(NaturalLess("node10", "node2"));
  EXPECT_FALSE(NaturalLess("a", "a"));
}

TEST(NaturalLessTest, NumbersOfAnyLengthAndWithZeros) {
  EXPECT_TRUE(NaturalLess("n99999999999999999999", "n100000000000000000000"));
  EXPECT_TRUE(NaturalLess("n007", "n8"));
  EXPECT_TRUE(NaturalLess("n07", "n7")) << "equal in value: as text";
  EXPECT_FALSE(NaturalLess("n7", "n07"));
  EXPECT_TRUE(NaturalLess("n0", "n1"));
  EXPECT_TRUE(NaturalLess("n07b", "n7c"));
}

RC_GTEST_PROP(NaturalLessTest, IsATotalOrder, ()) {
  const auto text =
      rc::gen::container<std::string>(rc::gen::element('a', 'b', '0', '1', '9', '.', '-'));
  const std::string a = *text;
  const std::string b = *text;
  const std::string c = *text;
  RC_ASSERT(NaturalLess(a, b) + NaturalLess(b, a) + (a == b) == 1);
  if (NaturalLess(a, b) && NaturalLess(b, c)) RC_ASSERT(NaturalLess(a, c));
}

TEST(AssignRanksTest, NaturalAndText) {
  const auto nodes = At({"node10", "node2", "node1"});
  EXPECT_THAT(AssignRanks(RankPolicy::kNatural, nodes), ElementsAre(2, 1, 0));
  EXPECT_THAT(AssignRanks(RankPolicy::kText, nodes), ElementsAre(1, 2, 0));
}

TEST(AssignRanksTest, OneMachineWithSeveralAgentsGoesByProcessAndCounter) {
  const std::vector<Candidate> nodes = {
      {.node = {"a", 10, 0}}, {.node = {"a", 9, 1}}, {.node = {"a", 9, 0}}};
  for (const RankPolicy policy : {RankPolicy::kNatural, RankPolicy::kText, RankPolicy::kLabel}) {
    EXPECT_THAT(AssignRanks(policy, nodes), ElementsAre(2, 1, 0));
  }
}

TEST(AssignRanksTest, StableKeepsTheRanksOfSurvivorsAndFillsHoles) {
  auto nodes = At({"a", "b", "c", "d"});
  nodes[1].rank_before = 3;
  nodes[3].rank_before = 0;
  EXPECT_THAT(AssignRanks(RankPolicy::kStable, nodes), ElementsAre(1, 3, 2, 0));
}

TEST(AssignRanksTest, StableInASmallerWorldMovesOnlyWhoMust) {
  auto nodes = At({"a", "b", "c"});
  nodes[0].rank_before = 7;  // there is no rank 7 any more
  nodes[1].rank_before = 1;
  nodes[2].rank_before = 2;
  EXPECT_THAT(AssignRanks(RankPolicy::kStable, nodes), ElementsAre(0, 1, 2));
}

TEST(AssignRanksTest, StableGivesARankOnce) {
  auto nodes = At({"b", "a"});
  nodes[0].rank_before = 0;
  nodes[1].rank_before = 0;
  EXPECT_THAT(AssignRanks(RankPolicy::kStable, nodes), ElementsAre(1, 0)) << "to the first by name";
}

TEST(AssignRanksTest, LabelsGroupNeighbours) {
  auto nodes = At({"n1", "n2", "n3", "n4"});
  nodes[0].label = "rack10";
  nodes[1].label = "rack2";
  nodes[2].label = "rack10";
  EXPECT_THAT(AssignRanks(RankPolicy::kLabel, nodes), ElementsAre(2, 1, 3, 0))
      << "no label comes first";
}

TEST(RankPolicyTest, HasNames) {
  for (const auto policy :
       {RankPolicy::kNatural, RankPolicy::kText, RankPolicy::kStable, RankPolicy::kLabel}) {
    EXPECT_EQ(ParseRankPolicy(Name(policy)), policy);
  }
  EXPECT_EQ(ParseRankPolicy("random"), std::nullopt);
}

RC_GTEST_PROP(AssignRanksTest, RanksAreAllThereWhateverTheOrderOfTheCandidates, ()) {
  std::vector<Candidate> nodes;
  const auto count = *rc::gen::inRange(0, 20);
  for (int i = 0; i < count; ++i) {
    Candidate one{.node = {"n" + std::to_string(*rc::gen::inRange(0, 3)), i, 0},
                  .label = *rc::gen::element<std::string>("", "x", "y2", "y10")};
    if (*rc::gen::arbitrary<bool>()) one.rank_before = *rc::gen::inRange<int64_t>(-1, 25);
    nodes.push_back(one);
  }
  const auto policy = *rc::gen::element(RankPolicy::kNatural, RankPolicy::kText,
                                        RankPolicy::kStable, RankPolicy::kLabel);
  const auto ranks = AssignRanks(policy, nodes);
  auto sorted = ranks;
  std::ranges::sort(sorted);
  for (size_t i = 0; i < sorted.size(); ++i) RC_ASSERT(sorted[i] == static_cast<int64_t>(i));
  auto reversed = nodes;
  std::ranges::reverse(reversed);
  auto mirrored = AssignRanks(policy, reversed);
  std::ranges::reverse(mirrored);
  RC_ASSERT(mirrored == ranks);
}

}  // namespace
}  // namespace muster
