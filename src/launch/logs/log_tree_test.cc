#include "launch/logs/log_tree.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <vector>

#include "support/temp_dir.h"

namespace muster {
namespace {

using test::FileExists;
using test::ReadFile;
using test::TempDir;
using test::WriteFile;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::MatchesRegex;
using testing::Not;
using testing::UnorderedElementsAre;

std::vector<std::string> NamesIn(const std::string& directory) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    names.push_back(entry.path().filename());
  }
  std::sort(names.begin(), names.end());
  return names;
}

unsigned ModeOf(const std::string& path) {
  struct stat found {};
  return stat(path.c_str(), &found) == 0 ? found.st_mode & 0777u : 0u;
}

std::string NameOf(const std::string& path) { return std::filesystem::path(path).filename(); }

TEST(LogTreeTest, Launch108TheRunDirectoryIsTheRunIdAndEightCharacters) {
  const TempDir temp;
  const auto tree = LogTree::Create({.root = temp.File("L"), .run_id = "job7", .seed = 4});
  EXPECT_THAT(NamesIn(temp.File("L")), ElementsAre(MatchesRegex("job7_[a-z0-9_]{8}")));
  EXPECT_EQ(tree->directory(), temp.File("L") + "/" + NamesIn(temp.File("L"))[0]);
  EXPECT_EQ(ModeOf(tree->directory()), 0700u);
}

TEST(LogTreeTest, Launch036AllParentsOfTheRootAreMade) {
  const TempDir temp;
  ASSERT_TRUE(LogTree::Create({.root = temp.File("a/b/c")}));
  EXPECT_EQ(NamesIn(temp.File("a/b/c")).size(), 1u);
}

TEST(LogTreeTest, WithoutARootATemporaryOneIsMade) {
  const TempDir temp;
  const auto tree = LogTree::Create({.temporary = temp.File(""), .seed = 1});
  const auto names = NamesIn(temp.File(""));
  ASSERT_THAT(names, ElementsAre(MatchesRegex("torchelastic_[a-z0-9_]{8}")));
  EXPECT_EQ(ModeOf(temp.File(names[0])), 0700u);
  EXPECT_THAT(NamesIn(temp.File(names[0])), ElementsAre(MatchesRegex("none_[a-z0-9_]{8}")));
}

TEST(LogTreeTest, LaunchersThatShareARootAndASeedHaveDirectoriesOfTheirOwn) {
  const TempDir temp;
  std::set<std::string> directories;
  for (int i = 0; i < 20; ++i) {
    directories.insert(LogTree::Create({.root = temp.File("L"), .seed = 9})->directory());
  }
  EXPECT_EQ(directories.size(), 20u);
}

TEST(LogTreeTest, EveryWorkerHasADirectoryAndItsPathsAreInIt) {
  const TempDir temp;
  auto tree = LogTree::Create({.root = temp.File("L")});
  const auto logs = tree->Begin(3, 12);
  EXPECT_EQ(logs->directory(), tree->directory() + "/attempt_3");
  EXPECT_EQ(NamesIn(logs->directory()).size(), 12u);
  EXPECT_TRUE(std::filesystem::is_directory(logs->WorkerDir(11)));
  EXPECT_EQ(logs->WorkerDir(11), logs->directory() + "/11");
  EXPECT_EQ(logs->OutPath(11), logs->directory() + "/11/stdout.log");
  EXPECT_EQ(logs->ErrPath(0), logs->directory() + "/0/stderr.log");
  EXPECT_EQ(logs->ErrorFile(2), logs->directory() + "/2/error.json");
  EXPECT_FALSE(FileExists(logs->OutPath(0)));
}

TEST(LogTreeTest, PathsAreAbsoluteBecauseWorkersMayGoElsewhere) {
  const TempDir temp;
  const auto here = std::filesystem::current_path();
  std::filesystem::current_path(temp.File(""));
  const auto tree = LogTree::Create({.root = "logs"});
  std::filesystem::current_path(here);
  EXPECT_TRUE(std::filesystem::is_directory(tree->directory()));
  EXPECT_TRUE(tree->directory().starts_with("/"));
}

TEST(LogTreeTest, Launch119EachAttemptHasItsDirectoryAndEarlierOnesAreKept) {
  const TempDir temp;
  auto tree = LogTree::Create({.root = temp.File("L")});
  WriteFile(tree->Begin(0, 1)->OutPath(0), "first");
  WriteFile(tree->Begin(1, 1)->OutPath(0), "second");
  EXPECT_THAT(NamesIn(tree->directory()), ElementsAre("attempt_0", "attempt_1"));
  EXPECT_EQ(ReadFile(tree->directory() + "/attempt_0/0/stdout.log"), "first");
  EXPECT_EQ(ReadFile(tree->directory() + "/attempt_1/0/stdout.log"), "second");
}

TEST(LogTreeTest, AnAttemptOfTheSameNumberPutsTheEarlierOneAside) {
  const TempDir temp;
  auto tree = LogTree::Create({.root = temp.File("L")});
  for (const char* text : {"a", "b", "c"}) {
    const auto logs = tree->Begin(0, 1);
    EXPECT_FALSE(FileExists(logs->OutPath(0)));
    WriteFile(logs->OutPath(0), text);
  }
  EXPECT_EQ(ReadFile(tree->directory() + "/attempt_0.1/0/stdout.log"), "a");
  EXPECT_EQ(ReadFile(tree->directory() + "/attempt_0.2/0/stdout.log"), "b");
  EXPECT_EQ(ReadFile(tree->directory() + "/attempt_0/0/stdout.log"), "c");
}

