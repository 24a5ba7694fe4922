// How a listener shares its loop with what else lives there.
#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "os/uv/uv_listener.h"
#include "os/uv/uv_loop.h"
#include "support/raw_client.h"

namespace muster::test {

TEST(AcceptingTest, AFloodOfConnectionsLeavesTurnsToTheOthersOnItsLoop) {
  constexpr size_t kMany = 300;
  Result<std::unique_ptr<UvThread>> thread = UvThread::Open();
  ASSERT_TRUE(thread);
  Result<ListeningSocket> socket = ListeningSocket::Bind("127.0.0.1", 0);
  ASSERT_TRUE(socket);
  std::vector<RawClient> flood;
  for (size_t i = 0; i < kMany; ++i) flood.emplace_back(socket->port());
  size_t accepted = 0;
  size_t at_next_turn = 0;
  std::unique_ptr<UvListener> listener;
  UvLoop& loop = (*thread)->loop();
  (*thread)->RunAndWait([&] {
    const auto judge = [](std::string_view) { return Opening::kOther; };
    listener = std::make_unique<UvListener>(loop, std::move(*socket), judge, nullptr, 0);
    listener->Start(
        [&](const UvListener::OpenSocket&) {
          if (++accepted == 1) loop.Post([&] { at_next_turn = accepted; });
        },
        [](const PeerGroup&, size_t, bool) {});
  });
  const auto all = [&] {
    bool all_accepted = false;
    (*thread)->RunAndWait([&] { all_accepted = accepted == kMany; });
    return all_accepted;
  };
  EXPECT_TRUE(EventuallyTrue(all));
  EXPECT_GE(at_next_turn, 1u);
  EXPECT_LE(at_next_turn, kMany / 2) << "the loop accepted all of them in one turn";
  (*thread)->RunAndWait([&] { listener.reset(); });
}

}  // namespace muster::test
