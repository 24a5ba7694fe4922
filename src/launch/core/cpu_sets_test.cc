#include "launch/core/cpu_sets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace muster {
namespace {

using testing::HasSubstr;

// Two sockets with two nodes each; a node has 8 cores of 2 threads, c and c + 32, and two caches of
// 4 cores. Each node has two GPUs, and they are not in order.
constexpr int kCpus = 64;
const std::vector<int> kGpuNodes = {3, 3, 0, 0, 1, 1, 2, 2};

NumaTopology TwoSockets() {
  NumaTopology topology;
  for (int cpu = 0; cpu < kCpus; ++cpu) {
    const int core = cpu % 32;
    const int node = core / 8;
    topology.nodes[node].push_back(cpu);
    CpuFacts& facts = topology.cpus[cpu];
    facts.package = node / 2;
    facts.threads = {core, core + 32};
    const int cache = core / 4 * 4;
    for (const int first : {cache, cache + 32})
      for (int i = 0; i < 4; ++i) facts.cache.push_back(first + i);
  }
  return topology;
}

Cpus List(std::string_view text) { return ParseCpuList(text).value(); }

std::string Bound(NumaMode mode, size_t worker, std::string_view allowed = "0-63",
                  const std::vector<int>& gpu_nodes = kGpuNodes) {
  const auto cpus = CpusOfWorker(mode, TwoSockets(), gpu_nodes, worker, List(allowed));
  return cpus ? FormatCpuList(*cpus) : cpus.error().message;
}

TEST(CpuSetsTest, AListIsReadAndWritten) {
  for (const char* text : {"", "0", "0-3,8", "0-63", "1,3,5-6"})
    EXPECT_EQ(FormatCpuList(List(text)), text);
  EXPECT_EQ(List("0-2,8\n"), (Cpus{0, 1, 2, 8}));
  EXPECT_EQ(FormatCpuList(List("8,2,0-1,1")), "0-2,8");
}

TEST(CpuSetsTest, WhatIsNoListIsRefused) {
  for (const char* text : {"a", "1-", "-1", "3-1", "0,", ",0", "0,,1", "0-3-5", "0 1", "0x1",
                           "65536", "0-99999999999"})
    EXPECT_THAT(ParseCpuList(text).error().message, HasSubstr("0-3,8")) << text;
}

TEST(CpuSetsTest, ModesHaveTheirWords) {
  EXPECT_EQ(*ParseNumaMode("node"), NumaMode::kNode);
  EXPECT_EQ(*ParseNumaMode("socket"), NumaMode::kSocket);
  EXPECT_EQ(*ParseNumaMode("exclusive"), NumaMode::kExclusive);
  EXPECT_EQ(*ParseNumaMode("core-complex"), NumaMode::kCoreComplex);
  EXPECT_THAT(ParseNumaMode("core_complex").error().message, HasSubstr("core-complex"));
}

TEST(CpuSetsTest, AWorkerGetsTheCpusOfItsGpusNode) {
  EXPECT_EQ(Bound(NumaMode::kNode, 0), "24-31,56-63");
  EXPECT_EQ(Bound(NumaMode::kNode, 2), "0-7,32-39");
}

TEST(CpuSetsTest, AWorkerGetsTheCpusOfItsGpusSocket) {
  EXPECT_EQ(Bound(NumaMode::kSocket, 0), "16-31,48-63");
  EXPECT_EQ(Bound(NumaMode::kSocket, 5), "0-15,32-47");
}

TEST(CpuSetsTest, NoWorkerGetsACpuThatItsLauncherMayNotUse) {
  EXPECT_EQ(Bound(NumaMode::kNode, 2, "4-60"), "4-7,32-39");
  EXPECT_EQ(Bound(NumaMode::kSocket, 0, "20,50"), "20,50");
  EXPECT_EQ(Bound(NumaMode::kExclusive, 2, "1,3,5"), "1,3");
  EXPECT_EQ(Bound(NumaMode::kCoreComplex, 2, "0,4-7"), "4-7");
  EXPECT_THAT(Bound(NumaMode::kNode, 0, "0-7"),
              testing::AllOf(HasSubstr("'24-31,56-63'"), HasSubstr("bound to '0-7'")));
}

TEST(CpuSetsTest, CoresAreSharedOutWithTheirThreads) {
  EXPECT_EQ(Bound(NumaMode::kExclusive, 2), "0-3,32-35");
  EXPECT_EQ(Bound(NumaMode::kExclusive, 3), "4-7,36-39");
}

TEST(CpuSetsTest, LeftOverCoresGoToTheFirstGpus) {
  const std::vector<int> three = {0, 1, 0, 0};
  EXPECT_EQ(Bound(NumaMode::kExclusive, 0, "0-63", three), "0-2,32-34");
  EXPECT_EQ(Bound(NumaMode::kExclusive, 1, "0-63", three), "8-15,40-47");
  EXPECT_EQ(Bound(NumaMode::kExclusive, 2, "0-63", three), "3-5,35-37");
  EXPECT_EQ(Bound(NumaMode::kExclusive, 3, "0-63", three), "6-7,38-39");
}

TEST(CpuSetsTest, SharesOfANodeCoverItOnce) {
  for (size_t gpus = 1; gpus <= 8; ++gpus) {
    const std::vector<int> nodes(gpus, 1);
    Cpus all;
    for (size_t worker = 0; worker < gpus; ++worker) {
      const Cpus share = List(Bound(NumaMode::kExclusive, worker, "0-63", nodes));
      all.insert(all.end(), share.begin(), share.end());
    }
    EXPECT_EQ(all.size(), 16u);
    std::sort(all.begin(), all.end());
    EXPECT_EQ(FormatCpuList(all), "8-15,40-47");
  }
}

TEST(CpuSetsTest, MoreGpusThanCoresCannotHaveTheirOwn) {
  EXPECT_THAT(Bound(NumaMode::kExclusive, 0, "0-63", std::vector<int>(9, 0)),
              testing::AllOf(HasSubstr("the 9 GPUs of NUMA node 0"), HasSubstr("8 may be used")));
  // Two threads of one core are one core.
  EXPECT_THAT(Bound(NumaMode::kExclusive, 2, "0,32"), HasSubstr("1 may be used"));
}

TEST(CpuSetsTest, GpusOfANodeTakeItsCachesInTurn) {
  const std::vector<int> three = {0, 0, 0};
  EXPECT_EQ(Bound(NumaMode::kCoreComplex, 0, "0-63", three), "0-3,32-35");
  EXPECT_EQ(Bound(NumaMode::kCoreComplex, 1, "0-63", three), "4-7,36-39");
  EXPECT_EQ(Bound(NumaMode::kCoreComplex, 2, "0-63", three), "0-3,32-35");
}

TEST(CpuSetsTest, TheLargestCacheIsTakenFirst) {
  EXPECT_EQ(Bound(NumaMode::kCoreComplex, 2, "2-63"), "4-7,36-39");
  EXPECT_EQ(Bound(NumaMode::kCoreComplex, 3, "2-63"), "2-3,32-35");
}

TEST(CpuSetsTest, WithoutKnownCachesThereIsNoCoreComplex) {
  NumaTopology topology = TwoSockets();
  topology.cpus[5].cache.clear();
  const auto cpus = CpusOfWorker(NumaMode::kCoreComplex, topology, kGpuNodes, 2, List("0-63"));
  EXPECT_THAT(cpus.error().message, HasSubstr("CPU 5"));
}

TEST(CpuSetsTest, AWorkerWithoutAGpuIsNotBound) {
  EXPECT_THAT(Bound(NumaMode::kNode, 8), testing::AllOf(HasSubstr("worker 8"), HasSubstr("are 8")));
  EXPECT_THAT(Bound(NumaMode::kNode, 0, "0-63", {4}), HasSubstr("NUMA node 4"));
}

TEST(CpuSetsTest, ANodeOfMemoryOnlyHasNoCpusToGive) {
  NumaTopology topology = TwoSockets();
  topology.nodes[4] = {};
  for (const NumaMode mode :
       {NumaMode::kNode, NumaMode::kSocket, NumaMode::kExclusive, NumaMode::kCoreComplex})
    EXPECT_FALSE(CpusOfWorker(mode, topology, {4}, 0, List("0-63")));
  EXPECT_EQ(CpusOfWorker(NumaMode::kSocket, topology, {0}, 0, List("0-63")).value(),
            List("0-15,32-47"));
}

}  // namespace
}  // namespace muster
