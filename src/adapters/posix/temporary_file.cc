#include "adapters/posix/temporary_file.h"

#include <stdlib.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string_view>

#include "base/text.h"

namespace muster {

Result<std::string> MakeTemporaryFile(const std::string& prefix) {
  const char* folder = getenv("TMPDIR");
  std::string path =
      Concat(std::string_view(folder == nullptr ? "/tmp" : folder), "/", prefix, "XXXXXX");
  const int fd = mkstemp(path.data());
  if (fd < 0) {
    const int number = errno;
    return Error{Code::kUnavailable, Concat("no temporary file like '", path,
                                            "': ", std::string_view(std::strerror(number)))};
  }
  close(fd);
  return path;
}

}  // namespace muster
