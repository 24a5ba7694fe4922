#include "launch/workers/devices.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <memory>

#include "base/text.h"
#include "os/posix/cores.h"
#include "support/temp_dir.h"

namespace muster {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

using Environment = std::map<std::string, std::string>;

// A library with what is called of NVML, of the CUDA driver and of Level Zero. The environment that
// it sees says what it answers; that is how it shows that it sees the workers' environment.
constexpr const char* kLibrary = R"(
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static int number(const char* name) {
  const char* text = getenv(name);
  return text ? atoi(text) : 0;
}
__attribute__((constructor)) static void loaded(void) {
  const char* mark = getenv("FAKE_MARK");
  FILE* file = mark ? fopen(mark, "w") : 0;
  if (file) fclose(file);
}

int nvmlInit_v2(void) {
  printf("noise");
  fflush(stdout);
  if (getenv("FAKE_HANG")) for (;;) pause();
  if (getenv("FAKE_CRASH")) abort();
  return number("FAKE_NVML_ERROR");
}
const char* nvmlErrorString(int code) { return code == 9 ? "Driver Not Loaded" : "Other"; }
int nvmlDeviceGetCount_v2(unsigned* count) { *count = number("FAKE_GPUS"); return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
  *device = (void*)(long)(index + 1);
  return getenv("FAKE_LOST") && index == number("FAKE_LOST") ? 15 : 0;
}
int nvmlDeviceGetUUID(void* device, char* text, unsigned size) {
  snprintf(text, size, "GPU-%ld%ld-made-up", (long)device - 1, (long)device - 1);
  return 0;
}
struct pci { char shorter[16]; unsigned domain, bus, device, ids, more; char longer[32]; };
int nvmlDeviceGetPciInfo_v3(void* device, struct pci* pci) {
  pci->domain = 0;
  pci->bus = 0x3a + (unsigned)(long)device;
  pci->device = 0;
  return 0;
}

int cuInit(unsigned flags) { return number("FAKE_CUDA") > 0 ? 0 : 100; }
int cuGetErrorString(int code, const char** text) { *text = "no device"; return 0; }
int cuDeviceGetCount(int* count) { *count = number("FAKE_CUDA"); return 0; }
int cuDeviceGet(int* device, int index) { *device = index; return 0; }
int cuDeviceGetPCIBusId(char* text, int size, int device) {
  snprintf(text, size, "0000:A%d:00.0", device);
  return 0;
}

int zeInit(unsigned flags) { return getenv("FAKE_XPUS") ? 0 : 0x78000001; }
int zeDriverGet(unsigned* count, void** drivers) { *count = 2; return 0; }
int zeDeviceGet(void* driver, unsigned* count, void** devices) {
  *count = number("FAKE_XPUS");
  return 0;
}
)";

class DevicesTest : public testing::Test {
 protected:
  // The machine that built this test has a C compiler.
  static void SetUpTestSuite() {
    folder_ = std::make_unique<test::TempDir>();
    test::WriteFile(folder_->File("fake.c"), kLibrary);
    const std::string command = Concat("cc -w -shared -fPIC -o '", folder_->File("libfake.so"),
                                       "' '", folder_->File("fake.c"), "'");
    ASSERT_EQ(std::system(command.c_str()), 0);
  }
  static void TearDownTestSuite() { folder_.reset(); }

