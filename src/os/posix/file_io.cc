#include "os/posix/file_io.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <filesystem>

#include "base/text.h"
#include "os/posix/entropy.h"
#include "os/posix/system_error.h"

namespace muster {

bool WriteAll(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return false;
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return true;
}

OwnedFd ReplaceFile(const std::string& path, std::string_view bytes, mode_t mode) {
  // The name is unpredictable, and O_EXCL follows no link: other users may write to the folder.
  const std::string draft = Concat(path, ".", RandomFromKernel(), ".new");
  OwnedFd file(open(draft.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode));
  if (!file.is_open()) return file;
  if (WriteAll(file.get(), bytes) && rename(draft.c_str(), path.c_str()) == 0) return file;
  const int why = errno;
  unlink(draft.c_str());
  file.Close();
  errno = why;
  return file;
}

ssize_t ReadAt(int fd, char* bytes, size_t size, uint64_t offset) {
  size_t filled = 0;
  while (filled < size) {
    const ssize_t count =
        pread(fd, bytes + filled, size - filled, static_cast<off_t>(offset + filled));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && filled == 0) return -1;
    if (count <= 0) break;
    filled += static_cast<size_t>(count);
  }
  return static_cast<ssize_t>(filled);
}

std::optional<std::string> ReadUpTo(const std::string& path, size_t bytes_max) {
  const OwnedFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  return file.is_open() ? ReadUpTo(file.get(), bytes_max) : std::nullopt;
}

std::optional<std::string> ReadUpTo(int fd, size_t bytes_max) {
  std::string text;
  std::array<char, 16'384> chunk;
  while (text.size() < bytes_max) {
    const ssize_t got = read(fd, chunk.data(), std::min(chunk.size(), bytes_max - text.size()));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && text.empty()) return std::nullopt;
    if (got <= 0) break;
    text.append(chunk.data(), static_cast<size_t>(got));
  }
  return text;
}

Result<std::string> MakeTemporaryFile(const std::string& prefix) {
  std::error_code none;
  const std::filesystem::path folder = std::filesystem::temp_directory_path(none);
  if (none) return MakeError(Code::kUnavailable, "no folder for temporary files: ", none.message());
  std::string path = folder / (prefix + "XXXXXX");
  const int fd = mkstemp(path.data());
  if (fd < 0) return SystemError(Concat("no temporary file like '", path, "'"));
  close(fd);
  return path;
}

}  // namespace muster
