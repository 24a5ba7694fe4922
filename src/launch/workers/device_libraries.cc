// What the vendors' libraries know of the GPUs of this machine.
#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/text.h"
#include "launch/workers/devices.h"
#include "os/posix/file_io.h"
#include "os/posix/owned_fd.h"
#include "os/posix/posix_clock.h"
#include "os/posix/process_tree.h"
#include "os/posix/system_error.h"

namespace muster {

namespace {

using Json = nlohmann::json;

/// A vendor's library. The functions that are called are declared here: neither the vendors'
/// headers are needed to build muster, nor their libraries to run it.
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
  return MakeError(Code::kNotFound, function, " fails with error ", code,
                   why == nullptr ? "" : Concat(", ", std::string_view(why)));
}

Result<Gpus> QueryNvml(const std::string& name) {
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
  Gpus gpus(count);
  for (unsigned i = 0; i < count; ++i) {
    // A GPU that has fallen off the bus is still counted, as PyTorch does; its worker will report
    // it.
    void* handle = nullptr;
    if (get_handle(i, &handle) != 0) continue;
    char uuid[96] = "";
    if (get_uuid(handle, uuid, sizeof uuid) == 0) gpus[i].uuid = uuid;
    PciInfo pci{};
    if (get_pci(handle, &pci) == 0) gpus[i].pci = PciAddress(pci.domain, pci.bus, pci.device, 0);
  }
  return gpus;
}

Result<Gpus> QueryCuda(const std::string& name) {
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
  Gpus gpus(static_cast<size_t>(std::max(count, 0)));
  for (int i = 0; i < count; ++i) {
    int device = 0;
    char address[32] = "";
    if (get_device(&device, i) == 0 && get_pci(address, sizeof address, device) == 0)
      gpus[static_cast<size_t>(i)].pci = LowerCase(address);
  }
  return gpus;
}

// Devices of all drivers, without names: no caller needs them.
Result<Gpus> QueryLevelZero(const std::string& name) {
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
  return Gpus(gpus);
}

using Query = Result<Gpus> (*)(const std::string& library);

// What the child writes: a line with the GPUs as [["uuid", "pci"], ...], or with the reason why
// not.
constexpr size_t kAnswerBytesMax = size_t{1} << 20;

std::string Written(const Result<Gpus>& answer) {
  Json json = Json::array();
  if (!answer) json = Printable(answer.error().message, 500);
  if (answer) {
    for (const Gpu& gpu : *answer) json.push_back(Json::array({gpu.uuid, gpu.pci}));
  }
  return json.dump(-1, ' ', true, Json::error_handler_t::replace) + "\n";
}

Result<Gpus> ReadBack(std::string_view text) {
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_array())
    return Error{Code::kNotFound, json.is_string() ? json.get<std::string>() : "it crashed"};
  Gpus gpus;
  for (const Json& gpu : json)
    gpus.push_back({gpu.at(0).get<std::string>(), gpu.at(1).get<std::string>()});
  return gpus;
}

[[noreturn]] void AnswerAndExit(Query query, const std::string& library,
                                const Environment& environment, int output, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);  // The parent had ended before the line above.
  const rlimit no_core{};
  setrlimit(RLIMIT_CORE, &no_core);
  const int null = open("/dev/null", O_RDWR);
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) dup2(null, stream);
  // Libraries read the environment themselves, and must see that of the workers.
  clearenv();
  for (const auto& [name, value] : environment) setenv(name.c_str(), value.c_str(), 1);
  WriteAll(output, Written(query(library)));
  _exit(0);  // The library's own exit handlers are not run.
}

// A process that hangs inside a driver does not end even by SIGKILL: it is left behind.
void End(pid_t pid) {
  constexpr int kGraceMs = 1000;
  kill(pid, SIGKILL);
  const OwnedFd handle = OpenProcess(pid);
  pollfd ended{.fd = handle.get(), .events = POLLIN, .revents = 0};
  const bool gone = !handle.is_open() || poll(&ended, 1, kGraceMs) != 0;
  while (waitpid(pid, nullptr, gone ? 0 : WNOHANG) < 0 && errno == EINTR) {
  }
}

Result<std::string> ReadAnswer(int input, Duration patience) {
  const PosixClock clock;
  const Instant deadline = clock.Now() + patience;
  std::string text;
  while (!text.ends_with('\n')) {
    const int64_t left_ms = Milliseconds(deadline - clock.Now() + 999us);
    pollfd readable{.fd = input, .events = POLLIN, .revents = 0};
    const int ready = left_ms > 0 ? poll(&readable, 1, static_cast<int>(left_ms)) : 0;
    if (ready < 0 && errno == EINTR) continue;
    if (ready == 0) {
      return MakeError(Code::kTimeout, "no answer within ", Milliseconds(patience),
                       " ms: its driver hangs");
    }
    char bytes[4096];
    const ssize_t count = read(input, bytes, sizeof bytes);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0 || text.size() > kAnswerBytesMax) return Error{Code::kNotFound, "it crashed"};
    text.append(bytes, static_cast<size_t>(count));
  }
  return text;
}

}  // namespace

std::string PciAddress(unsigned domain, unsigned bus, unsigned device, unsigned function) {
  char text[32];
  std::snprintf(text, sizeof text, "%04x:%02x:%02x.%x", domain, bus, device, function);
  return text;
}

Result<Gpus> QueryLibrary(VendorLibrary vendor, const std::string& library,
                          const Environment& environment, Duration patience) {
  constexpr Query kQueries[] = {QueryNvml, QueryCuda, QueryLevelZero};
  const auto with_name = [&](const Error& error) {
    const bool named = error.message.find(library) != std::string::npos;  // dlerror() does that.
    return named ? error : MakeError(error.code, library, ": ", error.message);
  };
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return with_name(SystemError("pipe2"));
  const OwnedFd input(ends[0]);
  OwnedFd output(ends[1]);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0)
    AnswerAndExit(kQueries[static_cast<size_t>(vendor)], library, environment, output.get(),
                  parent);
  if (pid < 0) return with_name(SystemError("fork"));
  output.Close();
  const Result<std::string> text = ReadAnswer(input.get(), patience);
  End(pid);
  if (!text) return with_name(text.error());
  Result<Gpus> gpus = ReadBack(*text);
  if (!gpus) return with_name(gpus.error());
  return gpus;
}

}  // namespace muster