  // Every child has been ended and waited for.
  void TearDown() override {
    EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1);
    EXPECT_EQ(errno, ECHILD);
  }

  static std::string Fake() { return folder_->File("libfake.so"); }
  DeviceSources Nothing() const {
    return {.sys = sys_.File("sys"),
            .nvml = "libmuster-no-nvml.so.1",
            .cuda = "libmuster-no-cuda.so.1",
            .level_zero = "libmuster-no-ze.so.1"};
  }
  DeviceSources Nvidia() const {
    DeviceSources sources = Nothing();
    sources.nvml = Fake();
    sources.cuda = Fake();
    return sources;
  }

  void Write(const std::string& path, const std::string& text) const {
    const std::filesystem::path whole = sys_.File("sys/" + path);
    std::filesystem::create_directories(whole.parent_path());
    test::WriteFile(whole, text);
  }
  void WriteAmdGpu(int node, uint64_t unique_id, int location) const {
    Write(Concat("class/kfd/kfd/topology/nodes/", node, "/properties"),
          Concat("cpu_cores_count 0\nsimd_count 304\nlocation_id ", location,
                 "\ndomain 1\nunique_id ", unique_id, "\n"));
  }
  void WriteCard(int number, const std::string& address, const std::string& vendor,
                 const std::string& kind, bool renders) const {
    const std::string device = "devices/pci0000:00/" + address;
    Write(device + "/vendor", vendor + "\n");
    Write(device + "/class", kind + "\n");
    if (renders) Write(Concat(device, "/drm/renderD", 128 + number, "/dev"), "226:128\n");
    const std::string card = sys_.File(Concat("sys/class/drm/card", number));
    std::filesystem::create_directories(card);
    std::filesystem::create_symlink(sys_.File("sys/" + device), card + "/device");
    std::filesystem::create_directories(card + "-HDMI-A-1");
  }

  static inline std::unique_ptr<test::TempDir> folder_;
  const test::TempDir sys_;
};

TEST_F(DevicesTest, ANumberIsANumber) {
  EXPECT_EQ(*CountWorkers("2", {}, Nothing()), 2u);
  EXPECT_EQ(*CountWorkers(" 1_0 ", {}, Nothing()), 10u);
}

TEST_F(DevicesTest, Launch014OtherNumbersAndWordsAreRefused) {
  for (const char* word : {"0", "-1", "65537"})
    EXPECT_THAT(CountWorkers(word, {}, Nothing()).error().message, HasSubstr("at least 1")) << word;
  for (const char* word : {"foo", "", "GPU", "1.5", "gpu "})
    EXPECT_THAT(CountWorkers(word, {}, Nothing()).error().message, HasSubstr("write a number"))
        << word;
}

TEST_F(DevicesTest, Launch015WithoutAGpuThereAreNoWorkersForThem) {
  const auto count = CountWorkers("gpu", {}, Nothing());
  ASSERT_FALSE(count);
  EXPECT_EQ(count.error().code, Code::kNotFound);
  EXPECT_THAT(count.error().message,
              AllOf(HasSubstr("libmuster-no-nvml.so.1"), HasSubstr("libmuster-no-cuda.so.1"),
                    HasSubstr("class/kfd"), Not(HasSubstr("\n"))));
}

TEST_F(DevicesTest, Launch016WithoutAcceleratorsAutoIsOneForEachCpu) {
  EXPECT_EQ(*CountWorkers("auto", {}, Nothing()), UsableCores());
}

TEST_F(DevicesTest, Launch017OnlyCpusThatMayBeUsedCount) {
  cpu_set_t before;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  cpu_set_t one;
  CPU_ZERO(&one);
  for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++cpu)
    if (CPU_ISSET(cpu, &before)) CPU_SET(cpu, &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  EXPECT_EQ(*CountWorkers("cpu", {}, Nothing()), 1u);
  EXPECT_EQ(*CountWorkers("auto", {}, Nothing()), 1u);
  EXPECT_EQ(sched_setaffinity(0, sizeof before, &before), 0);
}

