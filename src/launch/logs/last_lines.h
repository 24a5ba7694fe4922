// The end of a log, for reports that a person reads.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace muster {

struct LastLinesLimits {
  size_t lines_max = 20;
  size_t bytes_max = 8 * 1024;  ///< Of the file; a line that began before is cut or left out.
};

/// The last lines of the file, oldest first, without their ends, fit for a report: of text that was
/// overwritten with '\r' only the last state is shown, colours are removed, tabs become blanks, and
/// bytes that do not print are \xNN. Empty lines at the end do not count. Empty if there is no such
/// file, or it cannot be read: a report does not mention that.
std::vector<std::string> LastLines(const std::string& path, const LastLinesLimits& limits = {});

}  // namespace muster
