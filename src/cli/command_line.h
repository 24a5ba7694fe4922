// What the programs `muster` and `muster-lab` share: how a command line is read and run, and how
// failures are reported: a line for people, an object for programs, and the exit status.
//
// CLI11's own checks of numbers accept nan in every range and turn -1 into 18446744073709551615;
// these report what was given and what is allowed.
#pragma once

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/time.h"

namespace muster::cli {

/// What the programs exit with; as in README and `--help`.
enum ExitStatus : int {
  kOk = 0,
  kFailed = 1,    ///< The operation failed.
  kUsage = 2,     ///< Usage error: the command line is wrong.
  kTimedOut = 3,  ///< The awaited key, value or event did not arrive in time.
  kNoServer = 4,  ///< No server answers, or it has stopped answering.
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

/// For Option::transform(): a whole number, decimal, from `least` to `most`.
CLI::Validator WholeNumber(uint64_t least, uint64_t most);

/// For Option::transform(): a number of bytes, 0 or at least `least`: 1048576, 1024KiB, 1MiB, 1GiB.
CLI::Validator Bytes(uint64_t least);

/// For Option::transform(): a number of seconds, with or without a fraction. Both ends are
/// allowed; `least` is 0 or at least a millisecond.
CLI::Validator SecondsFrom(double least, double most);

/// Add an option with such a value; the help shows the one it has now as the default.
template <typename T>
void AddWhole(CLI::App& command, const std::string& name, T& value, uint64_t least, uint64_t most,
              const std::string& help) {
  command.add_option(name, value, help)->transform(WholeNumber(least, most))->capture_default_str();
}
void AddSeconds(CLI::App& command, const std::string& name, double& value, double least,
                double most, const std::string& help);
void AddText(CLI::App& command, const std::string& name, std::string& value,
             const std::string& help);

/// std::invalid_argument for what SecondsFrom() refuses.
Duration ToDuration(double seconds);
/// The same, rounded.
std::chrono::milliseconds ToMilliseconds(double seconds);

/// The longest time that a flag can have: 31 years; the sum of two does not overflow.
inline constexpr double kSecondsMax = 1e9;
inline constexpr auto kWholeSecondsMax = static_cast<uint64_t>(kSecondsMax);

/// Settings that both programs share: --version, and that a subcommand is required.
void Prepare(CLI::App& app);

/// Reads `arguments`, then calls `run`, which a subcommand of `app` has set. Failures are reported
/// under the name of `app`. Returns the exit status.
int ReadAndRun(CLI::App& app, std::vector<std::string> arguments, const Run& run);

/// One line on stdout, in ASCII: texts of other nodes must not control a terminal, and may be no
/// UTF-8.
void PrintJson(const nlohmann::ordered_json& line);

/// Prints a result as JSON or as text.
void PrintResult(bool as_json, const nlohmann::ordered_json& json, const std::string& text);

/// The exit status after this error.
ExitStatus StatusOf(const std::exception& error);

/// Reports it on stderr, under the program's name, and, if the user asked for JSON, also on stdout:
/// {"error": "...", "status": N}. Returns the status.
int ReportError(const std::string& what, int status, bool json,
                const std::string& program = "muster");

/// The value; a failure ends the command with one line that says why, and with the status for its
/// code.
[[noreturn]] void ThrowAsCliError(const Error& error, const std::string& what);
template <typename T>
T OrExit(Result<T> result, const std::string& what) {
  if (!result) ThrowAsCliError(result.error(), what);
  return std::move(result).value();
}

/// `status`, or kFailed instead of kOk if standard output could not be written.
int Finish(int status, const char* program);

}  // namespace muster::cli
