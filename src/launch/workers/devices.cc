#include "launch/workers/devices.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string_view>
#include <system_error>

#include "base/text.h"
#include "base/trim.h"
#include "launch/core/visible_devices.h"
#include "os/posix/posix_clock.h"

namespace muster {

namespace {

namespace fs = std::filesystem;

// --- What is asked of a vendor's library, inside a child --------------------------------------

/// Their libraries are declared here, and only as much of them as is called: none of their headers
/// is needed to build muster, none of their libraries to run it.
class Library {
 public:
  explicit Library(const std::string& name) : handle_(dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL)) {
    if (handle_ == nullptr) missing_ = dlerror();
  }

  /// The first problem, if there was one.
  Status Complete() const {
    return missing_.empty() ? Ok() : Status(Error{Code::kNotFound, missing_});
  }

  /// Null if there is none.
  template <typename Function>
  Function* FindIfThere(const char* name) {
    return handle_ == nullptr ? nullptr : reinterpret_cast<Function*>(dlsym(handle_, name));
  }

  template <typename Function>
  Function* Find(const char* name) {
    Function* const found = FindIfThere<Function>(name);
    if (found == nullptr && missing_.empty())
      missing_ = Concat("there is no function ", std::string_view(name), " in it");
    return found;
  }

 private:
  void* const handle_;  // Never closed: the process ends soon.
  std::string missing_;
};

Error Refused(std::string_view function, int code, const char* why = nullptr) {
  return Error{Code::kNotFound, Concat(function, " fails with error ", code,
                                       why == nullptr ? "" : Concat(", ", std::string_view(why)))};
}

std::string PciAddress(unsigned domain, unsigned bus, unsigned device, unsigned function) {
  char text[32];
  std::snprintf(text, sizeof text, "%04x:%02x:%02x.%x", domain, bus, device, function);
  return text;
}

Result<std::vector<Gpu>> AskNvml(const std::string& name) {
  struct PciInfo {
    char short_address[16];
    unsigned domain, bus, device, ids, subsystem_ids;
    char address[32];
  };
  Library library(name);
  auto* const init = library.Find<int()>("nvmlInit_v2");
  auto* const get_count = library.Find<int(unsigned*)>("nvmlDeviceGetCount_v2");
  auto* const get_handle = library.Find<int(unsigned, void**)>("nvmlDeviceGetHandleByIndex_v2");
  auto* const get_uuid = library.Find<int(void*, char*, unsigned)>("nvmlDeviceGetUUID");
  auto* const get_pci = library.Find<int(void*, PciInfo*)>("nvmlDeviceGetPciInfo_v3");
  MUSTER_CHECK_OK(library.Complete());
  auto* const why = library.FindIfThere<const char*(int)>("nvmlErrorString");
  if (const int code = init(); code != 0)
    return Refused("nvmlInit_v2", code, why == nullptr ? nullptr : why(code));
  unsigned count = 0;
  if (const int code = get_count(&count); code != 0) return Refused("nvmlDeviceGetCount_v2", code);
  std::vector<Gpu> gpus(count);
  for (unsigned i = 0; i < count; ++i) {
    // One that has fallen off the bus is still counted, as PyTorch does; its worker will say more.
    void* handle = nullptr;
    if (get_handle(i, &handle) != 0) continue;
    char uuid[96] = "";
    if (get_uuid(handle, uuid, sizeof uuid) == 0) gpus[i].uuid = uuid;
    PciInfo pci{};
    if (get_pci(handle, &pci) == 0) gpus[i].pci = PciAddress(pci.domain, pci.bus, pci.device, 0);
  }
  return gpus;
}

Result<std::vector<Gpu>> AskCuda(const std::string& name) {
  Library library(name);
  auto* const init = library.Find<int(unsigned)>("cuInit");
  auto* const get_count = library.Find<int(int*)>("cuDeviceGetCount");
  auto* const get_device = library.Find<int(int*, int)>("cuDeviceGet");
  auto* const get_pci = library.Find<int(char*, int, int)>("cuDeviceGetPCIBusId");
  MUSTER_CHECK_OK(library.Complete());
  auto* const why = library.FindIfThere<int(int, const char**)>("cuGetErrorString");
  if (const int code = init(0); code != 0) {
    const char* text = nullptr;
    if (why != nullptr) why(code, &text);
    return Refused("cuInit", code, text);
  }
  int count = 0;
  if (const int code = get_count(&count); code != 0) return Refused("cuDeviceGetCount", code);
  std::vector<Gpu> gpus(static_cast<size_t>(std::max(count, 0)));
  for (int i = 0; i < count; ++i) {
    int device = 0;
    char address[32] = "";
    if (get_device(&device, i) == 0 && get_pci(address, sizeof address, device) == 0)
      gpus[static_cast<size_t>(i)].pci = LowerCase(address);
  }
  return gpus;
}

// Devices of all drivers. They have no names here: nobody asks for them.
Result<std::vector<Gpu>> AskLevelZero(const std::string& name) {
  constexpr uint32_t kGpusOnly = 1;
  Library library(name);
  auto* const init = library.Find<int(uint32_t)>("zeInit");
  auto* const get_drivers = library.Find<int(uint32_t*, void**)>("zeDriverGet");
  auto* const get_devices = library.Find<int(void*, uint32_t*, void**)>("zeDeviceGet");
  MUSTER_CHECK_OK(library.Complete());
  if (const int code = init(kGpusOnly); code != 0) return Refused("zeInit", code);
  uint32_t count = 0;
  if (const int code = get_drivers(&count, nullptr); code != 0) return Refused("zeDriverGet", code);
  std::vector<void*> drivers(count);
  if (const int code = get_drivers(&count, drivers.data()); code != 0)
    return Refused("zeDriverGet", code);
  size_t gpus = 0;
  for (void* const driver : drivers) {
    uint32_t devices = 0;
    if (get_devices(driver, &devices, nullptr) == 0) gpus += devices;
  }
  return std::vector<Gpu>(gpus);
}

// --- The child ----------------------------------------------------------------------------------

using Question = Result<std::vector<Gpu>> (*)(const std::string& library);

// What the child writes: a line for each GPU, "+uuid pci", and an end, "."; or a reason, "!text".
constexpr size_t kAnswerBytesMax = size_t{1} << 20;

std::string Written(const Result<std::vector<Gpu>>& answer) {
  if (!answer) return Concat("!", Printable(answer.error().message, 500), "\n");
  std::string text;
  for (const Gpu& gpu : *answer) text += Concat("+", gpu.uuid, " ", gpu.pci, "\n");
  return text + ".\n";
}

bool IsWhole(std::string_view text) {
  return text.ends_with("\n") &&
         (text.starts_with('!') || text == ".\n" || text.ends_with("\n.\n"));
}

Result<std::vector<Gpu>> ReadBack(std::string_view text) {
  if (text.starts_with('!')) return Error{Code::kNotFound, std::string(Trim(text.substr(1)))};
  std::vector<Gpu> gpus;
  while (text.starts_with('+')) {
    const std::string_view line = text.substr(1, text.find('\n') - 1);
    const size_t blank = line.find(' ');
    gpus.push_back({std::string(line.substr(0, blank)), std::string(line.substr(blank + 1))});
    text.remove_prefix(line.size() + 2);
  }
  return gpus;
}

[[noreturn]] void AnswerAndExit(Question question, const std::string& library,
                                const Environment& environment, int output, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);  // It was already gone when we asked to be told.
  const rlimit no_core{};
  setrlimit(RLIMIT_CORE, &no_core);
  const int nowhere = open("/dev/null", O_RDWR);
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) dup2(nowhere, stream);
  // Libraries look at the environment themselves, and must see what the workers will see.
  clearenv();
  for (const auto& [name, value] : environment) setenv(name.c_str(), value.c_str(), 1);
  const std::string text = Written(question(library));
  std::string_view rest = text;
  while (!rest.empty()) {
    const ssize_t written = write(output, rest.data(), rest.size());
    if (written < 0 && errno != EINTR) break;
    if (written > 0) rest.remove_prefix(static_cast<size_t>(written));
  }
  _exit(0);  // Without the library's last words: what it holds goes with the process.
}

