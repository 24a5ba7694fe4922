#include "launch/workers/devices.h"

#include <cstdint>
#include <cstdio>
#include <fstream>
#include <optional>
#include <system_error>

#include "base/text.h"
#include "os/posix/cores.h"
#include "os/posix/file_io.h"

namespace muster {

namespace fs = std::filesystem;

std::map<int, fs::path> NumberedChildren(const fs::path& folder, std::string_view prefix) {
  std::map<int, fs::path> found;
  std::error_code failure;
  for (fs::directory_iterator at(folder, failure), end; !failure && at != end;
       at.increment(failure)) {
    const std::string name = at->path().filename().string();
    if (!name.starts_with(prefix)) continue;
    if (const auto number = ParseAll<int>(std::string_view(name).substr(prefix.size())))
      found.emplace(*number, at->path());
  }
  return found;
}

namespace {

// --- What the kernel reports --------------------------------------------------------------------

std::string ReadOrEmpty(const fs::path& path) { return ReadUpTo(path).value_or(""); }

// A compute node's properties are lines of "name value". Those of a GPU that this container may not
// use cannot be read; then it is as if it were not there.
Gpus AmdGpus(const std::string& sys) {
  Gpus gpus;
  for (const auto& [_, node] :
       NumberedChildren(fs::path(sys) / "class/kfd/kfd/topology/nodes", "")) {
    std::map<std::string, uint64_t> properties;
    std::ifstream lines(node / "properties");
    std::string name;
    uint64_t value = 0;
    while (lines >> name >> value) properties[name] = value;
    if (properties["simd_count"] == 0) continue;  // A CPU.
    char uuid[32] = "";
    if (properties["unique_id"] != 0) {
      std::snprintf(uuid, sizeof uuid, "GPU-%016llx",
                    static_cast<unsigned long long>(properties["unique_id"]));
    }
    const auto location = static_cast<unsigned>(properties["location_id"]);
    gpus.push_back(
        {.uuid = uuid,
         .pci = PciAddress(static_cast<unsigned>(properties["domain"]), (location >> 8) & 0xff,
                           (location >> 3) & 0x1f, location & 7)});
  }
  return gpus;
}

struct IntelCards {
  size_t discrete = 0;
  size_t integrated = 0;
};

// A card counts if programs can render on it: it is a display or 3D controller and has a render
// node. Integrated graphics are on the first bus, cards behind a bridge.
IntelCards CountIntelCards(const std::string& sys) {
  IntelCards cards;
  for (const auto& [_, card] : NumberedChildren(fs::path(sys) / "class/drm", "card")) {
    const fs::path device = card / "device";
    if (Trim(ReadOrEmpty(device / "vendor")) != "0x8086") continue;
    if (!ReadOrEmpty(device / "class").starts_with("0x03")) continue;
    if (NumberedChildren(device / "drm", "renderD").empty()) continue;
    std::error_code failure;
    const std::string address = fs::canonical(device, failure).filename().string();
    const size_t colon = address.find(':');
    const bool first_bus = colon != address.npos && address.compare(colon, 4, ":00:") == 0;
    ++(first_bus ? cards.integrated : cards.discrete);
  }
  return cards;
}

// --- Counting -----------------------------------------------------------------------------------

// "CUDA_VISIBLE_DEVICES='0,0'" of those that are set; empty if none is.
std::string SetOnes(const Environment& environment, std::initializer_list<const char*> names) {
  std::string text;
  for (const char* const name : names) {
    if (const auto value = Variable(environment, name)) {
      text +=
          Concat(text.empty() ? "" : " and ", std::string_view(name), "='", Printable(*value), "'");
    }
  }
  return text;
}

Error Hidden(const std::string& by, size_t count, std::string_view what) {
  return MakeError(Code::kNotFound, by, " leaves no device visible, and this node has ", count, " ",
                   what, count == 1 ? "" : "s",
                   ": name devices that are there, each once, or unset it");
}

Result<Gpus> VisibleAmdGpus(const Environment& environment, const Gpus& gpus) {
  const RocmVariables variables{.rocr = Variable(environment, "ROCR_VISIBLE_DEVICES"),
                                .hip = Variable(environment, "HIP_VISIBLE_DEVICES"),
                                .cuda = Variable(environment, "CUDA_VISIBLE_DEVICES")};
  Gpus visible = RocmVisible(variables, gpus);
  if (!visible.empty()) return visible;
  const char* const second = variables.hip ? "HIP_VISIBLE_DEVICES" : "CUDA_VISIBLE_DEVICES";
  return Hidden(SetOnes(environment, {"ROCR_VISIBLE_DEVICES", second}), gpus.size(), "AMD GPU");
}

Result<size_t> CountXpus(const Environment& environment, const DeviceSources& sources,
                         bool integrated_too) {
  const IntelCards cards = CountIntelCards(sources.sys);
  const std::string masks = SetOnes(environment, {"ZE_AFFINITY_MASK", "ONEAPI_DEVICE_SELECTOR"});
  const Result<Gpus> devices =
      QueryLibrary(VendorLibrary::kLevelZero, sources.level_zero, environment, sources.patience);
  if (devices && !devices->empty()) return devices->size();
  if (!devices && devices.error().code == Code::kTimeout) return devices.error();
  const size_t known = cards.discrete == 0 && integrated_too ? cards.integrated : cards.discrete;
  if (known == 0) {
    return MakeError(Code::kNotFound, "no Intel GPU was found (",
                     devices ? "Level Zero knows none" : devices.error().message,
                     "; no card with a render node in ", sources.sys,
                     "/class/drm): request a number of workers, or cpu");
  }
  if (devices && !masks.empty()) return Hidden(masks, known, "Intel GPU");
  if (!masks.empty()) {
    return MakeError(Code::kUnsupported, "only Level Zero knows which Intel GPUs ", masks,
                     " selects (", devices.error().message,
                     "): install it, or request a number of workers");
  }
  return known;
}

Result<size_t> CountAnything(const Environment& environment, const DeviceSources& sources) {
  const Result<Gpus> gpus = VisibleGpus(environment, sources);
  if (gpus) return gpus->size();
  // Only "there is none" continues: a node whose GPU hangs must not silently train on its CPUs.
  if (gpus.error().code != Code::kNotFound) return gpus.error();
  const Result<size_t> xpus = CountXpus(environment, sources, /*integrated_too=*/false);
  if (xpus || xpus.error().code != Code::kNotFound) return xpus;
  return UsableCores();
}

}  // namespace

Result<Gpus> VisibleGpus(const Environment& environment, const DeviceSources& sources) {
  const std::string variable = SetOnes(environment, {"CUDA_VISIBLE_DEVICES"});
  const Result<Gpus> nvidia =
      QueryLibrary(VendorLibrary::kNvml, sources.nvml, environment, sources.patience);
  if (!nvidia && nvidia.error().code == Code::kTimeout) return nvidia;
  if (nvidia && !nvidia->empty()) {
    const VisibleDevices visible =
        CudaVisible(Variable(environment, "CUDA_VISIBLE_DEVICES"), *nvidia);
    if (!visible.gpus.empty()) return visible.gpus;
    if (!visible.ask_driver) return Hidden(variable, nvidia->size(), "NVIDIA GPU");
  }
  const Result<Gpus> driver =
      QueryLibrary(VendorLibrary::kCuda, sources.cuda, environment, sources.patience);
  if (driver && !driver->empty()) return driver;
  if (!driver && driver.error().code == Code::kTimeout) return driver;
  if (nvidia && !nvidia->empty()) return Hidden(variable, nvidia->size(), "NVIDIA GPU");
  const Gpus amd = AmdGpus(sources.sys);
  if (!amd.empty()) return VisibleAmdGpus(environment, amd);
  return MakeError(
      Code::kNotFound, "no GPU was found (", nvidia ? "NVML knows none" : nvidia.error().message,
      "; ", driver ? "the CUDA driver knows none" : driver.error().message, "; none in ",
      sources.sys, "/class/kfd", variable.empty() ? "" : Concat("; ", variable, " is set"),
      "): request a number of workers, or cpu");
}

Result<size_t> CountWorkers(const std::string& word, const Environment& environment,
                            const DeviceSources& sources) {
  if (const std::optional<int64_t> number = ParseWholeNumber(word)) {
    if (*number >= 1 && static_cast<uint64_t>(*number) <= kWorkersPerNodeMax)
      return static_cast<size_t>(*number);
    return MakeError(Code::kInvalid, *number, " workers on a node: at least 1 and at most ",
                     kWorkersPerNodeMax);
  }
  if (word == "cpu") return UsableCores();
  if (word == "auto") return CountAnything(environment, sources);
  if (word == "xpu") return CountXpus(environment, sources, /*integrated_too=*/true);
  if (word == "gpu") {
    MUSTER_TRY(const Gpus gpus, VisibleGpus(environment, sources));
    return gpus.size();
  }
  return MakeError(Code::kInvalid, "'", Printable(word),
                   "' is not a number of workers: write a number, or cpu, gpu, xpu or auto for one "
                   "on each of these");
}

}  // namespace muster
