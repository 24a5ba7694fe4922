// Connecting: addresses that drop everything, and a machine without a free thread.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "os/posix/address.h"
#include "os/posix/posix_clock.h"
#include "os/posix/posix_dialer.h"
#include "support/raw_socket.h"

namespace muster::test {

namespace {

sockaddr_storage LoopbackAt(uint16_t port) {
  sockaddr_storage address{};
  auto& v4 = reinterpret_cast<sockaddr_in&>(address);
  v4.sin_family = AF_INET;
  v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  v4.sin_port = htons(port);
  return address;
}

/// A port whose accept queue is full and stays so: the kernel drops further connections.
class BlackHole {
 public:
  BlackHole() {
    listen(bound_.fd, 0);
    for (int i = 0; i < 4; ++i) {
      const int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
      const sockaddr_storage to = address();
      (void)connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof(sockaddr_in));
      fillers_.push_back(fd);
    }
  }
  ~BlackHole() {
    for (const int fd : fillers_) close(fd);
    close(bound_.fd);
  }
  sockaddr_storage address() const { return LoopbackAt(bound_.port); }

 private:
  const BoundSocket bound_ = BindLoopback();
  std::vector<int> fillers_;
};

}  // namespace

class DialerTest : public ::testing::Test {
 protected:
  PosixClock clock_;
};

TEST_F(DialerTest, Item105_AnAddressThatSwallowsEverythingDoesNotHideTheNext) {
  const BlackHole hole;
  RawListener listener;
  const std::vector<sockaddr_storage> addresses = {hole.address(), LoopbackAt(listener.port())};
  const Stopwatch watch;
  const auto stream = ConnectToAny(addresses, clock_, clock_.Now() + 1s);
  ASSERT_TRUE(stream) << stream.error().message;
  EXPECT_GE(watch.Elapsed(), milliseconds(400));  // half of the time was for the first one
  EXPECT_TRUE(listener.HasWaiting(milliseconds(5'000)));
}

TEST_F(DialerTest, Item107_AddressesThatAllSwallowCostTheDeadlineAndNoMore) {
  const BlackHole hole;
  const std::vector<sockaddr_storage> addresses(3, hole.address());
  const Stopwatch watch;
  const auto stream = ConnectToAny(addresses, clock_, clock_.Now() + 4s);
  ASSERT_FALSE(stream);
  EXPECT_EQ(stream.error().code, Code::kTimeout);
  EXPECT_GE(watch.Elapsed(), milliseconds(3'990));
  EXPECT_LT(watch.Elapsed(), milliseconds(4'000 * 12 / 10));
}

TEST_F(DialerTest, Item108_ALookUpForWhichThereIsNoThreadIsWorthAnotherTry) {
  pthread_attr_t usual;
  pthread_attr_t impossible;
  ASSERT_EQ(pthread_getattr_default_np(&usual), 0);
  ASSERT_EQ(pthread_attr_init(&impossible), 0);
  ASSERT_EQ(pthread_attr_setstacksize(&impossible, size_t{1} << 47), 0);
  ASSERT_EQ(pthread_setattr_default_np(&impossible), 0);
  Result<std::vector<sockaddr_storage>> found = std::vector<sockaddr_storage>();
  EXPECT_NO_THROW(found = Resolve({"localhost", 1}, clock_.Now(), clock_.Now() + 10s));
  ASSERT_EQ(pthread_setattr_default_np(&usual), 0);
  pthread_attr_destroy(&impossible);
  pthread_attr_destroy(&usual);
  ASSERT_FALSE(found);
  EXPECT_EQ(found.error().code, Code::kUnavailable);
  EXPECT_THAT(found.error().message, ::testing::HasSubstr("localhost"));
  EXPECT_TRUE(Resolve({"localhost", 1}, clock_.Now(), clock_.Now() + 10s));
}

}  // namespace muster::test