// It has answered, or never will. A process that hangs inside a driver does not end even now: then
// it is left to whoever inherits it.
void End(pid_t pid) {
  constexpr int kGraceMs = 1000;
  kill(pid, SIGKILL);
  // By its number: the header of glibc 2.36 declares pidfd_open() as if it were C++.
  const int handle = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
  pollfd ended{.fd = handle, .events = POLLIN, .revents = 0};
  const bool gone = handle < 0 || poll(&ended, 1, kGraceMs) != 0;
  if (handle >= 0) close(handle);
  while (waitpid(pid, nullptr, gone ? 0 : WNOHANG) < 0 && errno == EINTR) {
  }
}

Result<std::string> ReadAnswer(int input, Duration patience) {
  const PosixClock clock;
  const Instant deadline = clock.Now() + patience;
  std::string text;
  while (!IsWhole(text)) {
    const int64_t left_ms = Milliseconds(deadline - clock.Now() + 999us);
    pollfd readable{.fd = input, .events = POLLIN, .revents = 0};
    const int ready = left_ms > 0 ? poll(&readable, 1, static_cast<int>(left_ms)) : 0;
    if (ready < 0 && errno == EINTR) continue;
    if (ready == 0) {
      return Error{Code::kTimeout,
                   Concat("no answer within ", Milliseconds(patience), " ms: its driver hangs")};
    }
    char bytes[4096];
    const ssize_t count = read(input, bytes, sizeof bytes);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0 || text.size() > kAnswerBytesMax)
      return Error{Code::kNotFound, "it crashed when it was asked"};
    text.append(bytes, static_cast<size_t>(count));
  }
  return text;
}

