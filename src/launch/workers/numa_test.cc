#include "launch/workers/numa.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>

#include <filesystem>

#include "base/text.h"
#include "os/posix/cores.h"
#include "support/temp_dir.h"

namespace muster {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

// Two sockets with two NUMA nodes each; a node has 4 cores of 2 threads, c and c + 16, and two
// caches of 2 cores. Two GPUs stand on each node.
class NumaTest : public testing::Test {
 protected:
  static constexpr int kCores = 16;

  void SetUp() override {
    for (int node = 0; node < 4; ++node) {
      const int first = 4 * node;
      Write(Concat("devices/system/node/node", node, "/cpulist"), Pair(first, first + 3));
    }
    Write("devices/system/node/possible", "0-3");  // Not a node.
    Write("devices/system/cpu/online", "0-31");
    for (int cpu = 0; cpu < 2 * kCores; ++cpu) WriteCpu(cpu);
    for (int gpu = 0; gpu < 8; ++gpu) {
      gpus_.push_back({.uuid = "", .pci = Concat("0000:", 10 + gpu, ":00.0")});
      Write(Concat("bus/pci/devices/", gpus_.back().pci, "/numa_node"), Concat(gpu / 2));
    }
  }

  void WriteCpu(int cpu) const {
    const std::string folder = Concat("devices/system/cpu/cpu", cpu);
    const int core = cpu % kCores;
    Write(folder + "/topology/physical_package_id", Concat(core / 8));
    Write(folder + "/topology/thread_siblings_list", Concat(core, ",", core + kCores));
    WriteCache(cpu, 3, 3, Pair(core / 2 * 2, core / 2 * 2 + 1));
  }
  void WriteCache(int cpu, int index, int level, const std::string& shared) const {
    const std::string folder = Concat("devices/system/cpu/cpu", cpu, "/cache/index", index);
    Write(folder + "/level", Concat(level));
    Write(folder + "/shared_cpu_list", shared);
  }
  static std::string Pair(int first, int last) {
    return Concat(first, "-", last, ",", first + kCores, "-", last + kCores);
  }
  void Write(const std::string& path, const std::string& line) const {
    const fs::path whole = sys_.File(path);
    fs::create_directories(whole.parent_path());
    test::WriteFile(whole, line + "\n");
  }

  std::vector<std::string> Bound(NumaMode mode, size_t workers,
                                 const std::string& allowed = "0-31") const {
    const auto all = CpusOfWorkers(mode, workers, gpus_, *ParseCpuList(allowed), Sys());
    if (!all) return {all.error().message};
    std::vector<std::string> lists;
    for (const Cpus& cpus : *all) lists.push_back(FormatCpuList(cpus));
    return lists;
  }
  std::string Sys() const { return sys_.File("."); }

