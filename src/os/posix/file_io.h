// Reading and writing whole pieces through a descriptor. Any thread; interrupted calls are
// repeated.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "os/posix/owned_fd.h"

namespace muster {

/// False: errno says why, and part of `bytes` may have been written.
bool WriteAll(int fd, std::string_view bytes);

/// Puts a new file with these bytes in the place of `path`, if there is one, in one step: a reader
/// finds the old content or the new. Not open: errno says why, and nothing has changed.
OwnedFd ReplaceFile(const std::string& path, std::string_view bytes, mode_t mode);

/// As many bytes as there are, up to `size`; -1 and errno if nothing can be read.
ssize_t ReadAt(int fd, char* bytes, size_t size, uint64_t offset);

/// The content of a file, at most `bytes_max` of it. Nothing: it cannot be opened, or nothing of it
/// can be read; errno says why.
std::optional<std::string> ReadUpTo(const std::string& path, size_t bytes_max = size_t{1} << 20);
/// The same from where the descriptor stands.
std::optional<std::string> ReadUpTo(int fd, size_t bytes_max);

}  // namespace muster