Result<std::vector<Gpu>> AskInChild(Question question, const std::string& library,
                                    const Environment& environment, Duration patience) {
  const auto with_name = [&](const Error& error) {
    const bool named = error.message.find(library) != std::string::npos;  // dlerror() does that.
    return named ? error : Error{error.code, Concat(library, ": ", error.message)};
  };
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0)
    return with_name({Code::kUnavailable, Concat("pipe2: ", std::string_view(strerror(errno)))});
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) AnswerAndExit(question, library, environment, ends[1], parent);
  const int failure = errno;
  close(ends[1]);
  Result<std::string> text =
      pid < 0 ? Error{Code::kUnavailable, Concat("fork: ", std::string_view(strerror(failure)))}
              : ReadAnswer(ends[0], patience);
  close(ends[0]);
  if (pid > 0) End(pid);
  if (!text) return with_name(text.error());
  Result<std::vector<Gpu>> gpus = ReadBack(*text);
  if (!gpus) return with_name(gpus.error());
  return gpus;
}

// --- What the kernel says -----------------------------------------------------------------------

std::string ReadWhole(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

std::vector<fs::path> Listed(const fs::path& folder) {
  std::vector<fs::path> paths;
  std::error_code failure;
  for (fs::directory_iterator at(folder, failure), end; !failure && at != end;
       at.increment(failure))
    paths.push_back(at->path());
  return paths;
}

std::optional<uint64_t> NumberAfter(std::string_view prefix, std::string_view text) {
  if (!text.starts_with(prefix)) return std::nullopt;
  text.remove_prefix(prefix.size());
  uint64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, failure] = std::from_chars(text.data(), end, number);
  if (failure != std::errc() || stop != end) return std::nullopt;
  return number;
}

