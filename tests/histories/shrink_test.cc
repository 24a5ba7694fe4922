#include "histories/shrink.h"

#include <gtest/gtest.h>

#include "histories/checker.h"
#include "histories/history_words.h"

namespace muster::test {

TEST(ShrinkTest, OnlyTheContradictionIsLeft) {
  const History contradiction = {Set("a").At(10, 11), Set("b").At(20, 21), Get("a").At(30, 31)};
  History history = contradiction;
  history.insert(history.end(),
                 {CheckSaw(true).At(14, 15), Push("x").At(0, 50), TryPop("x").At(1, 51),
                  QueueLen(0).At(2, 52), Set("c").At(40, 41), Get("c").At(42, 43)});
  EXPECT_EQ(Shrink(history), contradiction) << Describe(Shrink(history));
}

TEST(ShrinkTest, AWriteThatWouldExplainWhatWasSeenIsKept) {
  // Without the first write, the read would have an unknown value, which is not the violation here.
  const History history = {Set("a").At(0, 1), Delete(true).At(2, 3), Get("a").At(4, 5)};
  EXPECT_EQ(Shrink(history).size(), 3u);
}

TEST(ShrinkTest, TheOrderOfASessionIsPartOfTheContradiction) {
  // The proof is that the set came first, and only the session shows that.
  const History history = {Set("a").At(0, 9).By(1, 0), CheckSaw(true).At(1, 9).By(1, 1),
                           CompareSet("", "b", "b").At(2, 9).By(1, 2), Read("b").At(3, 9).By(1, 3)};
  const History shrunk = Shrink(history);
  EXPECT_EQ(Check(shrunk).kind, Verdict::Kind::kViolation) << Describe(shrunk);
  EXPECT_LE(shrunk.size(), 3u) << Describe(shrunk);
}

TEST(ShrinkTest, TheWriteOfASeenValueIsKept) {
  // Only the session shows that the delete was between the two.
  const History history = {Set("a").At(0, 9).By(1, 0), Delete(true).At(0, 9).By(1, 1),
                           Get("a").At(0, 9).By(1, 2)};
  EXPECT_EQ(Shrink(history).size(), 3u);
}

TEST(ShrinkTest, AnUnwrittenValueStandsAlone) {
  const Operation doubled = Get("aa").At(4, 5);
  EXPECT_EQ(Shrink({Append("a").At(0, 1), CheckSaw(true).At(2, 3), doubled}), History{doubled});
}

TEST(ShrinkTest, WhatCameLaterIsLeftOut) {
  History history = {Add(1, 1).At(0, 1), Add(1, 1).At(2, 3)};
  for (int i = 0; i < 20; ++i) history.push_back(Add(1, 2 + i).At(10 + 2 * i, 11 + 2 * i));
  EXPECT_EQ(Shrink(history).size(), 2u);
}

}  // namespace muster::test
