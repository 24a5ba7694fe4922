// The command that starts a worker: the program of `muster run` as the arguments of an exec.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "base/result.h"

namespace muster {

struct CommandOptions {
  std::string python{};                  ///< The interpreter; not used with no_python.
  std::string script{};                  ///< A path, a module's name, or a program.
  std::vector<std::string> arguments{};  ///< What the user wrote after it.
  bool module = false;                   ///< The script is the name of a Python module.
  bool no_python = false;                ///< The script is a program.
  bool run_path = false;  ///< The script runs inside a bootstrap of ours. Wins over the other two.
  bool pass_local_rank = false;  ///< The older launcher: --local-rank=N directly after the script.

  /// kInvalid: no_python with module, which contradict each other, or with pass_local_rank, which a
  /// program would not understand.
  Status Validate() const;

  bool operator==(const CommandOptions&) const = default;
};

/// The program first: a path, or a name to be found on PATH. `$local_rank` and `${local_rank}` in
/// everything after it have become the number, and `$$` a `$`. `options` are valid.
std::vector<std::string> WorkerArguments(const CommandOptions& options, size_t local_rank);

/// What a report of failures calls the workers: the script or module as the user wrote it if it is
/// run by `own_python`, the interpreter that is ours without PYTHON_EXEC; otherwise the program.
std::string EntryPointName(const CommandOptions& options, const std::string& own_python);

}  // namespace muster
