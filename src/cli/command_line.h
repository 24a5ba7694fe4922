// What the programs `muster` and `muster-lab` share: exit statuses, and how a command line is read
// and run.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <vector>

namespace muster::cli {

/// What the programs exit with; as in README and `--help`.
enum ExitStatus : int {
  kOk = 0,
  kFailed = 1,    ///< The operation failed.
  kUsage = 2,     ///< Usage error: the command line is wrong.
  kTimedOut = 3,  ///< What was waited for did not come.
  kNoServer = 4,  ///< No server answers there, or it has stopped answering.
  kClosed = 5,    ///< The rendezvous is closed.
};

/// The chosen subcommand's work; its result is the exit status.
using Run = std::function<int()>;

/// What both programs set the same way: --version, and that a subcommand is required.
void Prepare(CLI::App& app);

/// Reads `arguments`, then calls `run`, which a subcommand of `app` has set. Failures are reported
/// under the name of `app`. Returns the exit status.
int ReadAndRun(CLI::App& app, std::vector<std::string> arguments, const Run& run);

/// `status`, or kFailed instead of kOk if standard output could not be written.
int Finish(int status, const char* program);

}  // namespace muster::cli
