#include "launch/logs/error_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <vector>

#include "base/text.h"
#include "base/utf8.h"
#include "support/temp_dir.h"

namespace muster {
namespace {

using nlohmann::json;
using test::ReadFile;
using test::TempDir;
using test::WriteFile;
using testing::ElementsAre;
using testing::HasSubstr;

// As PyTorch's `record` writes it.
constexpr WallTime kNoon{1'769'860'800'000'000};
constexpr std::string_view kObjectForm =
    R"({"message": {"message": "ValueError: no data", "extraInfo": {"py_callstack":)"
    R"( "Traceback (most recent call last):\n  File \"t.py\", line 3\nValueError: no data\n",)"
    R"( "timestamp": "1769851230"}}})";
constexpr std::string_view kTrace =
    "Traceback (most recent call last):\n  File \"t.py\", line 3\nValueError: no data\n";

ErrorFile Parsed(std::string_view bytes) {
  Result<ErrorFile> file = ParseErrorFile(bytes);
  EXPECT_TRUE(file.has_value()) << (file ? "" : file.error().message) << "\n" << Printable(bytes);
  return file ? std::move(file).value() : ErrorFile{};
}

std::string Refusal(std::string_view bytes) {
  const Result<ErrorFile> file = ParseErrorFile(bytes);
  if (file) return Concat("accepted: ", file->message);
  EXPECT_EQ(file.error().code, Code::kProtocol);
  return file.error().message;
}

std::vector<std::string> FilesIn(const TempDir& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder.File("."))) {
    names.push_back(entry.path().filename());
  }
  return names;
}

TEST(ErrorFileTest, TheObjectFormHasTraceAndTime) {
  const ErrorFile file = Parsed(kObjectForm);
  EXPECT_EQ(file.message, kTrace);
  EXPECT_EQ(file.timestamp, 1769851230);
  EXPECT_FALSE(file.is_text);
}

TEST(ErrorFileTest, TheTextFormIsItsText) {
  const ErrorFile file = Parsed(R"({"message": "first\n  last \n", "timestamp": 17})");
  EXPECT_EQ(file.message, "first\n  last \n");
  EXPECT_EQ(file.timestamp, 17);
  EXPECT_TRUE(file.is_text);
  EXPECT_EQ(Parsed(R"({"message": ""})").timestamp, std::nullopt);
}

TEST(ErrorFileTest, WhatIsMissingInTheObjectFormIsReplaced) {
  EXPECT_EQ(Parsed(R"({"message": {"message": "E: a\nb"}})").message, "E: a\nb");
  EXPECT_EQ(Parsed(R"({"message": {}})").message, "<N/A>");
  EXPECT_EQ(Parsed(R"({"message": {"message": null, "extraInfo": null}})").message, "<N/A>");
}

TEST(ErrorFileTest, StrangeTypesInsideAreShownNotRefused) {
  EXPECT_EQ(Parsed(R"({"message": {"message": {"code": 7}}})").message, R"({"code":7})");
  EXPECT_EQ(Parsed(R"({"message": {"message": 7, "extraInfo": [1]}})").message, "7");
  EXPECT_EQ(Parsed(R"({"message": {"extraInfo": {"py_callstack": ["a", "b"]}}})").message,
            R"(["a","b"])");
}

TEST(ErrorFileTest, TimestampsAreTextOrNumber) {
  const auto stamp = [](std::string_view value) {
    return Parsed(Concat(R"({"message": "m", "timestamp": )", value, "}")).timestamp;
  };
  EXPECT_EQ(stamp("17"), 17);
  EXPECT_EQ(stamp("\"17\""), 17);
  EXPECT_EQ(stamp("\" 17 \""), 17);
  EXPECT_EQ(stamp("17.9"), 17);
  EXPECT_EQ(stamp("-1"), -1);
  for (const std::string_view none : {"null", "true", "\"now\"", "\"\"", "[]", "{}", "1e300",
                                      "18446744073709551615", "\"99999999999999999999\""}) {
    EXPECT_EQ(stamp(none), std::nullopt) << none;
  }
}

TEST(ErrorFileTest, UnknownKeysAreKept) {
  const ErrorFile file =
      Parsed(R"({"message": {"message": "m", "own": [1]}, "more": {"a": null}})");
  const json copy = json::parse(WithErrorCode(file, 3));
  EXPECT_EQ(
      copy,
      json::parse(
          R"({"message": {"message": "m", "own": [1], "errorCode": 3}, "more": {"a": null}})"));
}

