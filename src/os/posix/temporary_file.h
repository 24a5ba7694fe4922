// A file of our own, under a unique name.
#pragma once

#include <string>

#include "base/result.h"

namespace muster {

/// An empty file in the system's temporary folder, readable by this user only. The caller
/// removes it. kUnavailable.
Result<std::string> MakeTemporaryFile(const std::string& prefix);

}  // namespace muster
