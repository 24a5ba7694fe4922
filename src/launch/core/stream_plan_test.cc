#include "launch/core/stream_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster {
namespace {

using enum Destination;

constexpr Streams kNone{};
constexpr Streams kOut{.out = true};
constexpr Streams kErr{.err = true};
constexpr Streams kBoth{.out = true, .err = true};

StreamPlan Both(Destination where) { return {.out = where, .err = where}; }

TEST(StreamPlanTest, EveryCombinationOfTeeRedirectAndFilterHasItsDestination) {
  struct Row {
    bool teed;
    bool redirected;
    bool hidden;
    Destination expected;
  };
  const Row table[] = {
      {false, false, false, kConsole},       {false, false, true, kNothing},
      {false, true, false, kFile},           {false, true, true, kFile},
      {true, false, false, kFileAndConsole}, {true, false, true, kFile},
      {true, true, false, kFileAndConsole},  {true, true, true, kFile},
  };
  for (const Row& row : table) {
    StreamOptions options{.redirects = {row.redirected ? kOut : kNone},
                          .tee = {row.teed ? kOut : kNone},
                          .shown_workers = {row.hidden ? 1 : 0}};
    const StreamPlan out = PlanStreams(options, 0);
    EXPECT_EQ(out.out, row.expected) << row.teed << row.redirected << row.hidden;
    EXPECT_EQ(out.err, row.hidden ? kNothing : kConsole) << "the other stream is on its own";

    options.redirects = {row.redirected ? kErr : kNone};
    options.tee = {row.teed ? kErr : kNone};
    const StreamPlan err = PlanStreams(options, 0);
    EXPECT_EQ(err.err, row.expected) << row.teed << row.redirected << row.hidden;
    EXPECT_EQ(err.out, row.hidden ? kNothing : kConsole);
  }
}

TEST(StreamPlanTest, WithoutWishesAllGoesToTheConsole) {
  EXPECT_EQ(PlanStreams({}, 0), Both(kConsole));
  EXPECT_EQ(PlanStreams({}, 99), Both(kConsole));
}

TEST(StreamPlanTest, Launch113EachWorkerAndStreamHasItsOwnDestination) {
  const StreamOptions options{.redirects = {.by_worker = {{0, kOut}, {1, kErr}}},
                              .tee = {.by_worker = {{1, kOut}}}};
  EXPECT_EQ(PlanStreams(options, 0), (StreamPlan{.out = kFile, .err = kConsole}));
  EXPECT_EQ(PlanStreams(options, 1), (StreamPlan{.out = kFileAndConsole, .err = kFile}));
}

TEST(StreamPlanTest, Launch114TheFilterHidesTheEchoAndKeepsTheFiles) {
  const StreamOptions options{.tee = {kBoth}, .shown_workers = {1}};
  EXPECT_EQ(PlanStreams(options, 0), Both(kFile));
  EXPECT_EQ(PlanStreams(options, 1), Both(kFileAndConsole));
  EXPECT_EQ(PlanStreams(options, 2), Both(kFile));
}

TEST(StreamPlanTest, Launch115WithoutFilesTheFilterSilences) {
  const StreamOptions options{.shown_workers = {0, 2}};
  EXPECT_EQ(PlanStreams(options, 0), Both(kConsole));
  EXPECT_EQ(PlanStreams(options, 1), Both(kNothing));
  EXPECT_EQ(PlanStreams(options, 2), Both(kConsole));
}

TEST(StreamPlanTest, WithoutLogsNothingIsRedirectedOrTeed) {
  StreamOptions options{
      .redirects = {kBoth}, .tee = {.by_worker = {{0, kOut}, {1, kErr}}}, .without_logs = true};
  EXPECT_EQ(PlanStreams(options, 0), Both(kConsole));
  EXPECT_EQ(PlanStreams(options, 1), Both(kConsole));
  options.shown_workers = {1};
  EXPECT_EQ(PlanStreams(options, 0), Both(kNothing));
  EXPECT_EQ(PlanStreams(options, 1), Both(kConsole));
}

const WorkerLabel kTrainer{
    .role = "trainer", .rank = 17, .local_rank = 1, .host = "node7", .attempt = 2};

TEST(LinePrefixTest, Launch111TheDefaultIsRoleAndLocalRank) {
  EXPECT_EQ(LinePrefix({.role = "default"}), "[default0]:");
  EXPECT_EQ(LinePrefix({.role = "tr"}), "[tr0]:");
  EXPECT_EQ(LinePrefix({.role = "default", .rank = 40, .local_rank = 12}), "[default12]:");
}

TEST(LinePrefixTest, Launch112ATemplateIsFilledIn) {
  EXPECT_EQ(LinePrefix({}, "[rank${rank}]: "), "[rank0]: ");
  EXPECT_EQ(LinePrefix(kTrainer, "$role_name $rank $local_rank|"), "trainer 17 1|");
  EXPECT_EQ(LinePrefix(kTrainer, "$foo ${foo} $$ $rankx"), "$foo ${foo} $ $rankx");
}

TEST(LinePrefixTest, NamesCannotRedrawTheScreen) {
  const WorkerLabel hostile{.role = "a\x1b[2J\u009b", .host = "b\n\u202e"};
  EXPECT_EQ(LinePrefix(hostile), "[a\\x1b[2J\\xc2\\x9b0]:");
  EXPECT_EQ(LinePrefix(hostile, "$role_name@$host:"), "a\\x1b[2J\\xc2\\x9b@b\\x0a\\xe2\\x80\\xae:");
}

TEST(LinePrefixTest, HostAndAttemptAreKnownToo) {
  EXPECT_EQ(LinePrefix(kTrainer, "$host/${attempt}: "), "node7/2: ");
  EXPECT_EQ(LinePrefix({.host = "n1.example.org"}, "${hostname} $host"), "n1 n1.example.org");
}

TEST(LinePrefixTest, AnEmptyTemplateIsNone) {
  EXPECT_EQ(LinePrefix(kTrainer, ""), "[trainer1]:");
  EXPECT_EQ(LinePrefix(kTrainer, " "), " ");
}

}  // namespace
}  // namespace muster