TEST_F(DevicesTest, Launch146ANumberLoadsNoLibraryAndOpensNoDevice) {
  const std::string mark = sys_.File("loaded");
  const Environment environment{{"FAKE_GPUS", "8"}, {"FAKE_MARK", mark}};
  EXPECT_EQ(*CountWorkers("2", environment, Nvidia()), 2u);
  EXPECT_EQ(*CountWorkers("cpu", environment, Nvidia()), UsableCores());
  EXPECT_FALSE(test::FileExists(mark));
  EXPECT_EQ(*CountWorkers("2", environment), 2u);  // This machine's own libraries, if it has any.
  const std::string maps = test::ReadFile("/proc/self/maps");
  EXPECT_THAT(maps, AllOf(Not(HasSubstr("libfake")), Not(HasSubstr("libnvidia")),
                          Not(HasSubstr("libcuda")), Not(HasSubstr("libze_loader"))));
  for (const auto& descriptor : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    EXPECT_THAT(std::filesystem::read_symlink(descriptor, gone).string(),
                AllOf(Not(HasSubstr("/dev/nvidia")), Not(HasSubstr("/dev/kfd")),
                      Not(HasSubstr("/dev/dri"))));
  }
  // The library call would have been noticed:
  EXPECT_EQ(*CountWorkers("gpu", environment, Nvidia()), 8u);
  EXPECT_TRUE(test::FileExists(mark));
}

TEST_F(DevicesTest, GpusAreThoseOfNvml) {
  EXPECT_EQ(*CountWorkers("gpu", {{"FAKE_GPUS", "8"}}, Nvidia()), 8u);
  EXPECT_EQ(*CountWorkers("auto", {{"FAKE_GPUS", "3"}}, Nvidia()), 3u);
}

TEST_F(DevicesTest, NothingOfALibraryStaysInThisProcess) {
  ASSERT_EQ(*CountWorkers("gpu", {{"FAKE_GPUS", "8"}}, Nvidia()), 8u);
  EXPECT_THAT(test::ReadFile("/proc/self/maps"), Not(HasSubstr("libfake")));
  EXPECT_EQ(getenv("FAKE_GPUS"), nullptr);
}

TEST_F(DevicesTest, Launch147AListThatHidesAllGpusIsNamed) {
  for (const char* list : {"", "0,0", "99"}) {
    const Environment environment{{"FAKE_GPUS", "8"}, {"CUDA_VISIBLE_DEVICES", list}};
    const auto count = CountWorkers("gpu", environment, Nvidia());
    ASSERT_FALSE(count) << list;
    EXPECT_THAT(count.error().message,
                AllOf(HasSubstr(Concat("CUDA_VISIBLE_DEVICES='", std::string_view(list), "'")),
                      HasSubstr("has 8 NVIDIA GPUs")));
    // As for torchrun, there is then no accelerator.
    EXPECT_EQ(*CountWorkers("auto", environment, Nvidia()), UsableCores());
  }
}

TEST_F(DevicesTest, Launch147AListIsCountedUpToTheFirstGpuThatIsNotThere) {
  const Environment environment{{"FAKE_GPUS", "8"}, {"CUDA_VISIBLE_DEVICES", "0,99,1"}};
  EXPECT_EQ(*CountWorkers("gpu", environment, Nvidia()), 1u);
}

TEST_F(DevicesTest, Launch148AUniquePrefixOfAUuidIsOneGpu) {
  const Environment environment{{"FAKE_GPUS", "8"}, {"CUDA_VISIBLE_DEVICES", "GPU-5"}};
  EXPECT_EQ(*CountWorkers("gpu", environment, Nvidia()), 1u);
}

TEST_F(DevicesTest, VisibleGpusStandInTheWorkersOrder) {
  const Environment environment{{"FAKE_GPUS", "8"}, {"CUDA_VISIBLE_DEVICES", "7,0"}};
  EXPECT_THAT(
      *VisibleGpus(environment, Nvidia()),
      ElementsAre(Gpu{"GPU-77-made-up", "0000:42:00.0"}, Gpu{"GPU-00-made-up", "0000:3b:00.0"}));
}

TEST_F(DevicesTest, AGpuThatIsLostStillCounts) {
  EXPECT_THAT(*VisibleGpus({{"FAKE_GPUS", "2"}, {"FAKE_LOST", "1"}}, Nvidia()),
              ElementsAre(Gpu{"GPU-00-made-up", "0000:3b:00.0"}, Gpu{}));
}

