// A server that runs out of memory at any point. This program has an operator new that fails where
// the test wants it to, once, on the server's threads only.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>

#include "muster/store_server.h"
#include "support/eventually.h"
#include "support/raw_client.h"
#include "support/session_talker.h"

namespace {
// Allocations until one fails; 0: none fails.
std::atomic<int64_t> until_failure = 0;
thread_local bool is_tests_own = false;

bool IsToFail() {
  if (is_tests_own || until_failure.load(std::memory_order_relaxed) <= 0) return false;
  return until_failure.fetch_sub(1) == 1;
}
}  // namespace

// As in the standard: the handler is called, and another attempt is made, until it throws.
void* operator new(size_t bytes) {
  bool fails = IsToFail();
  while (true) {
    void* made = fails ? nullptr : std::malloc(bytes > 0 ? bytes : 1);
    if (made != nullptr) return made;
    const std::new_handler handler = std::get_new_handler();
    if (handler == nullptr) throw std::bad_alloc();
    handler();
    fails = false;
  }
}
void operator delete(void* bytes) noexcept { std::free(bytes); }
void operator delete(void* bytes, size_t) noexcept { std::free(bytes); }

namespace muster::test {
namespace {

class OutOfMemoryTest : public ::testing::Test {
 protected:
  OutOfMemoryTest() { is_tests_own = true; }
  ~OutOfMemoryTest() override { until_failure = 0; }

  // Every kind of client, and then all kinds of the server's work: requests, ticks, the ends of
  // connections, a new one, and a round. The allocation of that number fails. False: there were not
  // so many.
  bool Play(int64_t failing, bool abruptly) {
    StoreServer server({.host = "127.0.0.1", .threads = 2, .stall_max = milliseconds(20)});
    const auto client = [&] { return RawClient::Validated(server.port()); };
    RawClient ordinary = client(), waiter = client(), at_barrier = client(), popper = client(),
              next_popper = client(), slow = client();
    SessionTalker first(server.port(), HelloOf("a", Patient(2, 2)));
    SessionTalker second(server.port(), HelloOf("b", Patient(2, 2)));
    waiter.Send(WaitBytes({"/gate", "/other"}));
    at_barrier.Send(BarrierBytes("/barrier", 2));
    popper.Send(WaitBytes({"/queue"}));
    popper.Settle();
    next_popper.Send(WaitBytes({"/queue"}));
    for (RawClient* parked : {&waiter, &at_barrier, &next_popper}) parked->Settle();
    // Unfinished: a tick must close it.
    slow.Send(SetBytes("/large", std::string(1 << 20, 'x')).substr(0, 200'000));
    until_failure = failing;

    ordinary.Send(PushBytes("/queue", "element"));
    EXPECT_EQ(popper.Receive(1), kStop);
    abruptly ? popper.CloseAbruptly() : popper.Close();  // its element goes to the next
    EXPECT_EQ(next_popper.Receive(1), kStop);
    ordinary.Send(SetBytes("/gate", "open") + SetBytes("/other", std::string(5'000, 'x')));
    EXPECT_EQ(waiter.Receive(1), kStop);
    EXPECT_EQ(ordinary.Ask(BarrierBytes("/barrier", 2), 1), kStop);
    EXPECT_EQ(at_barrier.Receive(1), kStop);
    first.Join();
    second.Join();
    for (SessionTalker* node : {&first, &second}) {
      while (node->Hear().kind != Push::Kind::kComplete) {
      }
    }
    EXPECT_EQ(slow.ReceiveUntilClosed(), "");
    EXPECT_EQ(client().AskNumber(AddBytes("/n", 1)), 1);
    EXPECT_EQ(ordinary.AskNumber(AddBytes("/n", 1)), 2);
    return until_failure.exchange(0) <= 0;
  }
};

TEST_F(OutOfMemoryTest, TheServerLivesWhateverItWasDoing) {
  int64_t failing = 1;
  while (Play(failing, failing % 2 == 0) && !HasFailure()) ++failing;
  EXPECT_GT(failing, 50);
}

TEST_F(OutOfMemoryTest, AndTakesLessFromThenOn) {
  StoreServer server({.host = "127.0.0.1", .threads = 1, .store_bytes_max = 1ull << 30});
  RawClient client = RawClient::Validated(server.port());
  client.Send(SetBytes("/large", std::string(8 << 20, 'x')));
  client.Settle();
  until_failure = 1;
  client.Send(SetBytes("/small", std::string(2'000, 'x')));
  EXPECT_EQ(client.SaidSoFar(), "");
  EXPECT_EQ(until_failure, 0);
  const auto send_more = [&] {
    for (int i = 0; i < 3; ++i) {
      client.Send(SetBytes(Concat("/large/", i), std::string(8 << 20, 'x')));
      client.Settle();
    }
  };
  EXPECT_THROW(send_more(), std::runtime_error);
  RawClient another = RawClient::Validated(server.port());
  another.Send(SetBytes("/more", "x"));
  EXPECT_EQ(another.AskNumber(DeleteBytes("/large")), 1);
  another.Send(SetBytes("/large", std::string(1 << 20, 'x')));
  EXPECT_EQ(another.SaidSoFar(), "");
}

}  // namespace
}  // namespace muster::test
