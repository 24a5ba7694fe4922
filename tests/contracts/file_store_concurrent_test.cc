// One file, several processes.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "muster/file_store.h"
#include "support/child_process.h"
#include "support/temp_dir.h"

namespace muster::test {

TEST(FileStoreProcessesTest, Item096_AddsOfSeveralProcessesAddUp) {
  constexpr int kProcesses = 4;
  constexpr int kAdds = 100;
  const TempDir dir;
  const std::string path = dir.File("store");
  std::vector<ChildProcess> processes;
  for (int i = 0; i < kProcesses; ++i) {
    processes.push_back(ChildProcess::Fork([&](int, int) {
      FileStore store(path);
      for (int k = 0; k < kAdds; ++k) store.Add("n", 1);
      return 0;
    }));
  }
  for (ChildProcess& process : processes) EXPECT_EQ(process.Wait(), 0);
  EXPECT_EQ(FileStore(path).Add("n", 0), kProcesses * kAdds);
}

TEST(FileStoreProcessesTest, Item084_ProcessesMeetAtABarrier) {
  constexpr int kProcesses = 4;
  const TempDir dir;
  const std::string path = dir.File("store");
  std::vector<ChildProcess> processes;
  for (int i = 0; i < kProcesses; ++i) {
    processes.push_back(ChildProcess::Fork([&, i](int, int) {
      FileStore store(path, kProcesses);
      store.SetTimeout(kPatience);
      store.Set("here" + std::to_string(i), "");
      store.Barrier("all", kProcesses);
      for (int k = 0; k < kProcesses; ++k) {
        if (!store.Check({"here" + std::to_string(k)})) return 1;
      }
      return 0;
    }));
  }
  for (ChildProcess& process : processes) EXPECT_EQ(process.Wait(), 0);
  EXPECT_FALSE(FileExists(path));  // the last of the four removed it
}

TEST(FileStoreProcessesTest, Item096_AKilledProcessDelaysNoOther) {
  const TempDir dir;
  const std::string path = dir.File("store");
  FileStore store(path);
  store.SetTimeout(kPatience);
  {
    ChildProcess busy = ChildProcess::Fork([&](int, int) -> int {
      FileStore child(path);
      while (true) child.Add("n", 1);
    });
    store.Wait({"n"});
  }  // killed here, at any point
  const int64_t before = store.Add("n", 0);
  EXPECT_EQ(store.Add("n", 1), before + 1);
}

}  // namespace muster::test
