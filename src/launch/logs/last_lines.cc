#include "launch/logs/last_lines.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <string_view>

#include "base/text.h"
#include "launch/core/failure_report.h"
#include "os/posix/file_io.h"
#include "os/posix/owned_fd.h"

namespace muster {

std::vector<std::string> LastLines(const std::string& path, const LastLinesLimits& limits) {
  // O_NONBLOCK: a worker may have replaced the file by a FIFO, on which the report must not hang.
  const OwnedFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  struct stat found {};
  if (!file.is_open() || fstat(file.get(), &found) != 0 || !S_ISREG(found.st_mode)) return {};
  const auto size = static_cast<size_t>(found.st_size);
  std::string bytes(std::min(size, limits.bytes_max), '\0');
  const ssize_t count = ReadAt(file.get(), bytes.data(), bytes.size(), size - bytes.size());

  std::string_view rest(bytes.data(), static_cast<size_t>(std::max<ssize_t>(count, 0)));
  while (rest.ends_with('\n') || rest.ends_with('\r')) rest.remove_suffix(1);
  std::vector<std::string> lines;
  while (!rest.empty() && lines.size() < limits.lines_max) {
    const size_t end = rest.rfind('\n');
    const bool first = end == rest.npos;
    const bool incomplete = first && bytes.size() < size;
    // Half a line is worth showing only if it is all there is.
    if (incomplete && !lines.empty()) break;
    lines.push_back(Concat(incomplete ? "..." : "",
                           OneLine(PlainLine(first ? rest : rest.substr(end + 1), " "))));
    rest = rest.substr(0, first ? 0 : end);
  }
  std::reverse(lines.begin(), lines.end());
  return lines;
}

}  // namespace muster