TEST(LogTreeTest, Launch117FilesForFilteredLinesAreThereFromTheBeginning) {
  const TempDir temp;
  auto tree = LogTree::Create({.root = temp.File("L"), .filtered = {.out = true}});
  const auto logs = tree->Begin(0, 1);
  EXPECT_TRUE(FileExists(logs->FilteredOut()));
  EXPECT_EQ(ReadFile(logs->FilteredOut()), "");
  EXPECT_EQ(NameOf(logs->FilteredOut()), "filtered_stdout.log");
  EXPECT_FALSE(FileExists(logs->FilteredErr()));
  EXPECT_EQ(NameOf(logs->FilteredErr()), "filtered_stderr.log");
}

TEST(LogTreeTest, DevNullMeansNoDirectoriesAndNoPaths) {
  const TempDir temp;
  auto tree = LogTree::Create({.root = "/dev/null", .temporary = temp.File(""), .run_id = "a/b"});
  const auto logs = tree->Begin(0, 2);
  EXPECT_EQ(tree->directory(), "");
  for (const std::string& path : {logs->WorkerDir(0), logs->OutPath(0), logs->ErrPath(1),
                                  logs->ErrorFile(0), logs->FilteredOut(), logs->FilteredErr()}) {
    EXPECT_EQ(path, "");
  }
  EXPECT_TRUE(NamesIn(temp.File("")).empty());
  EXPECT_TRUE(tree->CheckRoom());
}

TEST(LogTreeTest, FiltersWithoutLogsAreRefused) {
  const auto tree = LogTree::Create({.root = "/dev/null", .filtered = {.err = true}});
  EXPECT_EQ(tree.error().code, Code::kInvalid);
  EXPECT_THAT(tree.error().message, HasSubstr("--log-dir is /dev/null"));
}

TEST(LogTreeTest, ARootThatIsAFileIsRefused) {
  const TempDir temp;
  WriteFile(temp.File("file"), "precious");
  const auto tree = LogTree::Create({.root = temp.File("file")});
  EXPECT_EQ(tree.error().code, Code::kInvalid);
  EXPECT_THAT(tree.error().message,
              AllOf(HasSubstr(temp.File("file")), HasSubstr("is a file"), HasSubstr("--log-dir")));
  EXPECT_EQ(ReadFile(temp.File("file")), "precious");
}

TEST(LogTreeTest, ARunIdThatIsAPathIsRefused) {
  const TempDir temp;
  const auto tree = LogTree::Create({.root = temp.File("L"), .run_id = "../job"});
  EXPECT_EQ(tree.error().code, Code::kInvalid);
  EXPECT_THAT(tree.error().message, AllOf(HasSubstr("'../job'"), HasSubstr("--rdzv-id")));
  EXPECT_FALSE(FileExists(temp.File("L")));
}

TEST(LogTreeTest, WhatTheSystemRefusesIsOneLineWithPathReasonAndAdvice) {
  const TempDir temp;
  WriteFile(temp.File("file"), "");
  // The process may be root, which permissions do not stop; these failures stop every user.
  for (const LogTreeOptions& options :
       {LogTreeOptions{.root = "/proc"}, LogTreeOptions{.root = "/proc/a/b"},
        LogTreeOptions{.root = temp.File("file/sub")},
        LogTreeOptions{.root = "", .temporary = temp.File("missing")},
        LogTreeOptions{.root = temp.File("L"), .run_id = std::string(300, 'x')}}) {
    const auto tree = LogTree::Create(options);
    ASSERT_FALSE(tree) << options.root;
    EXPECT_EQ(tree.error().code, Code::kUnavailable);
    const std::string& where = options.root.empty() ? options.temporary : options.root;
    EXPECT_THAT(tree.error().message,
                AllOf(HasSubstr("cannot create the log directory '" + where), HasSubstr("': "),
                      HasSubstr("--log-dir"), Not(HasSubstr("\n"))));
  }
}

TEST(LogTreeTest, ARunDirectoryThatWasRemovedIsAnErrorOfTheNextAttempt) {
  const TempDir temp;
  auto tree = LogTree::Create({.root = temp.File("L")});
  std::filesystem::remove_all(tree->directory());
  const auto logs = tree->Begin(0, 1);
  EXPECT_EQ(logs.error().code, Code::kUnavailable);
  EXPECT_THAT(logs.error().message, HasSubstr("attempt_0': No such file"));
}

TEST(LogTreeTest, ThereIsRoomUntilSpaceOrFilesAreUsedUp) {
  const TempDir temp;
  EXPECT_TRUE(LogTree::Create({.root = temp.File("L")})->CheckRoom());
  struct statvfs left {};
  EXPECT_TRUE(RoomOf("d", left)) << "a file system that has no sizes";
  left.f_blocks = left.f_files = 100;
  left.f_bavail = left.f_favail = 1;
  EXPECT_TRUE(RoomOf("d", left));
  left.f_bavail = 0;
  EXPECT_THAT(RoomOf("d", left).error().message, HasSubstr("no space left on the disk"));
  left.f_bavail = 1;
  left.f_favail = 0;
  EXPECT_THAT(RoomOf("d", left).error().message,
              AllOf(HasSubstr("no room for files"), HasSubstr("'d'"), HasSubstr("--log-dir")));
}

}  // namespace
}  // namespace muster
