// RendezvousSettings: defaults, options and refusals.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "base/time.h"
#include "muster/rendezvous_parameters.h"
#include "support/errors.h"

namespace muster::test {

using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::HasSubstr;

namespace {

RendezvousSettings From(RendezvousConfig config) {
  return RendezvousSettings::From(
      RendezvousParameters("c10d", "localhost:0", "run", 2, 4, "", std::move(config)));
}

std::string RefusalOfOptions(RendezvousConfig config) {
  return ErrorOf<std::invalid_argument>([&] { From(config); });
}

std::string RefusalOf(const RendezvousSettings& settings) {
  return ErrorOf<std::invalid_argument>([&] { settings.Validate(); });
}

RendezvousSettings Valid() { return {.run_id = "run", .min_nodes = 2, .max_nodes = 4}; }

RendezvousSettings WithTimeouts(milliseconds join, milliseconds last_call, milliseconds close,
                                milliseconds heartbeat) {
  RendezvousSettings settings = Valid();
  settings.join_timeout = join;
  settings.last_call = last_call;
  settings.close_timeout = close;
  settings.heartbeat_timeout = heartbeat;
  return settings;
}

}  // namespace

TEST(RendezvousTimeoutTest, Rdzv013DefaultsToTenMinutesTwiceHalfAMinuteAndFiveSeconds) {
  const RendezvousSettings settings = Valid();
  EXPECT_EQ(settings.join_timeout, 600s);
  EXPECT_EQ(settings.last_call, 30s);
  EXPECT_EQ(settings.close_timeout, 30s);
  EXPECT_EQ(settings.heartbeat_timeout, 5s);
  EXPECT_NO_THROW(settings.Validate());
}

TEST(RendezvousTimeoutTest, Rdzv014KeepsGivenValuesExactly) {
  const RendezvousSettings settings = WithTimeouts(1ms, 61s, 1234ms, 7h);
  EXPECT_NO_THROW(settings.Validate());
  EXPECT_EQ(settings.join_timeout, 1ms);
  EXPECT_EQ(settings.last_call, 61s);
  EXPECT_EQ(settings.close_timeout, 1234ms);
  EXPECT_EQ(settings.heartbeat_timeout, 7h);
}

TEST(RendezvousTimeoutTest, Rdzv015RejectsZeroAndBelowAndNamesTheTimeout) {
  EXPECT_THAT(RefusalOf(WithTimeouts(0s, 1s, 1s, 1s)),
              AllOf(HasSubstr("'join'"), HasSubstr("0 ms")));
  EXPECT_THAT(RefusalOf(WithTimeouts(1s, -1s, 1s, 1s)),
              AllOf(HasSubstr("'last_call'"), HasSubstr("-1000 ms")));
  EXPECT_THAT(RefusalOf(WithTimeouts(1s, 1s, -1ms, 1s)),
              AllOf(HasSubstr("'close'"), HasSubstr("-1 ms")));
  EXPECT_THAT(RefusalOf(WithTimeouts(1s, 1s, 1s, milliseconds::min())),
              AllOf(HasSubstr("'heartbeat'"), HasSubstr("-9223372036854775808 ms")));
  EXPECT_THAT(RefusalOf(WithTimeouts(1s, 0s, 0s, 1s)), HasSubstr("'last_call'"));
  EXPECT_THAT(RefusalOfOptions({{"close_timeout", "0"}}), HasSubstr("'close'"));
  EXPECT_THAT(RefusalOfOptions({{"join_timeout", int64_t{-10}}}),
              AllOf(HasSubstr("'join'"), HasSubstr("-10000 ms")));
}

TEST(RendezvousSettingsTest, Rdzv016TakesTimeoutsFromOptionsInSeconds) {
  EXPECT_EQ(From({{"join_timeout", "10"},
                  {"last_call_timeout", " 20 "},
                  {"close_timeout", "30"},
                  {"heartbeat_timeout", "40"}}),
            WithTimeouts(10s, 20s, 30s, 40s));
}

TEST(RendezvousSettingsTest, Rdzv017FallsBackToTheDefaultsWithoutOptions) {
  EXPECT_EQ(From({}), Valid());
  EXPECT_EQ(From({{"join_timeout", std::monostate{}}}), Valid());
  EXPECT_EQ(From({}).keep_alive_interval, 5s);
  EXPECT_EQ(From({}).keep_alive_max_attempt, 3);
}

TEST(RendezvousSettingsTest, Rdzv018TakesTheKeepAliveFiguresFromOptions) {
  const RendezvousSettings settings =
      From({{"keep_alive_interval", "7"}, {"keep_alive_max_attempt", int64_t{9}}});
  EXPECT_EQ(settings.keep_alive_interval, 7s);
  EXPECT_EQ(settings.keep_alive_max_attempt, 9);
}

TEST(RendezvousSettingsTest, Rdzv019RejectsKeepAliveFiguresThatAreNoneAndNamesThem) {
  for (const std::string option : {"keep_alive_interval", "keep_alive_max_attempt"}) {
    EXPECT_THAT(RefusalOfOptions({{option, std::monostate{}}}),
                AllOf(HasSubstr("'" + option + "'"), HasSubstr("none")));
  }
}

TEST(RendezvousSettingsTest, ThePauseAfterALostWriteMayBeAFractionOfASecondAndIsNotNegative) {
  EXPECT_EQ(From({}).cas_backoff_max, 0s);
  EXPECT_EQ(From({{"cas_backoff_max_seconds", "0.25"}}).cas_backoff_max, 250ms);
  EXPECT_EQ(From({{"cas_backoff_max_seconds", int64_t{0}}}).cas_backoff_max, 0s);
  for (const std::string wrong : {"-1", "inf", "nan", "soon"})
    EXPECT_THAT(RefusalOfOptions({{"cas_backoff_max_seconds", wrong}}),
                HasSubstr("cas_backoff_max_seconds"));
  RendezvousSettings settings = Valid();
  settings.cas_backoff_max = -1ms;
  EXPECT_THAT(RefusalOf(settings), HasSubstr("cas_backoff_max_seconds"));
}

TEST(RendezvousSettingsTest, Rdzv020TheOptionTimeoutChangesNothing) {
  EXPECT_EQ(From({{"timeout", "1"}}), Valid());
  EXPECT_EQ(From({{"timeout", "no number"}}), Valid());
}

TEST(RendezvousSettingsTest, RejectsTextThatIsNoNumberAndNamesTheOption) {
  EXPECT_THAT(RefusalOfOptions({{"last_call_timeout", "soon"}}),
              AllOf(HasSubstr("'last_call_timeout'"), HasSubstr("'soon'")));
}

TEST(RendezvousSettingsTest, RejectsKeepAliveFiguresThatAreNotAboveZero) {
  EXPECT_THAT(RefusalOfOptions({{"keep_alive_interval", "0"}}),
              AllOf(HasSubstr("keep_alive_interval"), HasSubstr("0 ms")));
  EXPECT_THAT(RefusalOfOptions({{"keep_alive_interval", "-5"}}), HasSubstr("-5000 ms"));
  EXPECT_THAT(RefusalOfOptions({{"keep_alive_max_attempt", "0"}}),
              AllOf(HasSubstr("keep_alive_max_attempt"), HasSubstr("is 0.")));
  EXPECT_THAT(RefusalOfOptions({{"keep_alive_max_attempt", "-1"}}), HasSubstr("is -1."));
}

TEST(RendezvousSettingsTest, RejectsSecondsThatNoDurationCanHold) {
  constexpr int64_t kMost = int64_t{100} * 365 * 24 * 3600;
  EXPECT_EQ(From({{"join_timeout", kMost}}).join_timeout, std::chrono::seconds(kMost));
  for (const int64_t seconds : {kMost + 1, std::numeric_limits<int64_t>::max(), -kMost - 1,
                                std::numeric_limits<int64_t>::min()}) {
    for (const std::string option : {"join_timeout", "keep_alive_interval"}) {
      EXPECT_THAT(RefusalOfOptions({{option, seconds}}),
                  AllOf(HasSubstr("'" + option + "'"), HasSubstr(std::to_string(seconds))));
    }
  }
  EXPECT_THAT(RefusalOf(WithTimeouts(1s, 1s, milliseconds::max(), 1s)),
              AllOf(HasSubstr("'close'"), HasSubstr("100 years")));
}

TEST(RendezvousSettingsTest, RejectsASilenceThatNoDurationCanHold) {
  const int64_t most = std::numeric_limits<int64_t>::max();
  EXPECT_THAT(RefusalOfOptions({{"keep_alive_max_attempt", most}}),
              AllOf(HasSubstr("keep_alive_max_attempt"), HasSubstr("keep_alive_interval")));
  EXPECT_NO_THROW(From({{"keep_alive_max_attempt", int64_t{1'000'000}}}));
}

TEST(RendezvousSettingsTest, ValidateRejectsAnEmptyRunIdAndImpossibleNodeCounts) {
  EXPECT_NO_THROW(Valid().Validate());
  RendezvousSettings settings = Valid();
  settings.run_id.clear();
  EXPECT_THAT(RefusalOf(settings), HasSubstr("run id"));
  settings = Valid();
  settings.min_nodes = 0;
  EXPECT_THAT(RefusalOf(settings), AllOf(HasSubstr("minimum"), HasSubstr("is 0.")));
  settings = Valid();
  settings.max_nodes = 1;
  EXPECT_THAT(RefusalOf(settings), AllOf(HasSubstr("(1)"), HasSubstr("(2)")));
  settings = Valid();
  settings.heartbeat_timeout = 0s;
  EXPECT_THAT(RefusalOf(settings), HasSubstr("'heartbeat'"));
}

}  // namespace muster::test