// A compute node's properties are lines of "name value". Those of a GPU that this container may not
// use cannot be read; then it is as if it were not there.
std::vector<Gpu> AmdGpus(const std::string& sys) {
  std::map<uint64_t, Gpu> by_node;
  for (const fs::path& node : Listed(fs::path(sys) / "class/kfd/kfd/topology/nodes")) {
    const std::optional<uint64_t> number = NumberAfter("", node.filename().string());
    if (!number) continue;
    std::map<std::string, uint64_t> properties;
    std::ifstream lines(node / "properties");
    std::string name;
    uint64_t value = 0;
    while (lines >> name >> value) properties[name] = value;
    if (properties["simd_count"] == 0) continue;  // A CPU.
    Gpu& gpu = by_node[*number];
    char uuid[32] = "";
    if (properties["unique_id"] != 0) {
      std::snprintf(uuid, sizeof uuid, "GPU-%016llx",
                    static_cast<unsigned long long>(properties["unique_id"]));
    }
    gpu.uuid = uuid;
    const auto location = static_cast<unsigned>(properties["location_id"]);
    gpu.pci = PciAddress(static_cast<unsigned>(properties["domain"]), (location >> 8) & 0xff,
                         (location >> 3) & 0x1f, location & 7);
  }
  std::vector<Gpu> gpus;
  for (const auto& [_, gpu] : by_node) gpus.push_back(gpu);
  return gpus;
}

struct IntelCards {
  size_t discrete = 0;
  size_t integrated = 0;
};

// A card counts if programs can render on it: it is a display or 3D controller and has a render
// node. Graphics inside the processor sit on the first bus; cards are behind a bridge.
IntelCards CountIntelCards(const std::string& sys) {
  IntelCards cards;
  for (const fs::path& card : Listed(fs::path(sys) / "class/drm")) {
    if (!NumberAfter("card", card.filename().string())) continue;
    const fs::path device = card / "device";
    if (Trim(ReadWhole(device / "vendor")) != "0x8086") continue;
    if (!ReadWhole(device / "class").starts_with("0x03")) continue;
    const std::vector<fs::path> nodes = Listed(device / "drm");
    const bool renders = std::any_of(nodes.begin(), nodes.end(), [](const fs::path& node) {
      return NumberAfter("renderD", node.filename().string()).has_value();
    });
    if (!renders) continue;
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
  return Error{Code::kNotFound, Concat(by, " leaves no device visible, and this node has ", count,
                                       " ", what, count == 1 ? "" : "s",
                                       ": name devices that are there, each once, or unset it")};
}

std::vector<Gpu> Picked(const std::vector<Gpu>& gpus, const VisibleDevices& visible) {
  std::vector<Gpu> picked;
  for (const size_t index : visible.indices) picked.push_back(gpus[index]);
  return picked;
}

DeviceList UuidsOf(const std::vector<Gpu>& gpus) {
  DeviceList list;
  for (const Gpu& gpu : gpus) list.uuids.push_back(gpu.uuid);
  return list;
}

Result<std::vector<Gpu>> VisibleAmdGpus(const Environment& environment,
                                        const std::vector<Gpu>& gpus) {
  const RocmVariables variables{.rocr = Variable(environment, "ROCR_VISIBLE_DEVICES"),
                                .hip = Variable(environment, "HIP_VISIBLE_DEVICES"),
                                .cuda = Variable(environment, "CUDA_VISIBLE_DEVICES")};
  const VisibleDevices visible = RocmVisible(variables, UuidsOf(gpus));
  if (!visible.indices.empty()) return Picked(gpus, visible);
  const char* const second = variables.hip ? "HIP_VISIBLE_DEVICES" : "CUDA_VISIBLE_DEVICES";
  return Hidden(SetOnes(environment, {"ROCR_VISIBLE_DEVICES", second}), gpus.size(), "AMD GPU");
}

Result<size_t> CountXpus(const Environment& environment, const DeviceSources& sources,
                         bool integrated_too) {
  const IntelCards cards = CountIntelCards(sources.sys);
  const std::string masks = SetOnes(environment, {"ZE_AFFINITY_MASK", "ONEAPI_DEVICE_SELECTOR"});
  const Result<std::vector<Gpu>> devices =
      AskInChild(AskLevelZero, sources.level_zero, environment, sources.patience);
  if (devices && !devices->empty()) return devices->size();
  if (!devices && devices.error().code == Code::kTimeout) return devices.error();
  const size_t known = cards.discrete == 0 && integrated_too ? cards.integrated : cards.discrete;
  if (known == 0) {
    return Error{Code::kNotFound,
                 Concat("no Intel GPU was found (",
                        devices ? "Level Zero knows none" : devices.error().message,
                        "; no card with a render node in ", sources.sys,
                        "/class/drm): ask for a number of workers, or for cpu")};
  }
  if (devices && !masks.empty()) return Hidden(masks, known, "Intel GPU");
  if (!masks.empty()) {
    return Error{Code::kUnsupported,
                 Concat("which Intel GPUs ", masks, " leaves can only be told by Level Zero (",
                        devices.error().message, "): install it, or ask for a number of workers")};
  }
  return known;
}

size_t CountCpus() {
  // What Python's os.cpu_count() is, and with it torchrun's number.
  return static_cast<size_t>(std::max(sysconf(_SC_NPROCESSORS_ONLN), 1L));
}

Result<size_t> CountAnything(const Environment& environment, const DeviceSources& sources) {
  const Result<std::vector<Gpu>> gpus = VisibleGpus(environment, sources);
  if (gpus) return gpus->size();
  // Only "there is none" leads on: a node whose GPU hangs must not quietly train on its CPUs.
  if (gpus.error().code != Code::kNotFound) return gpus.error();
  const Result<size_t> xpus = CountXpus(environment, sources, /*integrated_too=*/false);
  if (xpus || xpus.error().code != Code::kNotFound) return xpus;
  return CountCpus();
}

}  // namespace

