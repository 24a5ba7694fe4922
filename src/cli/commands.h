// The subcommands of `muster`, one file each.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "cli/command_line.h"
#include "launch/options/launch_options.h"

namespace muster::cli {

/// Each adds its subcommand to `app` and, when the user chose it, sets `*run`.
void AddServe(CLI::App& app, Run* run);
/// Also removes the operation's words from the program's `arguments`: CLI11 changes some words
/// ("[x]" becomes "x", "++" nothing).
void AddStore(CLI::App& app, Run* run, std::vector<std::string>* arguments);
void AddEtcd(CLI::App& app, Run* run);
void AddRendezvous(CLI::App& app, Run* run);
void AddStatus(CLI::App& app, Run* run);

/// `muster run`, whose command line CLI11 does not parse: the words after "run", and the path of
/// the program. Returns the exit status.
int RunJob(const std::vector<std::string>& arguments, const std::string& own_path,
           LaunchPersonality personality);
/// For --help.
void AddRun(CLI::App& app);

}  // namespace muster::cli
