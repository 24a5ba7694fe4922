// Interrupting a TcpStore whose server does not behave.
#include <gmock/gmock.h>
#include <signal.h>

#include "muster/delay.h"
#include "support/client_peers_test.h"
#include "support/errors.h"
#include "support/interruption_request.h"

namespace muster::test {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using Void = Background<void>;

class InterruptionTest : public ClientPeersTest {
 protected:
  StorePtr ConnectedWithGrace(milliseconds grace) {
    Background<StorePtr> connecting([&] {
      return std::make_shared<TcpStore>(
          "127.0.0.1",
          TcpStoreOptions{.port = listener_.port(), .timeout = kPatience, .cancel_grace = grace});
    });
    peer_.emplace(AcceptAndGreet());
    return connecting.Result();
  }

  InterruptionRequest request_;
};

TEST_F(InterruptionTest, AnUnansweredConnectionAttemptIsAbandoned) {
  Void connecting(request_.Within([&] { Connect(kPatience); }));
  request_.Make();
  EXPECT_THAT(
      ErrorOf<InterruptedError>([&] { connecting.Result(); }),
      AllOf(StartsWith("interrupted after "), HasSubstr("trying to connect to (127.0.0.1")));
}

TEST_F(InterruptionTest, AReplyThatIsUnderWayIsTheResultAndTheRequestIsKept) {
  const StorePtr store = Connected();
  request_.Make();
  Void caller([&] {
    const ScopedInterruption scope(request_.Check());
    EXPECT_EQ(store->Add("n", 1), 5);
    EXPECT_TRUE(scope.is_pending());
    EXPECT_THROW(Delay(kPatience), InterruptedError);
    EXPECT_FALSE(scope.is_pending());
  });
  EXPECT_TRUE(EventuallyTrue([&] { return request_.checks() > 0; }));
  peer_->Send(U64(5));
  caller.Result();
}

TEST_F(InterruptionTest, AReplyThatDoesNotComeCostsTheConnection) {
  const StorePtr store = ConnectedWithGrace(milliseconds(50));
  request_.Make();
  Void caller(request_.Within([&] { store->Add("n", 1); }));
  EXPECT_THAT(ErrorOf<InterruptedError>([&] { caller.Result(); }),
              AllOf(HasSubstr("the reply to ADD"), HasSubstr("the connection is closed")));
  EXPECT_THAT(ErrorOf<NetworkError>([&] { store->Add("n", 1); }), HasSubstr("was lost earlier"));
}

TEST_F(InterruptionTest, ARequestThatIsNotTakenCostsTheConnection) {
  const StorePtr store = Connected();
  request_.Make();
  // More than two sockets hold.
  const std::vector<std::string> values(4, std::string(8u << 20, 'x'));
  Void caller(request_.Within([&] { store->MultiSet({"a", "b", "c", "d"}, values); }));
  EXPECT_THAT(ErrorOf<InterruptedError>([&] { caller.Result(); }),
              AllOf(HasSubstr("sending MULTI_SET"), HasSubstr("the connection is closed")));
  EXPECT_THROW(store->Ping(), NetworkError);
}

TEST_F(InterruptionTest, ACancelThatIsNotAnsweredCostsTheConnection) {
  const StorePtr store = ConnectedWithGrace(milliseconds(50));
  request_.Make();
  Void caller(request_.Within([&] { store->Wait({"k"}); }));
  EXPECT_THAT(ErrorOf<InterruptedError>([&] { caller.Result(); }),
              AllOf(HasSubstr("keys: /k"), HasSubstr("CANCEL_WAIT")));
  EXPECT_THROW(store->Ping(), NetworkError);
}

TEST_F(InterruptionTest, AnAnswerThatCrossesTheCancelIsTheResult) {
  const StorePtr store = Connected();
  request_.Make();
  Void caller(request_.Within([&] { store->Wait({"k"}); }));
  EXPECT_TRUE(EventuallyTrue([&] { return request_.checks() > 0; }));
  peer_->Send(std::string("\0\1", 2));
  caller.Result();
}

TEST_F(InterruptionTest, ASignalMakesTheWaitCheckForARequestAtOnce) {
  struct sigaction old {};
  struct sigaction noop {};
  noop.sa_handler = [](int) {};
  sigaction(SIGUSR1, &noop, &old);
  const StorePtr store = Connected();
  {
    Void caller(request_.Within([&] { store->Ping(); }));
    ASSERT_TRUE(caller.UntilBlocked());
    // More checks than the time allows without the signals.
    const Stopwatch watch;
    EXPECT_TRUE(EventuallyTrue([&] {
      caller.Signal(SIGUSR1);
      return request_.checks() > 2 + 40 * watch.Elapsed() / std::chrono::seconds(1);
    }));
    peer_->Send(U32(static_cast<uint32_t>(getpid())));
    caller.Result();
  }
  sigaction(SIGUSR1, &old, nullptr);
}

}  // namespace muster::test