Result<std::vector<Gpu>> VisibleGpus(const Environment& environment, const DeviceSources& sources) {
  const std::string variable = SetOnes(environment, {"CUDA_VISIBLE_DEVICES"});
  const Result<std::vector<Gpu>> nvidia =
      AskInChild(AskNvml, sources.nvml, environment, sources.patience);
  if (!nvidia && nvidia.error().code == Code::kTimeout) return nvidia;
  if (nvidia && !nvidia->empty()) {
    const VisibleDevices visible =
        CudaVisible(Variable(environment, "CUDA_VISIBLE_DEVICES"), UuidsOf(*nvidia));
    if (!visible.indices.empty()) return Picked(*nvidia, visible);
    if (!visible.ask_driver) return Hidden(variable, nvidia->size(), "NVIDIA GPU");
  }
  const Result<std::vector<Gpu>> driver =
      AskInChild(AskCuda, sources.cuda, environment, sources.patience);
  if (driver && !driver->empty()) return driver;
  if (!driver && driver.error().code == Code::kTimeout) return driver;
  if (nvidia && !nvidia->empty()) return Hidden(variable, nvidia->size(), "NVIDIA GPU");
  const std::vector<Gpu> amd = AmdGpus(sources.sys);
  if (!amd.empty()) return VisibleAmdGpus(environment, amd);
  return Error{
      Code::kNotFound,
      Concat("no GPU was found (", nvidia ? "NVML knows none" : nvidia.error().message, "; ",
             driver ? "the CUDA driver knows none" : driver.error().message, "; none in ",
             sources.sys, "/class/kfd", variable.empty() ? "" : Concat("; ", variable, " is set"),
             "): ask for a number of workers, or for cpu")};
}

Result<size_t> CountWorkers(const std::string& word, const Environment& environment,
                            const DeviceSources& sources) {
  if (const std::optional<int64_t> number = ParseWholeNumber(word)) {
    if (*number >= 1 && static_cast<uint64_t>(*number) <= kWorkersPerNodeMax)
      return static_cast<size_t>(*number);
    return Error{Code::kInvalid, Concat(*number,
                                        " workers on a node cannot be: at least 1 and at "
                                        "most ",
                                        kWorkersPerNodeMax)};
  }
  if (word == "cpu") return CountCpus();
  if (word == "auto") return CountAnything(environment, sources);
  if (word == "xpu") return CountXpus(environment, sources, /*integrated_too=*/true);
  if (word == "gpu") {
    MUSTER_TRY(const std::vector<Gpu> gpus, VisibleGpus(environment, sources));
    return gpus.size();
  }
  return Error{Code::kInvalid, Concat("'", Printable(word),
                                      "' is no number of workers: write a number, or cpu, gpu, "
                                      "xpu or auto for one on each of these")};
}

}  // namespace muster
