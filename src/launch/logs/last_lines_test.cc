#include "launch/logs/log_tree.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "support/temp_dir.h"

namespace muster {
namespace {

using test::TempDir;
using test::WriteFile;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

std::vector<std::string> Of(std::string_view bytes, const LastLinesLimits& limits = {}) {
  const TempDir temp;
  WriteFile(temp.File("log"), bytes);
  return LastLines(temp.File("log"), limits);
}

TEST(LastLinesTest, TheLastLinesComeOldestFirst) {
  EXPECT_THAT(Of("a\nb\nc\nd\n", {.lines_max = 2}), ElementsAre("c", "d"));
  EXPECT_THAT(Of("a\nb\n", {.lines_max = 5}), ElementsAre("a", "b"));
  EXPECT_THAT(Of("a\nb\n", {.lines_max = 0}), IsEmpty());
}

TEST(LastLinesTest, ALineWithoutEndIsALine) { EXPECT_THAT(Of("a\nb"), ElementsAre("a", "b")); }

TEST(LastLinesTest, EmptyLinesAtTheEndDoNotCount) {
  EXPECT_THAT(Of("a\n\nb\n\n\r\n\n", {.lines_max = 3}), ElementsAre("a", "", "b"));
  EXPECT_THAT(Of("\n\n\n"), IsEmpty());
}

TEST(LastLinesTest, NothingIsSaidOfWhatIsNotThere) {
  const TempDir temp;
  EXPECT_THAT(LastLines(temp.File("missing")), IsEmpty());
  EXPECT_THAT(LastLines(temp.File("")), IsEmpty()) << "a directory";
  EXPECT_THAT(LastLines(""), IsEmpty());
  EXPECT_THAT(Of(""), IsEmpty());
  ASSERT_EQ(mkfifo(temp.File("fifo").c_str(), 0600), 0);
  EXPECT_THAT(LastLines(temp.File("fifo")), IsEmpty());
}

TEST(LastLinesTest, NoMoreThanSoManyBytesAreReadAndHalfALineIsLeftOut) {
  EXPECT_THAT(Of("1234567\nabc\ndef\n", {.bytes_max = 12}), ElementsAre("abc", "def"));
  EXPECT_THAT(Of(std::string(1 << 20, 'x') + "\nend\n"), ElementsAre("end"));
}

TEST(LastLinesTest, OfOneLineThatIsTooLongTheEndIsShown) {
  EXPECT_THAT(Of("abcdefgh", {.bytes_max = 3}), ElementsAre("...fgh"));
}

TEST(LastLinesTest, AProgressBarIsShownAsATerminalWouldLeaveIt) {
  EXPECT_THAT(Of(" 1%\r50%\r99%\ndone\r\n 7%\r"), ElementsAre("99%", "done", " 7%"));
}

TEST(LastLinesTest, JunkIsMadePrintable) {
  EXPECT_THAT(Of(std::string("a\0b\x1b\xff\x07\n\xc3\xa9\tz\n", 12)),
              ElementsAre("a\\x00b\\x1b\\xff\\x07", "\xc3\xa9 z"));
  EXPECT_THAT(Of("\x1b[1;31mError\x1b[0m: x\x1b[\n"), ElementsAre("Error: x"));
  EXPECT_THAT(Of(std::string(1 << 16, '\0')), SizeIs(1));
}

}  // namespace
}  // namespace muster