TEST(ErrorFileTest, OfEqualKeysTheLastCounts) {
  EXPECT_EQ(Parsed(R"({"message": 1, "message": "a", "message": "b"})").message, "b");
}

TEST(ErrorFileTest, BytesThatAreNoTextAndHalfCharactersAreReplaced) {
  EXPECT_EQ(Parsed("{\"message\": \"a\xff\xc3z\"}").message, "a\xef\xbf\xbd\xef\xbf\xbdz");
  EXPECT_EQ(Parsed(R"({"message": "a\udcffb"})").message,
            "a\xef\xbf\xbd"
            "b");
  EXPECT_EQ(Parsed(R"({"message": "\ud83d"})").message, "\xef\xbf\xbd");
  EXPECT_EQ(Parsed(R"({"message": "\ud83d\ud83d\ude00"})").message, "\xef\xbf\xbd\xf0\x9f\x98\x80");
  // Two backslashes and a word that only looks like an escape.
  EXPECT_EQ(Parsed(R"({"message": "\\udcff"})").message, R"(\udcff)");
  EXPECT_EQ(Parsed(R"({"message": "a\u0000b"})").message, std::string("a\0b", 3));
}

TEST(ErrorFileTest, WhatIsWrongIsSaid) {
  EXPECT_EQ(Refusal(""), "it is empty");
  EXPECT_EQ(Refusal(" \n"), "it is empty");
  EXPECT_EQ(Refusal(std::string(16, '\0')), "it is no text: byte 0 is zero");
  EXPECT_EQ(Refusal(std::string("{\"message\": \"a\"}\0x", 17)), "it is no text: byte 16 is zero");
  EXPECT_EQ(Refusal("Segmentation fault\n"), "it is no JSON from byte 1 on");
  EXPECT_EQ(Refusal("Killed ["), "it is no JSON from byte 1 on");
  EXPECT_EQ(Refusal("{\"message\": 'a'}"), "it is no JSON from byte 13 on");
  EXPECT_EQ(Refusal("{\"message\": \"a\"} x"), "it is no JSON from byte 18 on");
  EXPECT_EQ(Refusal("{\"message\": \"a\", \"b\": 1e999}"), "it has a number that is too large");
  EXPECT_EQ(Refusal("[1]"), "it is JSON, but no object with a \"message\"");
  EXPECT_EQ(Refusal("{\"error\": 1}"), "it is JSON, but has no \"message\"");
  EXPECT_EQ(Refusal("{\"message\": null}"), "it is JSON, but has no \"message\"");
  EXPECT_EQ(Refusal("{\"message\": 7}"),
            "its \"message\" is of type number; an object or a text is expected");
}

TEST(ErrorFileTest, EveryBeginningOfAFileIsRefusedOrWhole) {
  for (size_t size = 1; size < kObjectForm.size(); ++size) {
    const std::string bytes(kObjectForm.substr(0, size));
    EXPECT_THAT(Refusal(bytes), HasSubstr("it ends in the middle, after ")) << bytes;
    EXPECT_THAT(ReadablePart(bytes), HasSubstr("{")) << bytes;
  }
}

TEST(ErrorFileTest, NestingIsBoundedBeforeAnythingIsBuilt) {
  const auto nested = [](size_t depth) {
    return Concat(R"({"message": "m", "deep": )", std::string(depth, '['), std::string(depth, ']'),
                  "}");
  };
  Parsed(nested(kJsonDepthMax - 1));
  EXPECT_EQ(Refusal(nested(kJsonDepthMax)), "its values are nested 65 deep, 64 are allowed");
  EXPECT_THAT(Refusal(std::string(1'000'000, '[')), HasSubstr("nested 1000000 deep"));
  EXPECT_THAT(Refusal(std::string(1'000'000, '{')), HasSubstr("nested 1000000 deep"));
  // Brackets in texts do not count.
  Parsed(Concat(R"({"message": "\")", std::string(1000, '['), "\"}"));
}

