#include "launch/workers/interpreter.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "base/text.h"

namespace muster {

namespace {

bool IsProgram(const std::string& path) {
  struct stat facts {};
  return stat(path.c_str(), &facts) == 0 && S_ISREG(facts.st_mode) &&
         access(path.c_str(), X_OK) == 0;
}

// An empty one is the current folder, as for a shell.
std::vector<std::string> FoldersOfPath(const Environment& environment) {
  std::vector<std::string> folders;
  const auto found = environment.find("PATH");
  // What execvp() takes where there is no PATH at all.
  std::string_view rest = "/bin:/usr/bin";
  if (found != environment.end()) rest = found->second;
  while (true) {
    const size_t end = rest.find(':');
    const std::string_view folder = rest.substr(0, end);
    folders.emplace_back(folder.empty() ? "." : folder);
    if (end == rest.npos) return folders;
    rest.remove_prefix(end + 1);
  }
}

std::string FolderOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == path.npos) return "";
  return slash == 0 ? "/" : path.substr(0, slash);
}

std::string InFolder(const std::string& folder, std::string_view name) {
  return Concat(folder, folder.ends_with('/') ? "" : "/", name);
}

class Search {
 public:
  /// True if it is there; then found() is it.
  bool Try(const std::string& path) {
    if (IsProgram(path)) {
      found_ = path;
      return true;
    }
    if (std::find(tried_.begin(), tried_.end(), path) == tried_.end()) tried_.push_back(path);
    return false;
  }
  bool TryBothNames(const std::string& folder) {
    return Try(InFolder(folder, "python3")) || Try(InFolder(folder, "python"));
  }

  const std::string& found() const { return found_; }
  const std::vector<std::string>& tried() const { return tried_; }

 private:
  std::string found_;
  std::vector<std::string> tried_;
};

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
  Search search;
  for (const std::string* const path : {&own_path, &resolved_own_path}) {
    const std::string folder = FolderOf(*path);
    if (!folder.empty() && search.TryBothNames(folder)) return search.found();
  }
  for (const char* const variable : {"VIRTUAL_ENV", "CONDA_PREFIX"}) {
    const std::string prefix = VariableOrEmpty(environment, variable);
    if (!prefix.empty() && search.Try(InFolder(prefix, "bin/python"))) return search.found();
  }
  // One name on all of PATH before the other: an old `python` early on it must not win.
  const std::vector<std::string> folders = FoldersOfPath(environment);
  for (const std::string_view name : {"python3", "python"}) {
    for (const std::string& folder : folders) {
      if (const std::string path = InFolder(folder, name); IsProgram(path)) return path;
    }
  }
  constexpr size_t kShown = 8;
  std::string tried = ListOf(search.tried(), kShown);
  return Error{Code::kNotFound,
               Concat("no Python to run the workers with: there is no ", tried,
                      tried.empty() ? "" : ", and no ", "python3 or python on PATH='",
                      Printable(VariableOrEmpty(environment, "PATH"), 500),
                      "'; set PYTHON_EXEC or give --python")};
}

}  // namespace muster
