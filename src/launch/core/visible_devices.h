// Which of a node's accelerators its workers see: reads the lists in the environment as the drivers
// do.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"

namespace muster {

struct Gpu {
  std::string uuid{};  ///< "GPU-8d2a..."; may be empty, as the driver does not always report it.
  std::string pci{};   ///< "0000:3b:00.0", as the kernel names its folder; likewise.

  bool operator==(const Gpu&) const = default;
};
/// In the order of their driver, or of the workers that see them.
using Gpus = std::vector<Gpu>;

struct VisibleDevices {
  Gpus gpus{};
  bool ask_driver = false;  ///< Parts of devices (MIG) are named, which only the driver knows.

  bool operator==(const VisibleDevices&) const = default;
};

/// Through CUDA_VISIBLE_DEVICES. Not set: all of them. Numbers, or UUIDs and their beginnings, are
/// used up to the first one that names no device; if a device is named twice, none is visible.
VisibleDevices CudaVisible(const std::optional<std::string>& variable, const Gpus& all);

struct RocmVariables {
  std::optional<std::string> rocr{};  ///< ROCR_VISIBLE_DEVICES
  std::optional<std::string> hip{};   ///< HIP_VISIBLE_DEVICES
  /// CUDA_VISIBLE_DEVICES: used by HIP if its own variable is not set.
  std::optional<std::string> cuda{};
};

/// The first variable chooses among the devices, and the second among those that it has left. Both
/// may mix numbers and UUIDs.
Gpus RocmVisible(const RocmVariables& variables, const Gpus& all);

/// The only device that a worker is to see: its entry in CUDA_VISIBLE_DEVICES, or its own number
/// where that is not set. kInvalid: the list is too short.
Result<std::string> OnlyDeviceOf(size_t worker, const std::optional<std::string>& visible);

}  // namespace muster
