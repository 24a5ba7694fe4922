// Reading and writing whole pieces through a descriptor. Any thread; interrupted calls are
// repeated.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "os/posix/owned_fd.h"

namespace muster {

/// False: errno contains the reason, and part of `bytes` may have been written.
bool WriteAll(int fd, std::string_view bytes);

/// Replaces `path` (or creates it) with a new file of these bytes, in one step: a reader finds the
/// old content or the new. Not open: errno contains the reason, and nothing has changed.
OwnedFd ReplaceFile(const std::string& path, std::string_view bytes, mode_t mode);

/// Reads as many bytes as there are, up to `size`; -1 and errno if nothing can be read.
ssize_t ReadAt(int fd, char* bytes, size_t size, uint64_t offset);

/// The content of a file, at most `bytes_max` of it. Nothing: it cannot be opened, or nothing of it
/// can be read; errno contains the reason.
std::optional<std::string> ReadUpTo(const std::string& path, size_t bytes_max = size_t{1} << 20);
/// The same, from the descriptor's file position.
std::optional<std::string> ReadUpTo(int fd, size_t bytes_max);

/// Creates an empty file with a unique name in the system's temporary folder, readable by this user
/// only, and returns its path. The caller removes it. kUnavailable.
Result<std::string> MakeTemporaryFile(const std::string& prefix);

}  // namespace muster