TEST(ErrorFileTest, SizeAndNumberOfValuesAreBounded) {
  const auto sized = [](size_t size) {
    constexpr std::string_view kHead = R"({"message": ")";
    return Concat(kHead, std::string(size - kHead.size() - 2, 'x'), "\"}");
  };
  Parsed(sized(kErrorFileBytesMax));
  EXPECT_EQ(Refusal(sized(kErrorFileBytesMax + 1)), "it is too large: at most 8 MiB are read");
  std::string many = R"({"message": "m", "many": [0)";
  for (size_t i = 0; i < kJsonValuesMax; ++i) many += ",0";
  EXPECT_THAT(Refusal(many + "]}"), HasSubstr("values, 262144 are allowed"));
}

TEST(ErrorFileTest, TheReadablePartOfBrokenJsonHasItsLines) {
  EXPECT_EQ(
      ReadablePart(kObjectForm.substr(0, kObjectForm.find("ValueError: no data\\n"))),
      "{\"message\": {\"message\": \"ValueError: no data\", \"extraInfo\": {\"py_callstack\": "
      "\"Traceback (most recent call last):\n  File \"t.py\", line 3");
}

TEST(ErrorFileTest, TheReadablePartIsPrintableAndShort) {
  EXPECT_EQ(ReadablePart(""), "");
  EXPECT_EQ(ReadablePart(std::string(100'000, '\0')), "");
  EXPECT_EQ(ReadablePart("a\\n\x1b[2J\xff\r\nb\n"), "a\\n\\x1b[2J\\xff\nb");
  std::string lines;
  for (int i = 0; i < 1000; ++i) lines += "line\n";
  EXPECT_EQ(ReadablePart(lines).size(), 40 * 5 + 3u);
  const std::string endless = ReadablePart(std::string(1'000'000, 'x'));
  EXPECT_LT(endless.size(), 400u);
  EXPECT_TRUE(endless.ends_with("\n..."));
}

TEST(ErrorFileTest, OnlyRegularFilesAreRead) {
  const TempDir folder;
  const auto code = [](const std::string& path) {
    const auto bytes = ReadErrorFile(path);
    return bytes ? std::optional<Code>() : bytes.error().code;
  };
  EXPECT_EQ(code(folder.File("none")), Code::kNotFound);
  EXPECT_EQ(code(folder.File("none/none")), Code::kNotFound);
  EXPECT_EQ(code(""), Code::kNotFound);
  EXPECT_EQ(code(folder.File(".")), Code::kInvalid);
  EXPECT_EQ(code("/dev/zero"), Code::kInvalid);
  ASSERT_EQ(mkfifo(folder.File("fifo").c_str(), 0600), 0);
  EXPECT_EQ(code(folder.File("fifo")), Code::kInvalid);  // and not a reader that waits without end
  WriteFile(folder.File("file"), kObjectForm);
  EXPECT_EQ(ReadErrorFile(folder.File("file"))->bytes, kObjectForm);
}

TEST(ErrorFileTest, OfAHugeFileTheBeginningIsReadAndItIsRefused) {
  const TempDir folder;
  WriteFile(folder.File("huge"), "begins\n");
  std::filesystem::resize_file(folder.File("huge"), 100 * kErrorFileBytesMax);  // all of it a hole
  const std::string bytes = ReadErrorFile(folder.File("huge"))->bytes;
  EXPECT_EQ(bytes.size(), kErrorFileBytesMax + 1);
  EXPECT_EQ(Refusal(bytes), "it is too large: at most 8 MiB are read");
  EXPECT_THAT(ReadablePart(bytes), HasSubstr("begins\n"));
}

TEST(AddErrorFileTest, Launch085_ATraceIsShownIndentedWithThePathOfItsFile) {
  const TempDir folder;
  const std::string path = folder.File("error.json");
  WriteFile(path, kObjectForm);
  FailureRecord record{.host = "h", .code = 1, .time_seconds = 5};
  AddErrorFile(path, kNoon, record);
  EXPECT_EQ(record.time_seconds, 1769851230);
  const std::string report =
      FailureReport("t.py", std::vector{record}, 0, [](int64_t) { return "now"; });
  EXPECT_THAT(report, HasSubstr(Concat("  error_file: ", path,
                                       "\n  traceback : Traceback (most recent call last):\n"
                                       "    File \"t.py\", line 3\n"
                                       "  ValueError: no data\n=")));
}

TEST(AddErrorFileTest, Launch104_ATextIsShownVerbatimAndCopiedUnchanged) {
  const TempDir folder;
  const std::string path = folder.File("error.json");
  const std::string bytes = " {\"timestamp\": 12,\n\"message\": \"a\\n b\\u00e4\", \"x\": 1.50}\n";
  WriteFile(path, bytes);
  FailureRecord record{.code = 1};
  AddErrorFile(path, kNoon, record);
  const std::string report =
      FailureReport("t.py", std::vector{record}, 0, [](int64_t) { return "now"; });
  EXPECT_THAT(report, HasSubstr("  traceback : a\n b\xc3\xa4\n="));
  ASSERT_TRUE(CopyErrorFile(path, 1, folder.File("copy")).has_value());
  EXPECT_EQ(ReadFile(folder.File("copy")), bytes);
}

TEST(AddErrorFileTest, Launch106_ATruncatedFileIsReportedWithWhatItTells) {
  const TempDir folder;
  const std::string path = folder.File("error.json");
  WriteFile(path, kObjectForm.substr(0, 60));
  FailureRecord record{.code = 1, .time_seconds = 5};
  AddErrorFile(path, kNoon, record);
  EXPECT_EQ(record.error_file, path);
  EXPECT_EQ(record.time_seconds, 5);
  const std::string report =
      FailureReport("t.py", std::vector{record}, 0, [](int64_t) { return "now"; });
  EXPECT_THAT(report,
              HasSubstr("  traceback : the error file cannot be understood: it ends in the middle, "
                        "after 60 bytes: its writer was stopped, or the disk is full; it begins:\n"
                        "  {\"message\": {\"message\": \"ValueError: no data\", \"extraInfo\""));
}

TEST(AddErrorFileTest, WithoutAFileNothingChanges) {
  const TempDir folder;
  FailureRecord record{.code = 1, .time_seconds = 5};
  AddErrorFile(folder.File("error.json"), kNoon, record);
  EXPECT_EQ(record, (FailureRecord{.code = 1, .time_seconds = 5}));
}

/// What AddErrorFile() makes of a victim whose file has this content, and was written then.
FailureRecord Added(std::string_view content, WallTime written, WallTime signalled_at) {
  const TempDir folder;
  const std::string path = folder.File("error.json");
  WriteFile(path, content);
  const auto microseconds = static_cast<int64_t>(written);
  const timespec time{.tv_sec = microseconds / 1'000'000,
                      .tv_nsec = microseconds % 1'000'000 * 1'000};
  const timespec times[] = {time, time};
  EXPECT_EQ(utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
  FailureRecord record{.code = 1, .was_signalled = true};
  AddErrorFile(path, signalled_at, record);
  return record;
}

TEST(AddErrorFileTest, TheFilesOwnTimeIsTheFractionOfTheSecondThatItTells) {
  constexpr int64_t kSecond = 1'769'851'230'000'000;
  const auto time = [](std::string_view content, int64_t written) {
    return Added(content, WallTime{written}, kNoon).error_time;
  };
  EXPECT_EQ(time(kObjectForm, kSecond + 250'000), kSecond + 250'000);
  EXPECT_EQ(time(kObjectForm, kSecond + 7'000'000), kSecond + 999'999) << "written later";
  EXPECT_EQ(time(kObjectForm, kSecond - 7'000'000), kSecond) << "by another clock";
  for (const char* told_nothing :
       {R"({"message": "no data"})", "{", R"({"message": "", "timestamp": 0})",
        R"({"message": "", "timestamp": 9223372036854775807})"})
    EXPECT_EQ(time(told_nothing, kSecond + 5), kSecond + 5) << told_nothing;
}

TEST(AddErrorFileTest, WhoWroteItBeforeItWasToldToEndIsNoVictim) {
  const WallTime written{1'769'851'230'250'000};
  EXPECT_FALSE(Added(kObjectForm, written, written + 11ms).was_signalled);
  EXPECT_TRUE(Added(kObjectForm, written, written + 1ms).was_signalled)
      << "a tick of the file's clock";
  EXPECT_TRUE(Added(kObjectForm, written, written + -1s).was_signalled);
  // Whatever its timestamp.
  EXPECT_TRUE(Added(R"({"message": "", "timestamp": 7})", written, written + -1s).was_signalled);
}

TEST(AddErrorFileTest, SomethingElseInItsPlaceIsTold) {
  const TempDir folder;
  FailureRecord record{.code = 1};
  AddErrorFile(folder.File("."), kNoon, record);
  EXPECT_THAT(record.message, HasSubstr("is not a regular file"));
}

TEST(CopyErrorFileTest, TheObjectFormGetsTheCode) {
  const TempDir folder;
  WriteFile(folder.File("parent.json"), "old");
  WriteFile(folder.File("worker.json"), kObjectForm);
  ASSERT_TRUE(
      CopyErrorFile(folder.File("worker.json"), -9, folder.File("parent.json")).has_value());
  json expected = json::parse(kObjectForm);
  expected["message"]["errorCode"] = -9;
  EXPECT_EQ(json::parse(ReadFile(folder.File("parent.json"))), expected);
  EXPECT_THAT(FilesIn(folder),
              ElementsAre("parent.json", "worker.json"));  // no temporary file is left
}

TEST(CopyErrorFileTest, AFileThatCannotBeParsedIsNotCopied) {
  const TempDir folder;
  WriteFile(folder.File("worker.json"), kObjectForm.substr(0, 60));
  for (const char* from : {"worker.json", "none.json"})
    EXPECT_TRUE(CopyErrorFile(folder.File(from), 1, folder.File("parent.json"))) << from;
  EXPECT_THAT(FilesIn(folder), ElementsAre("worker.json"));
}

TEST(CopyErrorFileTest, ACodeOfZeroIsNotWritten) {
  EXPECT_EQ(WithErrorCode(Parsed(kObjectForm), 0), kObjectForm);
}

TEST(OwnErrorFileTest, IsTheObjectForm) {
  const std::string bytes =
      OwnErrorFile("SignalException", "Process 7 got signal: 15", WallTime{1'769'851'230'999'999});
  EXPECT_EQ(json::parse(bytes), json::parse(R"({"message": {
      "message": "SignalException: Process 7 got signal: 15",
      "extraInfo": {"py_callstack": "SignalException: Process 7 got signal: 15",
                    "timestamp": "1769851230"}}})"));
  EXPECT_EQ(Parsed(bytes).message, "SignalException: Process 7 got signal: 15");
}

TEST(OwnErrorFileTest, AnyBytesMakeAFile) {
  const std::string text("\xff\0\"\n", 4);
  EXPECT_EQ(Parsed(OwnErrorFile("E", text, WallTime{0})).message,
            Concat("E: ", ReplaceInvalidUtf8(text)));
}

TEST(WriteWholeTest, ReplacesAFileAndLeavesNothingBeside) {
  const TempDir folder;
  const std::string path = folder.File("file");
  ASSERT_TRUE(WriteWhole(path, "first").has_value());
  std::filesystem::create_hard_link(path, folder.File("still"));
  ASSERT_TRUE(WriteWhole(path, "second").has_value());
  EXPECT_EQ(ReadFile(path), "second");
  EXPECT_EQ(ReadFile(folder.File("still")), "first");  // another file has taken the name
  EXPECT_EQ(FilesIn(folder).size(), 2u);
}

TEST(WriteWholeTest, WritesThroughALink) {
  const TempDir folder;
  WriteFile(folder.File("file"), "a longer one");
  std::filesystem::create_symlink("file", folder.File("link"));
  ASSERT_TRUE(WriteWhole(folder.File("link"), "new").has_value());
  EXPECT_EQ(ReadFile(folder.File("file")), "new");
  EXPECT_TRUE(std::filesystem::is_symlink(folder.File("link")));
}

TEST(WriteWholeTest, SaysWhichFileAndWhy) {
  const TempDir folder;
  const Status absent = WriteWhole(folder.File("none/file"), "x");
  ASSERT_FALSE(absent.has_value());
  EXPECT_EQ(absent.error().code, Code::kUnavailable);
  EXPECT_EQ(absent.error().message,
            folder.File("none/file") + " cannot be written: No such file or directory");
  // A pipe without a reader fails instead of waiting for one.
  ASSERT_EQ(mkfifo(folder.File("fifo").c_str(), 0600), 0);
  EXPECT_FALSE(WriteWhole(folder.File("fifo"), "x").has_value());
  EXPECT_TRUE(WriteWhole("/dev/null", "x").has_value());
}

}  // namespace
}  // namespace muster
