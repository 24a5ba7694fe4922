#include "launch/workers/interpreter.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "base/parse.h"
#include "base/text.h"

namespace muster {

namespace {

constexpr std::string_view kNames[] = {"python3", "python"};

bool IsProgram(const std::string& path) {
  struct stat facts {};
  return stat(path.c_str(), &facts) == 0 && S_ISREG(facts.st_mode) &&
         access(path.c_str(), X_OK) == 0;
}

// An empty one is the current folder, as for a shell.
std::vector<std::string> FoldersOfPath(const Environment& environment) {
  std::vector<std::string> folders;
  // What execvp() takes where there is no PATH at all.
  const std::string path = Variable(environment, "PATH").value_or("/bin:/usr/bin");
  for (const std::string_view folder : Split(path, ':'))
    folders.emplace_back(folder.empty() ? "." : folder);
  return folders;
}

std::string FolderOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == path.npos) return "";
  return slash == 0 ? "/" : path.substr(0, slash);
}

std::string InFolder(const std::string& folder, std::string_view name) {
  return Concat(folder, folder.ends_with('/') ? "" : "/", name);
}

}  // namespace

std::string UnresolvedOwnPath(const std::string& argument_0, const Environment& environment) {
  if (argument_0.empty() || argument_0.find('/') != argument_0.npos) return argument_0;
  for (const std::string& folder : FoldersOfPath(environment)) {
    if (const std::string path = InFolder(folder, argument_0); IsProgram(path)) return path;
  }
  return "";
}

Result<std::string> FindPython(const Environment& environment, const std::string& own_path,
                               const std::string& resolved_own_path, const std::string& option) {
  if (const std::string named = VariableOrEmpty(environment, "PYTHON_EXEC"); !named.empty())
    return named;
  if (!option.empty()) return option;
  std::vector<std::string> tried;
  const auto add = [&](const std::string& folder, std::string_view name) {
    std::string path = InFolder(folder, name);
    if (std::ranges::find(tried, path) == tried.end()) tried.push_back(std::move(path));
  };
  for (const std::string* const path : {&own_path, &resolved_own_path}) {
    const std::string folder = FolderOf(*path);
    if (folder.empty()) continue;
    for (const std::string_view name : kNames) add(folder, name);
  }
  for (const char* const variable : {"VIRTUAL_ENV", "CONDA_PREFIX"}) {
    const std::string prefix = VariableOrEmpty(environment, variable);
    if (!prefix.empty()) add(prefix, "bin/python");
  }
  if (const auto found = std::ranges::find_if(tried, IsProgram); found != tried.end())
    return *found;
  // One name on all of PATH before the other: an old `python` early on it must not win.
  const std::vector<std::string> folders = FoldersOfPath(environment);
  for (const std::string_view name : kNames) {
    for (const std::string& folder : folders) {
      if (const std::string path = InFolder(folder, name); IsProgram(path)) return path;
    }
  }
  constexpr size_t kShown = 8;
  return Error{Code::kNotFound,
               Concat("no Python to run the workers with: there is no ", ListOf(tried, kShown),
                      tried.empty() ? "" : ", and no ", "python3 or python on PATH='",
                      Printable(VariableOrEmpty(environment, "PATH"), 500),
                      "'; set PYTHON_EXEC or give --python")};
}

}  // namespace muster
