// How a failure is told: a line for people, an object for programs, and the exit status.
#pragma once

#include <exception>
#include <string>

#include "cli/commands.h"

namespace muster::cli {

/// What the program exits with after this.
ExitStatus StatusOf(const std::exception& error);

/// Says it on stderr and, if the user asked for JSON, on stdout, too:
/// {"error": "...", "status": N}. Returns the status.
int Complain(const std::string& what, int status, bool json);
int Complain(const std::exception& error, bool json);

}  // namespace muster::cli