TEST_F(DevicesTest, WithoutNvmlTheDriverIsAsked) {
  DeviceSources sources = Nvidia();
  EXPECT_THAT(*VisibleGpus({{"FAKE_NVML_ERROR", "9"}, {"FAKE_CUDA", "2"}}, sources),
              ElementsAre(Gpu{"", "0000:a0:00.0"}, Gpu{"", "0000:a1:00.0"}));
  sources.nvml = Nothing().nvml;
  EXPECT_EQ(*CountWorkers("gpu", {{"FAKE_CUDA", "4"}}, sources), 4u);
}

TEST_F(DevicesTest, PartsOfGpusAreCountedByTheDriver) {
  const Environment environment{
      {"FAKE_GPUS", "8"}, {"FAKE_CUDA", "1"}, {"CUDA_VISIBLE_DEVICES", "MIG-1,MIG-2"}};
  EXPECT_EQ(*CountWorkers("gpu", environment, Nvidia()), 1u);
  EXPECT_THAT(CountWorkers("gpu", {{"FAKE_GPUS", "8"}, {"CUDA_VISIBLE_DEVICES", "MIG-1"}}, Nvidia())
                  .error()
                  .message,
              HasSubstr("CUDA_VISIBLE_DEVICES='MIG-1' leaves no device"));
}

TEST_F(DevicesTest, WhatALibrarySaysIsHandedOn) {
  EXPECT_THAT(CountWorkers("gpu", {{"FAKE_NVML_ERROR", "9"}}, Nvidia()).error().message,
              AllOf(HasSubstr("nvmlInit_v2 fails with error 9, Driver Not Loaded"),
                    HasSubstr("cuInit fails with error 100, no device")));
  DeviceSources sources = Nothing();
  sources.nvml = "libm.so.6";
  EXPECT_THAT(CountWorkers("gpu", {}, sources).error().message,
              HasSubstr("libm.so.6: there is no function nvmlInit_v2"));
}

TEST_F(DevicesTest, ALibraryThatCrashesIsOneThatDoesNotAnswer) {
  EXPECT_THAT(CountWorkers("gpu", {{"FAKE_CRASH", "1"}}, Nvidia()).error().message,
              HasSubstr("libfake.so: it crashed"));
  EXPECT_EQ(*CountWorkers("gpu", {{"FAKE_CRASH", "1"}, {"FAKE_CUDA", "2"}}, Nvidia()), 2u);
}

TEST_F(DevicesTest, ALibraryThatHangsIsAnError) {
  DeviceSources sources = Nvidia();
  sources.patience = 50ms;
  for (const char* word : {"gpu", "auto"}) {
    const auto count = CountWorkers(word, {{"FAKE_HANG", "1"}}, sources);
    ASSERT_FALSE(count) << word;
    EXPECT_EQ(count.error().code, Code::kTimeout);
    EXPECT_THAT(count.error().message, HasSubstr("libfake.so: no answer within 50 ms"));
  }
}

TEST_F(DevicesTest, AmdGpusAreThoseOfTheKernel) {
  Write("class/kfd/kfd/topology/nodes/0/properties", "cpu_cores_count 64\nsimd_count 0\n");
  Write("class/kfd/kfd/topology/nodes/1/properties", "");  // Not ours to read.
  WriteAmdGpu(2, 0x1f, 0x0508);
  WriteAmdGpu(10, 0, 0xc100);
  WriteAmdGpu(9, 0xabcdef0123456789, 0xc600);
  EXPECT_EQ(*CountWorkers("gpu", {}, Nothing()), 3u);
  EXPECT_THAT(*VisibleGpus({}, Nothing()),
              ElementsAre(Gpu{"GPU-000000000000001f", "0001:05:01.0"},
                          Gpu{"GPU-abcdef0123456789", "0001:c6:00.0"}, Gpu{"", "0001:c1:00.0"}));
  EXPECT_EQ(*CountWorkers("gpu", {{"ROCR_VISIBLE_DEVICES", "1,2"}, {"HIP_VISIBLE_DEVICES", "0"}},
                          Nothing()),
            1u);
  EXPECT_EQ(*CountWorkers("gpu", {{"CUDA_VISIBLE_DEVICES", "2,0"}}, Nothing()), 2u);
}

