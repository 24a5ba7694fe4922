// The number of workers of a node: a number, or one for each of its CPUs or accelerators.
//
// Accelerators are counted without Python and without PyTorch. Whether the PyTorch of the workers
// supports them is not known here: on a node with GPUs and a PyTorch without GPU support, torchrun
// fails where this counts the GPUs.
//
//   NVIDIA  NVML, whose list is then filtered by CUDA_VISIBLE_DEVICES; the CUDA driver, which
//           filters by itself, where there is no NVML and for parts of devices (MIG). NVML numbers
//           devices by their place on the bus. CUDA does the same with CUDA_DEVICE_ORDER=PCI_BUS_ID
//           and on nodes whose GPUs are all alike.
//   AMD     the kernel's list of compute nodes, filtered by ROCR_VISIBLE_DEVICES and then by
//           HIP_VISIBLE_DEVICES, or by CUDA_VISIBLE_DEVICES where that is not set.
//   Intel   Level Zero, which filters by itself and may count the tiles of a card one by one. Where
//           it is not installed, the cards of the kernel's graphics drivers: those with memory of
//           their own; `xpu` takes graphics inside the processor if there are no others, `auto`
//           does not.
//
// Each query loads a vendor's library in a short-lived child process: it changes nothing in this
// process, and a library that hangs or crashes is an error, not the end of the launcher. So call
// these functions from a process of one thread, or of threads that hold no locks: they fork. They
// block, up to `patience` for each library. An Error is one line.
#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>

#include "base/result.h"
#include "base/time.h"
#include "launch/core/environment.h"
#include "launch/core/visible_devices.h"

namespace muster {

/// A larger number is a mistake, and each worker costs memory before it runs.
inline constexpr size_t kWorkersPerNodeMax = 65536;

/// Where this machine's devices are found.
struct DeviceSources {
  std::string sys = "/sys";
  std::string nvml = "libnvidia-ml.so.1";  ///< A path, or a name that the loader knows.
  std::string cuda = "libcuda.so.1";
  std::string level_zero = "libze_loader.so.1";
  Duration patience = 10s;  ///< For one library's answer.
};

enum class VendorLibrary { kNvml, kCuda, kLevelZero };

/// The GPUs that a vendor's library reports. `library` is a path, or a name that the loader knows;
/// `environment` that of the workers. kNotFound: there is no such library, or it fails. kTimeout:
/// it hangs. kUnavailable.
Result<Gpus> QueryLibrary(VendorLibrary vendor, const std::string& library,
                          const Environment& environment, Duration patience);

/// "0000:3b:00.0".
std::string PciAddress(unsigned domain, unsigned bus, unsigned device, unsigned function);

/// The children of a folder of the kernel whose names are `prefix` and a number ("card0", "node1"),
/// by number. None where the folder cannot be read. Blocks as long as the file system does.
std::map<int, std::filesystem::path> NumberedChildren(const std::filesystem::path& folder,
                                                      std::string_view prefix);

/// The value of --nproc-per-node: a number, "cpu" (see UsableCores()), "gpu", "xpu", or "auto": one
/// of these that the node has, in the order gpu, xpu, cpu. For a number and for "cpu" no library is
/// loaded and no device opened. kInvalid: no such word, or a number below 1. kNotFound: no such
/// device, or none that the environment leaves visible; the message names the variable. kTimeout: a
/// library hangs.
Result<size_t> CountWorkers(const std::string& word, const Environment& environment,
                            const DeviceSources& sources = {});

/// NVIDIA's or AMD's GPUs that workers with this environment see, in their numbering; at least one.
/// Errors as above.
Result<Gpus> VisibleGpus(const Environment& environment, const DeviceSources& sources = {});

}  // namespace muster
