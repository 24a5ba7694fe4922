// Reports of failures: a line for people, an object for programs, and the exit status.
#pragma once

#include <exception>
#include <string>
#include <utility>

#include "base/result.h"
#include "cli/command_line.h"

namespace muster::cli {

/// The exit status after this error.
ExitStatus StatusOf(const std::exception& error);

/// Reports it on stderr, under the program's name, and, if the user asked for JSON, also on stdout:
/// {"error": "...", "status": N}. Returns the status.
int ReportError(const std::string& what, int status, bool json,
                const std::string& program = "muster");
int ReportError(const std::exception& error, bool json);

/// The value; a failure ends the command with one line that says why, and with the status for its
/// code.
template <typename T>
T OrExit(Result<T> result, const std::string& what);
[[noreturn]] void ThrowAsCliError(const Error& error, const std::string& what);

template <typename T>
T OrExit(Result<T> result, const std::string& what) {
  if (!result) ThrowAsCliError(result.error(), what);
  return std::move(result).value();
}

}  // namespace muster::cli
