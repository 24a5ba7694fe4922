// The names of nodes in messages to each other.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "muster/network.h"
#include "rendezvous/handler_kit.h"
#include "support/background.h"
#include "support/child_process.h"

namespace muster::test {

using ::testing::SizeIs;

namespace {

Node Made(const Meeting& meeting, std::string addr = "host") {
  return NodeNamed(meeting.Join(QuickSettings(1, 1), std::move(addr))->node());
}

}  // namespace

TEST(NodeNamesTest, Rdzv024NodesOfAProcessAreCounted) {
  const Meeting meeting;
  const Node first = Made(meeting);
  EXPECT_EQ(first.pid, getpid());
  for (int64_t next = 1; next < 4; ++next) {
    EXPECT_EQ(Made(meeting), (Node{"host", getpid(), first.local_id + next}));
  }
}

TEST(NodeNamesTest, Rdzv024AForkedProcessIsAnotherNode) {
  const Meeting meeting;
  ChildProcess child =
      ChildProcess::Fork([&](int, int) { return Made(meeting).pid == getpid() ? 0 : 1; });
  EXPECT_NE(child.pid(), getpid());
  EXPECT_EQ(child.Wait(), 0);
}

TEST(NodeNamesTest, Rdzv025AnAddressIsTakenVerbatimAndNoneIsTheMachinesName) {
  const Meeting meeting;
  for (const char* addr : {"10.0.0.9", "::1", "Node-7.Example", "a_b_c", " padded "}) {
    EXPECT_EQ(Made(meeting, addr).addr, addr);
  }
  EXPECT_EQ(Made(meeting, "").addr, FullyQualifiedName());
}

TEST(NodeNamesTest, ANodeIsWrittenDownAsAddressProcessAndNumber) {
  const auto node = Meeting().Join(QuickSettings(1, 1), "host");
  const std::string pid = std::to_string(getpid());
  EXPECT_TRUE(node->node().starts_with("host_" + pid + "_")) << node->node();
}

TEST(NodeNamesTest, Rdzv026NodesMadeAtOnceHaveDifferentNumbers) {
  const Meeting meeting;
  std::mutex mutex;
  std::set<int64_t> numbers;
  InParallel(8, [&](int) {
    for (int i = 0; i < 50; ++i) {
      const int64_t number = Made(meeting).local_id;
      const std::lock_guard lock(mutex);
      numbers.insert(number);
    }
  });
  EXPECT_THAT(numbers, SizeIs(400));
  EXPECT_EQ(*numbers.rbegin() - *numbers.begin(), 399) << "and none is left out";
}

}  // namespace muster::test
