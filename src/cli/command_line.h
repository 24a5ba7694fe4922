// What the programs `muster` and `muster-lab` share: exit statuses, and how a command line is read
// and run.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
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

/// Adds a subcommand, which runs `body` with its flags. Bind options to the flags that are
/// returned; they live as long as `app` and `*run`.
template <typename Flags>
std::pair<CLI::App&, Flags&> AddCommand(CLI::App& app, Run* run, const std::string& name,
                                        const std::string& about, int (*body)(Flags&)) {
  const auto flags = std::make_shared<Flags>();
  CLI::App& command = *app.add_subcommand(name, about);
  command.callback([=] { *run = [=] { return body(*flags); }; });
  return {command, *flags};
}

/// What both programs set the same way: --version, and that a subcommand is required.
void Prepare(CLI::App& app);

/// Reads `arguments`, then calls `run`, which a subcommand of `app` has set. Failures are reported
/// under the name of `app`. Returns the exit status.
int ReadAndRun(CLI::App& app, std::vector<std::string> arguments, const Run& run);

/// One line on stdout, in ASCII: texts of other nodes must not control a terminal, and may be no
/// UTF-8.
void PrintJson(const nlohmann::ordered_json& line);

/// Prints a result as JSON or as text.
void PrintResult(bool as_json, const nlohmann::ordered_json& json, const std::string& text);

/// `status`, or kFailed instead of kOk if standard output could not be written.
int Finish(int status, const char* program);

}  // namespace muster::cli
