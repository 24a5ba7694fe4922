// The GPUs that a vendor's library reports.
//
// Each query loads the library in a short-lived child process: it changes nothing in this process,
// and a library that hangs or crashes is an error, not the end of the launcher.
//
// Call it from a process of one thread, or of threads that hold no locks: it forks. It blocks, up
// to `patience`. An Error is one line.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "base/time.h"
#include "launch/core/environment.h"

namespace muster {

struct Gpu {
  std::string uuid{};  ///< "GPU-8d2a..."; may be empty, as the driver does not always report it.
  std::string pci{};   ///< "0000:3b:00.0", as the kernel names its folder; likewise.

  bool operator==(const Gpu&) const = default;
};

enum class VendorLibrary { kNvml, kCuda, kLevelZero };

/// `library` is a path, or a name that the loader knows; `environment` that of the workers.
/// kNotFound: there is no such library, or it fails. kTimeout: it hangs. kUnavailable.
Result<std::vector<Gpu>> QueryLibrary(VendorLibrary vendor, const std::string& library,
                                      const Environment& environment, Duration patience);

/// "0000:3b:00.0".
std::string PciAddress(unsigned domain, unsigned bus, unsigned device, unsigned function);

}  // namespace muster
