// Folders of the kernel (/sys) whose children are numbered: "card0", "card1", "node0".
#pragma once

#include <filesystem>
#include <map>
#include <string_view>

namespace muster {

/// The children whose names are `prefix` and a number, by number. None where the folder cannot be
/// read. Blocks as long as the file system does.
std::map<int, std::filesystem::path> NumberedChildren(const std::filesystem::path& folder,
                                                      std::string_view prefix);

}  // namespace muster
