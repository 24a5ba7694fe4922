#include "os/uv/uv_outbox.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace muster {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

namespace {

class Peer final : public UvOutbox::Sender {
 public:
  void Send(std::string_view bytes) override { sent.emplace_back(bytes); }
  std::vector<std::string> sent;
};

}  // namespace

TEST(UvOutboxTest, NothingLeavesBeforeTheFlush) {
  UvOutbox outbox;
  Peer peer;
  EXPECT_FALSE(outbox.Holds(peer));
  outbox.Add(peer, "a");
  EXPECT_TRUE(outbox.Holds(peer));
  EXPECT_THAT(peer.sent, IsEmpty());
  outbox.Flush();
  EXPECT_THAT(peer.sent, ElementsAre("a"));
  EXPECT_FALSE(outbox.Holds(peer));
}

TEST(UvOutboxTest, RepliesInARowLeaveTogetherAndAllInOrder) {
  UvOutbox outbox;
  Peer first;
  Peer second;
  outbox.Add(first, "a");
  outbox.Add(first, "b");
  outbox.Add(second, "c");
  outbox.Add(first, "d");
  outbox.Flush();
  EXPECT_THAT(first.sent, ElementsAre("ab", "d"));
  EXPECT_THAT(second.sent, ElementsAre("c"));
}

TEST(UvOutboxTest, AStormDoesNotHoldTheFirstBack) {
  UvOutbox outbox;
  std::vector<Peer> peers(64);
  for (Peer& peer : peers) outbox.Add(peer, "x");
  EXPECT_THAT(peers.front().sent, ElementsAre("x"));
  EXPECT_THAT(peers.back().sent, ElementsAre("x"));
}

TEST(UvOutboxTest, NoLetterIsLargerThanItGains) {
  UvOutbox outbox;
  Peer peer;
  const std::string half(UvOutbox::kLetterBytesMax / 2, 'x');
  outbox.Add(peer, half);
  outbox.Add(peer, half);
  EXPECT_THAT(peer.sent, IsEmpty());
  outbox.Add(peer, "y");
  EXPECT_THAT(peer.sent, ElementsAre(half + half));
  EXPECT_TRUE(outbox.Holds(peer));
}

}  // namespace muster
