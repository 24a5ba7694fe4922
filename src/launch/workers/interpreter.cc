#include "launch/workers/interpreter.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <vector>

#include "base/text.h"

namespace muster {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view kNames[] = {"python3", "python"};

bool IsProgram(const std::string& path) {
  std::error_code failure;
  return fs::is_regular_file(path, failure) && access(path.c_str(), X_OK) == 0;
}

/// The program of this name on PATH, or nothing.
std::string OnPath(const Environment& environment, std::string_view name) {
  // What execvp() takes where there is no PATH at all.
  const std::string folders = Variable(environment, "PATH").value_or("/bin:/usr/bin");
  for (const std::string_view folder : Split(folders, ':')) {
    // An empty one is the current folder, as for a shell.
    const std::string path = fs::path(folder.empty() ? "." : folder) / name;
    if (IsProgram(path)) return path;
  }
  return "";
}

/// Whether the program at this path lies in a virtual environment or one of conda. The path is
/// taken as it is written: a link to a program of an environment does not lie in it.
bool IsInEnvironment(const std::string& path) {
  std::error_code failure;
  const fs::path prefix =
      fs::absolute(path, failure).lexically_normal().parent_path().parent_path();
  return !path.empty() &&
         (fs::exists(prefix / "pyvenv.cfg", failure) || fs::exists(prefix / "conda-meta", failure));
}

}  // namespace

std::string UnresolvedOwnPath(const std::string& argument_0, const Environment& environment) {
  if (argument_0.empty() || argument_0.find('/') != argument_0.npos) return argument_0;
  return OnPath(environment, argument_0);
}

Result<std::string> FindPython(const Environment& environment, const std::string& own_path,
                               const std::string& resolved_own_path, const std::string& option) {
  if (const std::string named = VariableOrEmpty(environment, "PYTHON_EXEC"); !named.empty())
    return named;
  if (!option.empty()) return option;
  std::vector<std::string> tried;
  const auto add = [&](const fs::path& folder, std::string_view name) {
    const std::string path = folder / name;
    if (!folder.empty() && std::ranges::find(tried, path) == tried.end()) tried.push_back(path);
  };
  const auto add_beside = [&](const fs::path& program) {
    for (const std::string_view name : kNames) add(program.parent_path(), name);
  };
  if (IsInEnvironment(own_path)) add_beside(own_path);
  for (const char* const variable : {"VIRTUAL_ENV", "CONDA_PREFIX"})
    add(VariableOrEmpty(environment, variable), "bin/python");
  add_beside(own_path);
  add_beside(resolved_own_path);
  if (const auto found = std::ranges::find_if(tried, IsProgram); found != tried.end())
    return *found;
  // Searches all of PATH for one name before the other: an old `python` early on PATH must not win.
  for (const std::string_view name : kNames) {
    if (const std::string path = OnPath(environment, name); !path.empty()) return path;
  }
  constexpr size_t kShown = 8;
  return MakeError(
      Code::kNotFound, "no Python to run the workers with: there is no ", ListOf(tried, kShown),
      tried.empty() ? "" : ", and no ", "python3 or python on PATH='",
      Printable(VariableOrEmpty(environment, "PATH"), 500), "'; set PYTHON_EXEC or give --python");
}

}  // namespace muster