  const test::TempDir sys_;
  std::vector<Gpu> gpus_;
};

TEST_F(NumaTest, TheKernelsFilesAreRead) {
  WriteCache(26, 0, 1, "26");
  WriteCache(26, 2, 2, "10,26");
  const NumaTopology topology = ReadNumaTopology(Sys()).value();
  EXPECT_EQ(topology.nodes.size(), 4u);
  EXPECT_EQ(FormatCpuList(topology.nodes.at(1)), "4-7,20-23");
  EXPECT_EQ(topology.cpus.size(), 32u);
  const CpuFacts& facts = topology.cpus.at(26);
  EXPECT_EQ(facts.package, 1);
  EXPECT_EQ(FormatCpuList(facts.threads), "10,26");
  EXPECT_EQ(FormatCpuList(facts.cache), "10-11,26-27");
}

TEST_F(NumaTest, WorkersAreBoundToTheirGpusNodes) {
  EXPECT_THAT(Bound(NumaMode::kNode, 8),
              ElementsAre("0-3,16-19", "0-3,16-19", "4-7,20-23", "4-7,20-23", "8-11,24-27",
                          "8-11,24-27", "12-15,28-31", "12-15,28-31"));
}

TEST_F(NumaTest, WorkersAreBoundToTheirGpusSockets) {
  const std::vector<std::string> lists = Bound(NumaMode::kSocket, 8);
  ASSERT_EQ(lists.size(), 8u);
  for (size_t i = 0; i < lists.size(); ++i) EXPECT_EQ(lists[i], i < 4 ? "0-7,16-23" : "8-15,24-31");
}

TEST_F(NumaTest, WorkersHaveCoresOfTheirOwn) {
  EXPECT_THAT(Bound(NumaMode::kExclusive, 4, "0-14,16-31"),
              ElementsAre("0-1,16-17", "2-3,18-19", "4-5,20-21", "6-7,22-23"));
}

TEST_F(NumaTest, WorkersHaveACacheOfTheirOwn) {
  EXPECT_THAT(Bound(NumaMode::kCoreComplex, 3), ElementsAre("0-1,16-17", "2-3,18-19", "4-5,20-21"));
}

TEST_F(NumaTest, OnlyCpusThatWeMayUseAreHandedOn) {
  EXPECT_THAT(Bound(NumaMode::kNode, 2, "2-5"), ElementsAre("2-3", "2-3"));
  EXPECT_THAT(Bound(NumaMode::kNode, 3, "2-3"), ElementsAre(HasSubstr("bound to '2-3'")));
}

TEST_F(NumaTest, AGpuOnNoNodeCountsForTheFirst) {
  Write("bus/pci/devices/0000:10:00.0/numa_node", "-1");
  Write("bus/pci/devices/0000:11:00.0/numa_node", "3");
  EXPECT_THAT(*NumaNodesOf({gpus_[0], gpus_[1]}, Sys()), ElementsAre(0, 3));
}

TEST_F(NumaTest, AGpuThatTheKernelDoesNotKnowIsAnError) {
  gpus_[1].pci = "0000:99:00.0";
  EXPECT_THAT(Bound(NumaMode::kNode, 1),
              ElementsAre(testing::AllOf(HasSubstr("GPU 1"), HasSubstr("0000:99:00.0"))));
  gpus_[1].pci = "";
  EXPECT_THAT(Bound(NumaMode::kNode, 1), ElementsAre(HasSubstr("GPU 1 does not say")));
}

TEST_F(NumaTest, AWorkerWithoutAGpuIsAnError) {
  EXPECT_THAT(Bound(NumaMode::kNode, 9), ElementsAre(HasSubstr("worker 8")));
}

TEST_F(NumaTest, AKernelWithoutNumaHasOneNode) {
  fs::remove_all(sys_.File("devices/system/node"));
  Write("devices/system/cpu/online", "0-3");
  EXPECT_EQ(FormatCpuList(ReadNumaTopology(Sys()).value().nodes.at(0)), "0-3");
}

TEST_F(NumaTest, FilesThatAreNotAsTheyShouldBeAreNamed) {
  Write("devices/system/cpu/cpu9/topology/physical_package_id", "x");
  EXPECT_THAT(ReadNumaTopology(Sys()).error().message,
              testing::AllOf(HasSubstr("cpu9"), HasSubstr("'x")));
  Write("devices/system/node/node2/cpulist", "0-");
  EXPECT_THAT(ReadNumaTopology(Sys()).error().message, HasSubstr("node2/cpulist"));
  EXPECT_THAT(ReadNumaTopology(sys_.File("gone")).error().message, HasSubstr("cpu/online"));
}

TEST(NumaOfThisMachineTest, ItIsOneThatWeUnderstand) {
  const NumaTopology topology = ReadNumaTopology().value();
  const Cpus own = OwnCpus().value();
  ASSERT_FALSE(own.empty());
  for (const int cpu : own) EXPECT_TRUE(topology.cpus.contains(cpu)) << cpu;
}

TEST(NumaOfThisMachineTest, OurOwnCpusAreThoseOfOurAffinityMask) {
  cpu_set_t before;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  const int cpu = OwnCpus().value().back();
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(static_cast<size_t>(cpu), &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  EXPECT_THAT(*OwnCpus(), ElementsAre(cpu));
  EXPECT_EQ(sched_setaffinity(0, sizeof before, &before), 0);
}

}  // namespace
}  // namespace muster
