#include "os/posix/temporary_file.h"

#include <stdlib.h>
#include <unistd.h>

#include <filesystem>

#include "base/text.h"
#include "os/posix/system_error.h"

namespace muster {

Result<std::string> MakeTemporaryFile(const std::string& prefix) {
  std::error_code none;
  const std::filesystem::path folder = std::filesystem::temp_directory_path(none);
  if (none)
    return Error{Code::kUnavailable, Concat("no folder for temporary files: ", none.message())};
  std::string path = folder / (prefix + "XXXXXX");
  const int fd = mkstemp(path.data());
  if (fd < 0) {
    return SystemError(Concat("no temporary file like '", path, "'"));
  }
  close(fd);
  return path;
}

}  // namespace muster
