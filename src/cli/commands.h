// The subcommands of `muster`, one file each.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <vector>

#include "launch/options/launch_options.h"

namespace muster::cli {

/// What the program exits with; README and `--help` say the same.
enum ExitStatus : int {
  kOk = 0,
  kFailed = 1,    ///< It was tried and did not work.
  kUsage = 2,     ///< The call itself cannot be meant.
  kTimedOut = 3,  ///< What was waited for did not come.
  kNoServer = 4,  ///< Nobody answers there, or nobody does any more.
  kClosed = 5,    ///< The rendezvous is closed.
};

/// The chosen subcommand's work; its result is the exit status.
using Run = std::function<int()>;

/// Each adds its subcommand to `app` and, when the user chose it, sets `*run`.
void AddServe(CLI::App& app, Run* run);
/// Also takes the operation's words out of the program's `arguments`: CLI11 must not see them, for
/// it changes some ("[x]" becomes "x", "++" nothing).
void AddStore(CLI::App& app, Run* run, std::vector<std::string>* arguments);
void AddBench(CLI::App& app, Run* run);
void AddEtcd(CLI::App& app, Run* run);
void AddRendezvous(CLI::App& app, Run* run);
void AddSim(CLI::App& app, Run* run);
void AddStatus(CLI::App& app, Run* run);

/// `muster run`, whose command line is not for CLI11: what stands behind "run", and the program's
/// own path as it was called. Returns the exit status.
int RunJob(const std::vector<std::string>& arguments, const std::string& own_path,
           LaunchPersonality personality);
/// For --help.
void AddRun(CLI::App& app);

}  // namespace muster::cli
