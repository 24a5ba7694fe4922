// A server without free file descriptors: its clients notice nothing; new ones are refused cleanly,
// and served again when there is room.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <vector>

#include "muster/store_server.h"
#include "muster/tcp_store.h"
#include "support/background.h"
#include "support/process_limits.h"
#include "support/raw_client.h"
#include "support/server_process.h"

namespace muster::test {

class DescriptorsTest : public ::testing::Test {
 protected:
  static constexpr rlim_t kDescriptors = 600;

  void SetUp() override {
    ASSERT_GE(RaiseDescriptorLimit(), 2 * kDescriptors);
    server_.emplace(StoreServerOptions{.host = "127.0.0.1", .threads = 2}, kDescriptors);
  }

  /// A client that the server serves; nothing if it was refused.
  std::optional<RawClient> TryConnect() {
    try {
      RawClient client = RawClient::Validated(server_->port());
      if (client.SaidSoFar().empty()) return client;
    } catch (const std::runtime_error&) {
      // Closed or reset before it was answered.
    }
    return std::nullopt;
  }

  /// Connects until the server refuses a client.
  void UseThemUp() {
    while (std::optional<RawClient> client = TryConnect()) {
      clients_.push_back(std::move(*client));
      ASSERT_LT(clients_.size(), kDescriptors);
    }
    ASSERT_GT(clients_.size(), kDescriptors / 2);
  }

  std::optional<ServerProcess> server_;
  std::vector<RawClient> clients_;
};

TEST_F(DescriptorsTest, Item112_ThoseConnectedNoticeNothingWhenDescriptorsRunOut) {
  UseThemUp();
  for (int i = 0; i < 50; ++i) EXPECT_FALSE(TryConnect());
  for (RawClient& client : clients_) ASSERT_EQ(client.SaidSoFar(), "");
  clients_[0].Send(WaitBytes({"/k"}));
  clients_[0].Settle();
  clients_[1].Send(SetBytes("/k", "v"));
  EXPECT_EQ(clients_[0].Receive(1), kStop);
  // Descriptors first, then the end: the leak check of a sanitizer needs some.
  clients_.clear();
  EXPECT_TRUE(EventuallyTrue([&] { return TryConnect().has_value(); }));
  EXPECT_EQ(server_->Stop(), 0);
}

TEST_F(DescriptorsTest, Item112_NewOnesAreTurnedAwayAtOnceAndNotLeftHanging) {
  UseThemUp();
  for (int i = 0; i < 20; ++i) {
    RawClient turned_away(server_->port());
    EXPECT_EQ(turned_away.ReceiveUntilClosed(), "");
  }
}

TEST_F(DescriptorsTest, Item112_NewOnesAreServedWhenSomeHaveGone) {
  UseThemUp();
  EXPECT_FALSE(TryConnect());
  clients_.erase(clients_.end() - 10, clients_.end());
  EXPECT_TRUE(EventuallyTrue([&] { return TryConnect().has_value(); }));
  // Once more: refusing clients does not use up the reserve for it.
  UseThemUp();
  EXPECT_FALSE(TryConnect());
  clients_.clear();
  EXPECT_TRUE(EventuallyTrue([&] { return TryConnect().has_value(); }));
  EXPECT_EQ(server_->Stop(), 0);
}

TEST_F(DescriptorsTest, Item106_AClientThatIsTurnedAwayTriesAgain) {
  UseThemUp();
  Background<int64_t> newcomer([&] {
    TcpStore store("127.0.0.1", {.port = server_->port(), .timeout = kPatience});
    return store.Add("n", 1);
  });
  ASSERT_TRUE(newcomer.UntilBlocked());
  clients_.clear();
  EXPECT_EQ(newcomer.Result(), 1);
}

TEST_F(DescriptorsTest, Item106_AClientWithoutADescriptorWaitsForOne) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none{.rlim_cur = 3, .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  Background<int64_t> newcomer([&] {
    TcpStore store("127.0.0.1", {.port = server_->port(), .timeout = kPatience});
    return store.Add("n", 1);
  });
  // Long enough for the first attempt to have failed. (Looking at the thread would take a
  // descriptor.)
  const Stopwatch watch;
  EXPECT_TRUE(EventuallyTrue([&] { return watch.Elapsed() > milliseconds(200); }));
  const bool gave_up = newcomer.IsDone();
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_FALSE(gave_up);
  EXPECT_EQ(newcomer.Result(), 1);
}

// Ends the process: 7 with the error's text on stderr if the server reports what it lacks.
[[noreturn]] void StartWithFewDescriptors() {
  const rlimit limit = {.rlim_cur = 24, .rlim_max = 24};
  setrlimit(RLIMIT_NOFILE, &limit);
  try {
    const StoreServer server({.host = "127.0.0.1", .threads = 64});
  } catch (const NetworkError& error) {
    std::fprintf(stderr, "%s\n", error.what());
    std::_Exit(7);
  }
  std::_Exit(1);
}

TEST(DescriptorsAtStartTest, AServerThatCannotMakeItsLoopsReportsIt) {
  ASSERT_EXIT(StartWithFewDescriptors(), ::testing::ExitedWithCode(7),
              "no event loop: too many open files");
}

}  // namespace muster::test
