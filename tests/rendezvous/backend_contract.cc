#include "rendezvous/backend_contract.h"

#include <gmock/gmock.h>

#include "muster/rendezvous_error.h"
#include "support/background.h"
#include "support/errors.h"
#include "support/eventually.h"

namespace muster::test {

using ::testing::HasSubstr;

TEST_P(BackendContract, Rdzv138NewBackendsFindNothing) {
  const auto first = Open();
  const auto second = Open();
  EXPECT_FALSE(first->GetState());
  EXPECT_FALSE(second->GetState());
}

TEST_P(BackendContract, Rdzv138ALaterBackendLeavesTheStateAlone) {
  Open()->SetState("state");
  const auto later = Open();
  ASSERT_TRUE(later->GetState());
  EXPECT_EQ(later->GetState()->bytes, "state");
}

TEST_P(BackendContract, Rdzv139WithoutATokenItWritesOnlyIfNothingIsThere) {
  const auto backend = Open();
  const auto written = backend->SetState("first");
  ASSERT_TRUE(written);
  EXPECT_TRUE(written->was_set);
  EXPECT_EQ(written->bytes, "first");
  for (const std::any& none : GetParam().no_tokens) {
    const auto refused = backend->SetState("second", none);
    ASSERT_TRUE(refused);
    EXPECT_FALSE(refused->was_set);
    EXPECT_EQ(refused->bytes, "first");
    EXPECT_EQ(Text(refused->token), Text(written->token));
  }
}

TEST_P(BackendContract, Rdzv140OnlyTheCurrentTokenWrites) {
  const auto backend = Open();
  const std::any old = backend->SetState("first")->token;
  const auto second = backend->SetState("second", old);
  ASSERT_TRUE(second);
  EXPECT_TRUE(second->was_set);
  EXPECT_NE(Text(second->token), Text(old));
  const auto refused = backend->SetState("third", old);
  ASSERT_TRUE(refused);
  EXPECT_FALSE(refused->was_set);
  EXPECT_EQ(refused->bytes, "second");
  EXPECT_EQ(Text(refused->token), Text(second->token));
  EXPECT_EQ(Text(backend->GetState()->token), Text(second->token));
  EXPECT_TRUE(backend->SetState("third", refused->token)->was_set);
}

TEST_P(BackendContract, Rdzv140ATokenIsAsGoodInAnotherBackend) {
  const std::any token = Open()->SetState("first")->token;
  const auto other = Open();
  EXPECT_TRUE(other->SetState("second", token)->was_set);
  EXPECT_EQ(other->GetState()->bytes, "second");
}

TEST_P(BackendContract, Rdzv141AForeignTokenWritesNothing) {
  const auto backend = Open();
  EXPECT_FALSE(backend->SetState("state", std::any(7)));
  EXPECT_FALSE(backend->GetState());
  backend->SetState("state");
  for (const std::any& token : {std::any(7), std::any("chars"), std::any(nullptr)}) {
    const auto refused = backend->SetState("other", token);
    ASSERT_TRUE(refused);
    EXPECT_FALSE(refused->was_set);
    EXPECT_EQ(refused->bytes, "state");
  }
}

TEST_P(BackendContract, Rdzv143WhatIsNoBase64IsAStateErrorButANewlineIsFine) {
  const auto backend = Open();
  for (const char* value : {"non_base64", "YQ", "Y"}) {
    place_->Put(value);
    EXPECT_THAT(ErrorOf<RendezvousStateError>([&] { backend->GetState(); }), HasSubstr("base64"));
    EXPECT_THROW(backend->SetState("mine"), RendezvousStateError);
    EXPECT_THROW(backend->SetState("mine", std::any(7)), RendezvousStateError);
  }
  place_->Put("c3RhdGU=\n");
  const auto state = backend->GetState();
  ASSERT_TRUE(state);
  EXPECT_EQ(state->bytes, "state");
  EXPECT_TRUE(backend->SetState("next", state->token)->was_set) << "the token is the exact value";
}

TEST_P(BackendContract, AnyBytesComeBack) {
  const auto backend = Open();
  std::string bytes;
  for (int byte = 0; byte < 256; ++byte) bytes += static_cast<char>(byte);
  std::any token = backend->SetState(bytes)->token;
  EXPECT_EQ(backend->GetState()->bytes, bytes);
  EXPECT_TRUE(backend->SetState("", token)->was_set);
  EXPECT_EQ(backend->GetState()->bytes, "");
}

TEST_P(BackendContract, OfManyWritersEachTurnHasOneWinner) {
  constexpr int kWriters = 4;
  constexpr int kWins = 10;
  Open()->SetState("0");
  InParallel(kWriters, [&](int index) {
    const auto mine = Open();
    StoredState seen = *mine->GetState();
    for (int wins = 0; wins < kWins;) {
      const int next = std::stoi(seen.bytes) + 1;
      const std::string bytes = std::to_string(next) + " by " + std::to_string(index);
      const auto result = mine->SetState(bytes, seen.token);
      if (result->was_set) ++wins;
      EXPECT_EQ(result->was_set, result->bytes == bytes);
      seen = {result->bytes, result->token};
    }
  });
  EXPECT_EQ(std::stoi(Open()->GetState()->bytes), kWriters * kWins);
}

TEST_P(BackendContract, AWaitForANoticeIsEndedByIt) {
  const auto waiting = Open();
  // The limit is far away: a wait that ends only at its limit fails the test.
  Background<bool> waiter([&] { return waiting->AwaitNews("round 1", milliseconds(300'000)); });
  ASSERT_TRUE(waiter.UntilBlocked());
  const auto other = Open();
  other->Announce("round 2");
  other->Announce("round 1");
  EXPECT_TRUE(waiter.Result());
}

TEST_P(BackendContract, ANoticeThatWasGivenBeforeEndsTheWaitAtOnce) {
  Open()->Announce("round 1");
  const auto late = Open();
  EXPECT_TRUE(late->AwaitNews("round 1", milliseconds(300'000)));
  EXPECT_FALSE(late->GetState()) << "a notice is no state";
}

TEST_P(BackendContract, AWaitForANoticeEndsAtItsTimeout) {
  const auto backend = Open();
  const Stopwatch watch;
  EXPECT_TRUE(backend->AwaitNews("round 1", milliseconds(50))) << "it can wait";
  EXPECT_GE(watch.Elapsed(), milliseconds(50));
}

}  // namespace muster::test
