#include "launch/core/worker_command.h"

#include <string_view>

#include "base/text.h"
#include "launch/core/environment.h"

namespace muster {

namespace {

// Runs the path in its first argument as __main__. If PyTorch is installed, an exception that
// escapes the script is written to the worker's error file. Before anything is imported, the folder
// of the script replaces the current folder, which -c puts first: a module in the current folder
// must not shadow PyTorch.
//
// A worker whose script has succeeded waits for the other workers of its node before anything is
// torn down, as torchrun's do: libraries abort when their peers are gone. All workers inherit both
// ends of a pipe (kInheritedFd), and nothing is ever written to it: its end comes when each of them
// has closed the writing end, or has died. Processes that a worker forks close theirs at once.
constexpr std::string_view kRunPath = R"(import os, runpy, sys
sys.argv = sys.argv[1:]
if sys.path and not sys.path[0]:
    sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[0]))
ends = [4, 5] if os.environ.get("LOCAL_WORLD_SIZE", "1") != "1" else []
for end in ends:
    os.set_inheritable(end, False)
def drop_ends():
    while ends:
        try:
            os.close(ends.pop())
        except OSError:
            pass
os.register_at_fork(after_in_child=drop_ends)
try:
    from torch.distributed.elastic.multiprocessing.errors import record
except ImportError:
    def record(entry):
        return entry
@record
def run_script_path():
    runpy.run_path(sys.argv[0], run_name="__main__")
try:
    run_script_path()
except SystemExit as exit:
    if exit.code:
        raise
if ends:
    try:
        os.close(ends.pop())
        os.read(ends[0], 1)
    except OSError:
        pass
)";

// The name of the bootstrap's function, here and in PyTorch.
constexpr std::string_view kRunPathName = "run_script_path";

// After the program and, with run_path, the bootstrap: as the user wrote them.
std::vector<std::string> WordsAfterProgram(const CommandOptions& options) {
  std::vector<std::string> words;
  if (!options.run_path && !options.no_python) {
    words.push_back("-u");  // Output must not stay in a buffer that is lost when the worker dies.
    if (options.module) words.push_back("-m");
  }
  if (options.run_path || !options.no_python) words.push_back(options.script);
  if (options.pass_local_rank) words.push_back("--local-rank=${local_rank}");
  words.insert(words.end(), options.arguments.begin(), options.arguments.end());
  return words;
}

const std::string& ProgramOf(const CommandOptions& options) {
  return options.no_python && !options.run_path ? options.script : options.python;
}

}  // namespace

Status CommandOptions::Validate() const {
  if (no_python && pass_local_rank) {
    return Error{Code::kInvalid,
                 "--no-python needs --use-env: a program that is not Python finds its rank in "
                 "LOCAL_RANK, not in --local-rank"};
  }
  if (no_python && module && !run_path) {
    return Error{Code::kInvalid,
                 "--no-python and --module: a module needs Python; leave out one of the two"};
  }
  return Ok();
}

std::vector<std::string> WorkerArguments(const CommandOptions& options, size_t local_rank) {
  std::vector<std::string> words{ProgramOf(options)};
  if (options.run_path) words.insert(words.end(), {"-u", "-c", std::string(kRunPath)});
  for (const std::string& word : WordsAfterProgram(options))
    words.push_back(Substituted(word, {{"local_rank", Concat(local_rank)}}));
  return words;
}

std::string EntryPointName(const CommandOptions& options, const std::string& own_python) {
  if (options.run_path) return std::string(kRunPathName);
  if (options.no_python || options.python != own_python) return ProgramOf(options);
  for (const std::string& word : WordsAfterProgram(options)) {
    if (!word.starts_with('-')) return word;
  }
  return ProgramOf(options);
}

}  // namespace muster
