// The Python that runs the workers. torchrun is a Python program and uses its own interpreter;
// muster finds the same one where it is installed in the same environment.
#pragma once

#include <string>

#include "base/result.h"
#include "launch/core/environment.h"

namespace muster {

/// The path by which this program was started, with its symbolic links: `argument_0` if that has a
/// folder in it, otherwise where PATH leads to. Empty if that is nowhere.
std::string UnresolvedOwnPath(const std::string& argument_0, const Environment& environment);

/// In this order: PYTHON_EXEC and `option` (--python), both unchanged and without a check
/// that they exist; python3, then python, next to `own_path`, if that lies in an environment;
/// bin/python of the active environment (VIRTUAL_ENV, CONDA_PREFIX); python3, then python, next to
/// `own_path` and to `resolved_own_path` (/proc/self/exe), and on PATH. Empty values are skipped.
///
/// Symbolic links stay as they are: Python knows by its path to which virtual environment it
/// belongs. For the name of a failed worker's entry point, the interpreter that is "our own" is the
/// one that is found without PYTHON_EXEC in `environment`. kNotFound, with all that was tried.
Result<std::string> FindPython(const Environment& environment, const std::string& own_path,
                               const std::string& resolved_own_path, const std::string& option);

}  // namespace muster
