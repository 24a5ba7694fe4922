// The GPUs that a vendor's library reports.
//
// Each query loads the library in a short-lived child process: it changes nothing in this process,
// and a library that hangs or crashes is an error, not the end of the launcher.
//
// Call it from a process of one thread, or of threads that hold no locks: it forks. It blocks, up
// to `patience`. An Error is one line.
#pragma once

#include <string>

#include "base/result.h"
#include "base/time.h"
#include "launch/core/environment.h"
#include "launch/core/visible_devices.h"

namespace muster {

enum class VendorLibrary { kNvml, kCuda, kLevelZero };

/// `library` is a path, or a name that the loader knows; `environment` that of the workers.
/// kNotFound: there is no such library, or it fails. kTimeout: it hangs. kUnavailable.
Result<Gpus> QueryLibrary(VendorLibrary vendor, const std::string& library,
                          const Environment& environment, Duration patience);

/// "0000:3b:00.0".
std::string PciAddress(unsigned domain, unsigned bus, unsigned device, unsigned function);

}  // namespace muster
