// FileStore: its file, byte by byte, and how long the file lives.
#include "muster/file_store.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <unistd.h>

#include <memory>
#include <string>

#include "muster/error.h"
#include "support/background.h"
#include "support/bytes.h"
#include "support/errors.h"
#include "support/temp_dir.h"

namespace muster::test {

using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

namespace {

std::string Record(std::string_view key, std::string_view value) {
  return U32(static_cast<uint32_t>(key.size())) + std::string(key) +
         U32(static_cast<uint32_t>(value.size())) + std::string(value);
}

}  // namespace

class FileStoreTest : public ::testing::Test {
 protected:
  const TempDir dir_;
  const std::string path_ = dir_.File("store");
};

TEST_F(FileStoreTest, Item093_TheFileIsTheLogOfTheFormat) {
  {
    FileStore store(path_);
    store.Set("k", "v");
    store.Add("c", 5);
    store.Add("c", -2);
    store.DeleteKey("k");
    EXPECT_EQ(ToHex(ReadFile(path_)),
              ToHex(Hex("09 00 00 00 72 65 66 63 6f 75 6e 74 2f 01 00 00 00 31"  // refcount/ 1
                        "02 00 00 00 2f 6b 01 00 00 00 76"                       // /k v
                        "02 00 00 00 2f 63 01 00 00 00 35"                       // /c 5
                        "02 00 00 00 2f 63 01 00 00 00 33"                       // /c 3
                        "03 00 00 00 2d 2f 6b 00 00 00 00")));                   // -/k
  }
  const std::string left =
      Hex("08 00 00 00 63 6c 65 61 6e 75 70 2f 01 00 00 00 31"       // cleanup/ 1
          "09 00 00 00 72 65 66 63 6f 75 6e 74 2f 01 00 00 00 30");  // refcount/ 0
  EXPECT_TRUE(ReadFile(path_).ends_with(left)) << ToHex(ReadFile(path_));
}

TEST_F(FileStoreTest, Item093_AFileWrittenByOthersIsRead) {
  WriteFile(path_, Record("refcount/", "1") + Record("/a", "first") + Record("/n", "41") +
                       Record("/a", "second") + Record("/gone", "x") + Record("-/gone", "") +
                       Record("/-minus", "kept") + Record("/", "nameless"));
  FileStore store(path_);
  EXPECT_EQ(store.Get("a"), "second");
  EXPECT_EQ(store.Add("n", 1), 42);
  EXPECT_FALSE(store.Check({"gone"}));
  EXPECT_EQ(store.Get("-minus"), "kept");
  EXPECT_EQ(store.Get(""), "nameless");
  EXPECT_THAT(store.ListKeys(), UnorderedElementsAre("a", "n", "-minus", ""));
  EXPECT_EQ(store.GetNumKeys(), 5);  // with refcount/
  EXPECT_TRUE(ReadFile(path_).ends_with(Record("refcount/", "2") + Record("/n", "42")));
}

TEST_F(FileStoreTest, Item093_WhatOthersAppendWhileItIsOpenIsSeen) {
  FileStore store(path_);
  store.Set("k", "old");
  WriteFile(path_, ReadFile(path_) + Record("/k", "new") + Record("/late", "v"));
  EXPECT_EQ(store.Get("k"), "new");
  EXPECT_EQ(store.Get("late"), "v");
}

TEST_F(FileStoreTest, Item093_AHalfWrittenLastRecordIsNeitherReadNorBuiltUpon) {
  // A writer died in the middle: everything before it counts, and the next write starts at its
  // beginning.
  const std::string whole = Record("refcount/", "1") + Record("/k", "v");
  const std::string half = Record("/broken", "never finished").substr(0, 15);
  FileStore store(path_);
  WriteFile(path_, whole + half);
  EXPECT_EQ(store.Get("k"), "v");
  EXPECT_FALSE(store.Check({"broken"}));
  store.Set("next", "w");
  EXPECT_EQ(ToHex(ReadFile(path_)), ToHex(whole + Record("/next", "w")));
}

TEST_F(FileStoreTest, Item093_AFileOfSomethingElseIsRefusedAndLeftAlone) {
  WriteFile(path_, Record("no slash in front", "x") + "anything");
  EXPECT_THAT(ErrorOf<StoreError>([&] { FileStore store(path_); }),
              HasSubstr("not a FileStore file"));
  EXPECT_EQ(ReadFile(path_), Record("no slash in front", "x") + "anything");
}

TEST_F(FileStoreTest, Item093_AForeignFileIsRefusedAndLeftAlone) {
  const std::string foreign[] = {
      "Dear diary, today I pointed a FileStore at the wrong path.\n",
      Hex("89 50 4e 47 0d 0a 1a 0a 00 00 00 0d 49 48 44 52"),  // a PNG
      "/usr/bin/env\n/etc/hosts\n",                            // the fifth byte starts a key ...
      "ab-/cd",                                                // ... or seems to
      Hex("2f 00 75 00 2f 00 62 00"),                          // text in UTF-16
      Hex("02 00 00 00 78"),                                   // a valid length, but no key of ours
      Hex("01 00 00 00 2d 00 00 00 00"),                       // "-" alone deletes nothing
      "hi\n",
      "x",
      std::string(64, '\0'),
  };
  for (const std::string& bytes : foreign) {
    SCOPED_TRACE(ToHex(bytes));
    WriteFile(path_, bytes);
    EXPECT_THAT(ErrorOf<StoreError>([&] { FileStore store(path_); }),
                HasSubstr("is not a FileStore file"));
    EXPECT_EQ(ToHex(ReadFile(path_)), ToHex(bytes));
  }
}

TEST_F(FileStoreTest, Item093_GarbageBehindGoodRecordsIsRefusedAndLeftAlone) {
  const std::string spoilt = Record("refcount/", "1") + Record("/k", "v") + "and then some prose";
  FileStore store(path_);
  WriteFile(path_, spoilt);
  EXPECT_THROW(store.Get("k"), StoreError);
  EXPECT_THROW(store.Set("k", "w"), StoreError);
  EXPECT_EQ(ToHex(ReadFile(path_)), ToHex(spoilt));
}

TEST_F(FileStoreTest, Item093_AnEmptyFileIsANewStore) {
  WriteFile(path_, "");
  FileStore store(path_);
  EXPECT_EQ(ToHex(ReadFile(path_)), ToHex(Record("refcount/", "1")));
}

TEST_F(FileStoreTest, Item093_ARecordCutAnywhereIsWrittenOver) {
  const std::string first = Record("refcount/", "1");
  for (size_t size = 0; size < first.size(); ++size) {
    SCOPED_TRACE(size);
    WriteFile(path_, first.substr(0, size));
    FileStore store(path_);
    EXPECT_EQ(ToHex(ReadFile(path_)), ToHex(first));
  }
  const std::string whole = Record("refcount/", "1") + Record("/k", "v");
  for (const std::string& last : {Record("/broken", "never finished"), Record("-/k", ""),
                                  Record("refcount/", "2"), Record("cleanup/", "1")}) {
    for (size_t size = 0; size < last.size(); ++size) {
      SCOPED_TRACE(ToHex(last.substr(0, size)));
      FileStore store(path_);
      WriteFile(path_, whole + last.substr(0, size));
      EXPECT_EQ(store.Get("k"), "v");
      store.Set("next", "w");
      EXPECT_EQ(ToHex(ReadFile(path_)), ToHex(whole + Record("/next", "w")));
    }
  }
}

TEST_F(FileStoreTest, Item093_ANewFileOfTheSameLengthIsANewStore) {
  // The kernel reuses the number of a removed file: only the content differs.
  FileStore store(path_);
  for (int i = 0; i < 10; ++i) {
    const std::string value = std::to_string(i);
    ASSERT_EQ(std::remove(path_.c_str()), 0);
    WriteFile(path_, Record("refcount/", "1") + Record("/k", value));
    EXPECT_EQ(store.Get("k"), value);
  }
}

TEST_F(FileStoreTest, Item094_AFileRemovedWhileItsLockIsAwaitedIsCreatedAgain) {
  WriteFile(path_, Record("refcount/", "1") + Record("/old", "v"));
  const int user = open(path_.c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_EQ(flock(user, LOCK_EX), 0);
  Background<std::unique_ptr<FileStore>> opening(
      [&] { return std::make_unique<FileStore>(path_); });
  ASSERT_TRUE(opening.UntilBlocked());
  ASSERT_EQ(std::remove(path_.c_str()), 0);  // as its last user does, with the lock held
  close(user);
  const auto store = opening.Result();
  EXPECT_EQ(ToHex(ReadFile(path_)), ToHex(Record("refcount/", "1")));
  store->Set("k", "v");
  EXPECT_EQ(FileStore(path_).Get("k"), "v");
}

TEST_F(FileStoreTest, Item093_ADescriptorShortageIsNotTheCallersFault) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none{.rlim_cur = 0, .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  std::string text;
  try {
    FileStore store(path_);
  } catch (const StoreError& error) {
    text = error.what();
  } catch (const std::exception& error) {
    text = std::string("another class: ") + error.what();
  }
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(text, path_ + ": Too many open files");
  EXPECT_NO_THROW(FileStore store(path_));
  EXPECT_THROW(FileStore store(dir_.File("")), std::invalid_argument);  // a folder
}

TEST_F(FileStoreTest, Item093_ANewFileUnderTheOldNameIsANewStore) {
  FileStore store(path_);
  store.Set("k", "a long value of the first file");
  const std::string other = dir_.File("other");
  WriteFile(other, Record("/fresh", "v"));
  ASSERT_EQ(std::rename(other.c_str(), path_.c_str()), 0);
  EXPECT_FALSE(store.Check({"k"}));
  EXPECT_EQ(store.Get("fresh"), "v");
}

TEST_F(FileStoreTest, Item094_TheFileGoesWithTheLastOfItsUsers) {
  auto first = std::make_unique<FileStore>(path_, 1);
  auto second = std::make_unique<FileStore>(path_, 1);
  first->Set("k", "v");
  first.reset();
  EXPECT_TRUE(FileExists(path_));
  EXPECT_EQ(second->Get("k"), "v");
  second.reset();
  EXPECT_FALSE(FileExists(path_));
}

TEST_F(FileStoreTest, Item094_TheFileWaitsForTheStatedNumberOfUsers) {
  std::make_unique<FileStore>(path_, 2).reset();
  EXPECT_TRUE(FileExists(path_));  // the second one has not used it yet
  std::make_unique<FileStore>(path_, 2).reset();
  EXPECT_FALSE(FileExists(path_));
}

TEST_F(FileStoreTest, Item094_AnEndAfterTheFileIsGoneIsQuiet) {
  auto store = std::make_unique<FileStore>(path_, 1);
  ASSERT_EQ(std::remove(path_.c_str()), 0);
  store.reset();
  EXPECT_FALSE(FileExists(path_));
}

TEST_F(FileStoreTest, Item095_WithoutAWorldSizeTheFileStays) {
  {
    FileStore first(path_);
    FileStore second(path_);
    first.Set("k", "v");
  }
  EXPECT_TRUE(FileExists(path_));
  EXPECT_EQ(FileStore(path_).Get("k"), "v");
}

TEST_F(FileStoreTest, Item097_FiveKeysCountSix) {
  FileStore store(path_);
  for (const char* key : {"key", "key0", "key1", "key2", "key3"}) store.Set(key, "v");
  EXPECT_EQ(store.GetNumKeys(), 6);
}

TEST_F(FileStoreTest, Item088_ACloneIsOneMoreUserOfTheFile) {
  auto store = std::make_unique<FileStore>(path_, 1);
  auto clone = store->Clone();
  store.reset();
  EXPECT_TRUE(FileExists(path_));
  clone->Set("k", "v");
  clone.reset();
  EXPECT_FALSE(FileExists(path_));
}

TEST_F(FileStoreTest, Item046_AStoreWhoseFileVanishedTimesOut) {
  FileStore store(path_);
  store.SetTimeout(std::chrono::milliseconds(100));
  ASSERT_EQ(std::remove(path_.c_str()), 0);
  EXPECT_THROW(store.Get("k"), StoreTimeoutError);
  EXPECT_THROW(store.Check({"k"}), StoreError);
  store.Set("k", "v");  // writers create it
  EXPECT_EQ(store.Get("k"), "v");
}

TEST_F(FileStoreTest, Item093_APathThatCannotBeIsRefused) {
  EXPECT_THAT(ErrorOf<std::exception>([&] { FileStore store(dir_.File("no/such/folder/store")); }),
              HasSubstr("no/such/folder"));
}

TEST_F(FileStoreTest, Item093_ThePathIsWhatWasGiven) { EXPECT_EQ(FileStore(path_).path(), path_); }

}  // namespace muster::test
