#include "launch/core/failure_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <climits>
#include <csignal>
#include <sstream>
#include <vector>

#include "base/prng.h"
#include "base/text.h"

namespace muster {
namespace {

using testing::HasSubstr;

std::string AtTenTwenty(int64_t seconds) { return Concat("2026-01-31_10:20:", seconds); }

FailureRecord Culprit() {
  return {.host = "node7.example.org",
          .rank = 4,
          .local_rank = 0,
          .pid = 4241,
          .code = 3,
          .time_seconds = 30,
          .order = 10};
}

FailureRecord Victim() {
  return {.host = "node7.example.org",
          .rank = 5,
          .local_rank = 1,
          .pid = 4242,
          .code = -SIGTERM,
          .time_seconds = 31,
          .order = 20,
          .was_signalled = true};
}

std::string Report(const std::vector<FailureRecord>& records, size_t root = 0) {
  return FailureReport("train.py", records, root, AtTenTwenty);
}

TEST(FailureReportTest, ShowsEveryFailureInTorchrunsShape) {
  EXPECT_EQ(
      Report({Culprit(), Victim()}),
      "ChildFailedError: rank 4 (local rank 0, pid 4241) on node7.example.org failed first: "
      "exit code 3\n"
      "\n"
      "============================================================\n"
      "train.py FAILED\n"
      "------------------------------------------------------------\n"
      "Failures:\n"
      "[1]:\n"
      "  time      : 2026-01-31_10:20:31\n"
      "  host      : node7.example.org\n"
      "  rank      : 5 (local_rank: 1)\n"
      "  exitcode  : -15 (pid: 4242)\n"
      "  error_file: <N/A>\n"
      "  traceback : Signal 15 (SIGTERM) received by PID 4242\n"
      "------------------------------------------------------------\n"
      "Root Cause (first observed failure):\n"
      "[0]:\n"
      "  time      : 2026-01-31_10:20:30\n"
      "  host      : node7.example.org\n"
      "  rank      : 4 (local_rank: 0)\n"
      "  exitcode  : 3 (pid: 4241)\n"
      "  error_file: <N/A>\n"
      "  traceback : the worker left no error file; how its exceptions get into this report: "
      "https://pytorch.org/docs/stable/elastic/errors.html (--tee 2 or --redirects 2 adds the "
      "last lines of its output)\n"
      "============================================================\n");
}

TEST(FailureReportTest, AFailureAloneHasAPlaceholderForTheOthers) {
  FailureRecord record = Culprit();
  record.error_file = "/e/error.json";
  record.message = "no data";
  EXPECT_EQ(Report({record}),
            "ChildFailedError: rank 4 (local rank 0, pid 4241) on node7.example.org failed first: "
            "exit code 3\n"
            "\n"
            "=================================\n"
            "train.py FAILED\n"
            "---------------------------------\n"
            "Failures:\n"
            "  <NO_OTHER_FAILURES>\n"
            "---------------------------------\n"
            "Root Cause (first observed failure):\n"
            "[0]:\n"
            "  time      : 2026-01-31_10:20:30\n"
            "  host      : node7.example.org\n"
            "  rank      : 4 (local_rank: 0)\n"
            "  exitcode  : 3 (pid: 4241)\n"
            "  error_file: /e/error.json\n"
            "  traceback : no data\n"
            "=================================\n");
}

TEST(FailureReportTest, Launch081_ASegmentationFaultShowsItsCodeAndName) {
  FailureRecord record = Culprit();
  record.code = -SIGSEGV;
  const std::string report = Report({record});
  EXPECT_THAT(report, HasSubstr("  exitcode  : -11 (pid: 4241)\n"));
  EXPECT_THAT(report, HasSubstr("  traceback : Signal 11 (SIGSEGV) received by PID 4241\n"));
  EXPECT_THAT(report, HasSubstr("failed first: signal 11 (SIGSEGV)\n"));
}

TEST(FailureReportTest, Launch086_BordersAreAsLongAsTheLongestLineAndAtMostSixty) {
  FailureRecord record = Culprit();
  record.error_file = "e";
  for (const size_t length : {1u, 40u, 46u, 47u, 200u}) {
    record.message = std::string(length, 'x');
    std::istringstream lines(Report({record}));
    std::string line;
    size_t borders = 0;
    while (std::getline(lines, line)) {
      if (line.find_first_not_of("=") != line.npos && line.find_first_not_of("-") != line.npos)
        continue;
      if (line.empty()) continue;
      const size_t longest = std::max<size_t>(14 + length, 33);  // the time's line has 33
      EXPECT_EQ(line.size(), std::min<size_t>(longest, 60)) << length;
      ++borders;
    }
    EXPECT_EQ(borders, 4u);
  }
}

TEST(FailureReportTest, BordersCountCharactersNotBytes) {
  FailureRecord record = Culprit();
  record.error_file = "e";
  record.message = "ä ö ü ß € ä ö ü ß € ä ö ü ß €";
  EXPECT_THAT(Report({record}), HasSubstr("\n" + std::string(43, '=') + "\ntrain.py FAILED\n"));
}

TEST(FailureReportTest, ATraceIsIndentedAndATextIsShownAsItIs) {
  FailureRecord record = Culprit();
  record.error_file = "e";
  record.message = "Traceback:\n  File \"a\", line 1\nValueError: no data\n";
  EXPECT_THAT(
      Report({record}),
      HasSubstr("  traceback : Traceback:\n  File \"a\", line 1\nValueError: no data\n\n="));
  record.is_trace = true;
  EXPECT_THAT(
      Report({record}),
      HasSubstr("  traceback : Traceback:\n    File \"a\", line 1\n  ValueError: no data\n="));
  record.message = "\n\nlast";
  EXPECT_THAT(Report({record}), HasSubstr("  traceback : \n  \n  last\n="));
}

TEST(FailureReportTest, AnEmptyErrorTextIsNotReplacedByAHint) {
  FailureRecord record = Culprit();
  record.error_file = "e";
  EXPECT_THAT(Report({record}), HasSubstr("  error_file: e\n  traceback : \n="));
}

TEST(FailureReportTest, AZeroByteInAMessageDoesNotEndTheReport) {
  FailureRecord record = Culprit();
  record.error_file = "e";
  record.message = std::string("a\0b", 3);
  EXPECT_THAT(Report({record}), HasSubstr("  traceback : a\\x00b\n="));
}

TEST(FailureReportTest, LastLinesOfOutputFollowTheFields) {
  FailureRecord record = Culprit();
  record.error_file = "e";
  record.message = "m";
  record.output = "loading\n\n 10%\r 90%\r\n\x1b[31mred\x1b[0m\tend\nbell\a \xff\n\n";
  EXPECT_THAT(Report({record}), HasSubstr("  traceback : m\n"
                                          "  last lines:\n"
                                          "    loading\n"
                                          "\n"
                                          "     90%\n"
                                          "    red    end\n"
                                          "    bell\\x07 \\xff\n"
                                          "="));
}

TEST(FailureReportTest, OnlyTheLastOfManyLinesAreShown) {
  FailureRecord record = Culprit();
  for (int i = 0; i < 100; ++i) record.output += Concat("line ", i, "\n");
  const std::string report = Report({record});
  EXPECT_THAT(report, HasSubstr("  last lines:\n    line 70\n"));
  EXPECT_THAT(report, HasSubstr("    line 99\n="));
}

TEST(FailureReportTest, AnEndlessLineIsCutAndAnUnfinishedColourIsDropped) {
  FailureRecord record = Culprit();
  record.output = std::string(100'000, 'x') + "\nend\x1b[3";
  const std::string report = Report({record});
  EXPECT_LT(report.size(), 3000u);
  EXPECT_THAT(report, HasSubstr("    end\n="));
}

TEST(FailureReportTest, NamesFromOtherNodesCannotRedrawTheScreen) {
  FailureRecord record = Culprit();
  record.host = "a\x1b[2Jb\nc";
  record.error_file = "e\r";
  const std::string report = FailureReport("t\nr", std::vector{record}, 0, AtTenTwenty);
  EXPECT_THAT(report, HasSubstr("  host      : a\\x1b[2Jb\\x0ac\n"));
  EXPECT_THAT(report, HasSubstr("  error_file: e\\x0d\n"));
  EXPECT_THAT(report, HasSubstr("t\\x0ar FAILED\n"));
}

TEST(FailureReportTest, WordsOfAWorkerCannotRedrawTheScreenEither) {
  for (const bool is_trace : {true, false}) {
    FailureRecord record = Culprit();
    record.error_file = "/e";
    record.is_trace = is_trace;
    record.message = "first\n\x1b]52;c;x\x07\x1b[2J\u009b2J\u202e\x7f\rlast";
    const std::string report = Report({record});
    EXPECT_THAT(report,
                HasSubstr("\\x1b]52;c;x\\x07\\x1b[2J\\xc2\\x9b2J\\xe2\\x80\\xae\\x7f\\x0dlast\n"));
    EXPECT_THAT(report, HasSubstr("  traceback : first\n"));
  }
}

TEST(FailureReportTest, TheRootCauseKeepsItsNumber) {
  const std::string report = Report({Victim(), Culprit(), Victim()}, 1);
  EXPECT_THAT(report, HasSubstr("Failures:\n[0]:\n"));
  EXPECT_THAT(report, HasSubstr("\n[2]:\n"));
  EXPECT_THAT(report, HasSubstr("Root Cause (first observed failure):\n[1]:\n"));
}

TEST(SignalNameTest, KnowsTheNamesThatPythonKnows) {
  EXPECT_EQ(SignalName(SIGTERM), "SIGTERM");
  EXPECT_EQ(SignalName(SIGIO), "SIGIO");
  EXPECT_EQ(SignalName(SIGABRT), "SIGABRT");
  EXPECT_EQ(SignalName(SIGRTMAX), "SIGRTMAX");
  for (int signal = 1; signal < 32; ++signal) EXPECT_NE(SignalName(signal), "<N/A>") << signal;
}

TEST(SignalNameTest, OtherNumbersHaveNone) {
  for (const int64_t signal : {-1, 0, 33, 63, 65, 255, INT_MAX}) {
    EXPECT_EQ(SignalName(signal), "<N/A>") << signal;
  }
}

TEST(DefaultMessageTest, NoCodeIsTooStrange) {
  EXPECT_EQ(DefaultMessage(-200, 7), "Signal 200 (<N/A>) received by PID 7");
  EXPECT_EQ(DefaultMessage(INT_MIN, 7), "Signal 2147483648 (<N/A>) received by PID 7");
  EXPECT_THAT(DefaultMessage(1, 7), HasSubstr("pytorch.org/docs/stable/elastic/errors.html"));
}

/// A worker whose end was detected at `seen`, in milliseconds, and that wrote its error file at
/// `written`; 0: none.
FailureRecord Ended(int64_t seen, int64_t written = 0, bool was_signalled = false) {
  return {.code = 1,
          .order = seen * 1'000,
          .error_time = written * 1'000,
          .was_signalled = was_signalled};
}

TEST(RootCauseTest, WhoeverEndedFirstIsTheCause) {
  EXPECT_EQ(RootCause(std::vector{Ended(11), Ended(10)}), 1u);
  EXPECT_EQ(RootCause(std::vector{Ended(9, 0, true), Ended(11), Ended(10)}), 2u);
}

TEST(RootCauseTest, AnEarlierErrorFileCountsMoreThanAnEarlierEnd) {
  // The worker that failed first may take long to end, so that the ends of the other workers are
  // detected earlier.
  EXPECT_EQ(RootCause(std::vector{Ended(500, 450), Ended(510, 460), Ended(520, 400)}), 2u);
  EXPECT_EQ(RootCause(std::vector{Ended(500), Ended(520, 390), Ended(530, 380)}), 2u);
}

TEST(RootCauseTest, AVictimMayWriteItsErrorFileBeforeASilentEndIsSeen) {
  EXPECT_EQ(RootCause(std::vector{Ended(520, 450), Ended(500)}), 1u);
}

TEST(RootCauseTest, Launch083_OfEqualOnesTheFirstRecordIsTheCause) {
  EXPECT_EQ(RootCause(std::vector{Culprit(), Culprit(), Culprit()}), 0u);
  EXPECT_EQ(RootCause(std::vector{Ended(10), Ended(10, 5), Ended(10, 5)}), 0u);
}

TEST(RootCauseTest, Launch084_AVictimsErrorFileDoesNotMakeItTheCause) {
  EXPECT_EQ(RootCause(std::vector{Ended(2000), Ended(2010, 1, true)}), 0u);
  EXPECT_EQ(RootCause(std::vector{Ended(2000, 1990), Ended(2010, 1, true)}), 0u);
}

TEST(RootCauseTest, OfVictimsAloneTheFirstIsTheCause) {
  EXPECT_EQ(RootCause(std::vector{Ended(21, 1, true), Ended(20, 2, true)}), 1u);
}

TEST(RootCauseTest, NoVictimIsNamedWhileSomebodyFailedByItself) {
  Prng prng(8123);
  constexpr int64_t kTimes[] = {INT64_MIN, -1, 0, 1, 100'000, 100'002, INT64_MAX};
  for (int story = 0; story < 2000; ++story) {
    std::vector<FailureRecord> records(1 + prng.Below(6));
    for (FailureRecord& record : records) {
      record.was_signalled = prng.Below(2) == 0;
      record.order = kTimes[prng.Below(std::size(kTimes))];
      record.error_time = kTimes[prng.Below(std::size(kTimes))];
    }
    const FailureRecord& cause = records[RootCause(records)];
    const bool only_victims = std::ranges::all_of(records, &FailureRecord::was_signalled);
    EXPECT_EQ(cause.was_signalled, only_victims) << story;
    for (const FailureRecord& record : records) EXPECT_FALSE(WroteBefore(record, cause)) << story;
  }
}

}  // namespace
}  // namespace muster
