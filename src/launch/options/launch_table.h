// The options of `muster run`: their names, kinds, defaults and variables, and the help made of
// them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "launch/options/arguments.h"

namespace muster {

/// torchrun, or the older torch.distributed.launch: that one knows --use-env, and without it puts
/// each worker's local rank into its command line.
enum class LaunchPersonality { kRun, kLegacy };

inline constexpr std::string_view kLaunchUsage =
    "usage: muster run [options] script [arguments of the script]";

std::vector<ArgumentSpec> LaunchTable(LaunchPersonality personality);

/// At most 100 columns wide; ends without a newline.
std::string LaunchHelp(LaunchPersonality personality = LaunchPersonality::kRun);

}  // namespace muster