TEST_F(DevicesTest, AListThatHidesAllAmdGpusIsNamed) {
  WriteAmdGpu(1, 7, 0x0500);
  EXPECT_THAT(
      CountWorkers("gpu", {{"HIP_VISIBLE_DEVICES", ""}, {"CUDA_VISIBLE_DEVICES", "0"}}, Nothing())
          .error()
          .message,
      AllOf(HasSubstr("HIP_VISIBLE_DEVICES=''"), HasSubstr("has 1 AMD GPU:"),
            Not(HasSubstr("CUDA_VISIBLE_DEVICES"))));
}

TEST_F(DevicesTest, XpusAreThoseOfLevelZero) {
  DeviceSources sources = Nothing();
  sources.level_zero = Fake();
  EXPECT_EQ(*CountWorkers("xpu", {{"FAKE_XPUS", "3"}}, sources), 6u);  // Two drivers.
  EXPECT_EQ(*CountWorkers("auto", {{"FAKE_XPUS", "3"}}, sources), 6u);
  WriteCard(0, "0000:4d:00.0", "0x8086", "0x038000", true);
  EXPECT_THAT(
      CountWorkers("xpu", {{"FAKE_XPUS", "0"}, {"ZE_AFFINITY_MASK", "9"}}, sources).error().message,
      HasSubstr("ZE_AFFINITY_MASK='9' leaves no device"));
}

TEST_F(DevicesTest, WithoutLevelZeroXpusAreTheCardsThatRender) {
  WriteCard(0, "0000:02:00.0", "0x1a03", "0x030000", true);   // Another vendor's card.
  WriteCard(1, "0000:00:02.0", "0x8086", "0x030000", true);   // Inside the processor.
  WriteCard(2, "0000:03:00.0", "0x8086", "0x030000", false);  // Nothing renders on it.
  WriteCard(3, "0000:04:00.0", "0x8086", "0x120000", true);   // No display controller.
  EXPECT_EQ(*CountWorkers("xpu", {}, Nothing()), 1u);
  EXPECT_EQ(*CountWorkers("auto", {}, Nothing()), UsableCores());
  WriteCard(4, "0000:4d:00.0", "0x8086", "0x038000", true);
  WriteCard(15, "0000:5d:00.0", "0x8086", "0x038000", true);
  EXPECT_EQ(*CountWorkers("xpu", {}, Nothing()), 2u);
  EXPECT_EQ(*CountWorkers("auto", {}, Nothing()), 2u);
}

TEST_F(DevicesTest, AMaskThatOnlyLevelZeroUnderstandsIsNotGuessedAt) {
  WriteCard(0, "0000:4d:00.0", "0x8086", "0x038000", true);
  for (const char* word : {"xpu", "auto"}) {
    const auto count = CountWorkers(word, {{"ZE_AFFINITY_MASK", "0.1"}}, Nothing());
    ASSERT_FALSE(count) << word;
    EXPECT_EQ(count.error().code, Code::kUnsupported);
    EXPECT_THAT(count.error().message,
                AllOf(HasSubstr("ZE_AFFINITY_MASK='0.1'"), HasSubstr("libmuster-no-ze.so.1")));
  }
}

TEST_F(DevicesTest, WithoutAnXpuThereAreNoWorkersForThem) {
  EXPECT_THAT(CountWorkers("xpu", {}, Nothing()).error().message, HasSubstr("no Intel GPU"));
}

}  // namespace
}  // namespace muster
