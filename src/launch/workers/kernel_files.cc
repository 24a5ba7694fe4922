#include "launch/workers/kernel_files.h"

#include <string>
#include <system_error>

#include "base/parse.h"
#include "base/text.h"

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

}  // namespace muster
