// A new file with a unique name.
#pragma once

#include <string>

#include "base/result.h"

namespace muster {

/// Creates an empty file in the system's temporary folder, readable by this user only, and returns
/// its path. The caller removes it. Returns kUnavailable on failure.
Result<std::string> MakeTemporaryFile(const std::string& prefix);

}  // namespace muster
