// The subcommands of `muster-lab`.
#pragma once

#include <CLI/CLI.hpp>

#include "cli/command_line.h"

namespace muster::cli {

/// Each adds its subcommand to `app` and, when the user chose it, sets `*run`.
void AddBench(CLI::App& app, Run* run);
void AddSim(CLI::App& app, Run* run);

}  // namespace muster::cli
