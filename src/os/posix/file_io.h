// Reading and writing whole pieces through a descriptor. Any thread; interrupted calls are
// repeated.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace muster {

/// False: errno says why, and part of `bytes` may have been written.
bool WriteAll(int fd, std::string_view bytes);

/// As many bytes as there are, up to `size`; -1 and errno if nothing can be read.
ssize_t ReadAt(int fd, char* bytes, size_t size, uint64_t offset);

/// The content of a file, at most about `bytes_max` of it. Nothing: it cannot be opened.
std::optional<std::string> ReadUpTo(const std::string& path, size_t bytes_max = size_t{1} << 20);

}  // namespace muster
