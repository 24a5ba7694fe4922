#include "os/posix/worker_launch.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdint>
#include <string_view>
#include <utility>

#include "base/text.h"
#include "os/posix/cores.h"
#include "os/posix/forking.h"
#include "os/posix/process_tree.h"
#include "os/posix/system_error.h"

namespace muster {

namespace {

constexpr int kReportFd = 3;  // in the new process, until the exec
static_assert(kInheritedFd == kReportFd + 1);
constexpr std::string_view kDefaultPath = "/bin:/usr/bin";

enum FailedStep : int32_t { kCgroup, kStreams, kAffinity, kExec };

struct Failure {
  int32_t step = kExec;
  int32_t number = 0;
};

bool IsDirectory(const std::string& path) {
  struct stat facts {};
  return stat(path.c_str(), &facts) == 0 && S_ISDIR(facts.st_mode);
}

Error CannotRun(const std::string& program, const std::string& path, int number) {
  Code code = Code::kInvalid;
  std::string_view why = ErrorText(number);
  if (IsOneOf(number, {ENOENT, ENOTDIR})) {
    code = Code::kNotFound;
    if (access(path.c_str(), F_OK) == 0) why = "its interpreter does not exist";
  } else if (IsOneOf(number, {EAGAIN, ENOMEM, EMFILE, ENFILE, EIO, ETXTBSY})) {
    code = Code::kUnavailable;
  } else if (number == EACCES && IsDirectory(path)) {
    why = ErrorText(EISDIR);
  }
  return MakeError(code, "cannot run '", Printable(program), "': ", why);
}

Error CannotStart(std::string_view what) {
  return SystemError(Concat("cannot start a worker: ", what));
}

std::string_view SearchPath(const std::vector<std::string>& environment) {
  constexpr std::string_view kName = "PATH=";
  const auto entry = std::ranges::find_if(
      environment, [&](const std::string& item) { return item.starts_with(kName); });
  return entry == environment.end() ? kDefaultPath : std::string_view(*entry).substr(kName.size());
}

/// Searches as execvpe() does, but before the fork, where it may take time and allocate.
Result<std::string> FindProgram(const std::string& program,
                                const std::vector<std::string>& environment) {
  if (program.find('/') != std::string::npos) return program;
  if (program.empty()) return CannotRun(program, "", ENOENT);
  std::string forbidden;
  for (const std::string_view folder : Split(SearchPath(environment), ':')) {
    // An empty folder is the current one.
    std::string path = Concat(folder, folder.empty() ? "" : "/", program);
    if (access(path.c_str(), F_OK) != 0) continue;
    if (faccessat(AT_FDCWD, path.c_str(), X_OK, AT_EACCESS) == 0 && !IsDirectory(path)) return path;
    if (forbidden.empty()) forbidden = std::move(path);
  }
  return CannotRun(program, forbidden, forbidden.empty() ? ENOENT : EACCES);
}

std::vector<std::string> MarkedEnvironment(std::vector<std::string> environment,
                                           const std::string& mark) {
  const std::string name = Concat(kMarkVariable, "=");
  for (std::string& entry : environment) {
    if (!entry.starts_with(name)) continue;
    entry += ',' + mark;  // the launcher is a worker itself: keep the outer mark
    return environment;
  }
  environment.push_back(name + mark);
  return environment;
}

std::vector<char*> Pointers(std::vector<std::string>& words) {
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  return pointers;
}

bool HasZeroByte(const std::vector<std::string>& words) {
  return std::ranges::any_of(
      words, [](const std::string& word) { return word.find('\0') != std::string::npos; });
}

Result<OwnedFd> OpenOutput(const std::string& path) {
  OwnedFd file(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0644));
  if (file.is_open()) file = MoveTo(std::move(file), kReportFd);
  if (file.is_open()) return file;
  const bool passes = IsOneOf(errno, {EMFILE, ENFILE, ENOMEM, ENOSPC, EIO, EINTR});
  return MakeError(passes ? Code::kUnavailable : Code::kInvalid,
                   "cannot write a worker's output to '", Printable(path, PATH_MAX),
                   "': ", ErrorText(errno));
}

void SendFailure(int fd, FailedStep step) {
  const Failure failure{.step = step, .number = errno};
  [[maybe_unused]] const ssize_t sent = write(fd, &failure, sizeof failure);
}

[[noreturn]] void Fail(FailedStep step) {
  SendFailure(kReportFd, step);
  _exit(127);
}

}  // namespace

Result<WorkerLaunch> WorkerLaunch::Prepare(const WorkerCommand& command, const std::string& mark) {
  if (command.arguments.empty()) return Error{Code::kInvalid, "no program to run"};
  if (HasZeroByte(command.arguments) || HasZeroByte(command.environment)) {
    return MakeError(Code::kInvalid, "cannot run '", Printable(command.arguments[0]),
                     "': a zero byte in its arguments or environment");
  }
  WorkerLaunch launch;
  MUSTER_TRY(launch.path_, FindProgram(command.arguments[0], command.environment));
  launch.arguments_ = command.arguments;
  launch.environment_ = MarkedEnvironment(command.environment, mark);
  launch.argument_pointers_ = Pointers(launch.arguments_);
  launch.environment_pointers_ = Pointers(launch.environment_);
  constexpr int kWordBits = CHAR_BIT * sizeof(unsigned long);
  for (const int cpu : command.cpus) {
    if (cpu < 0 || cpu >= kCpusMax) return MakeError(Code::kInvalid, "there is no CPU ", cpu);
    const auto word = static_cast<size_t>(cpu / kWordBits);
    if (launch.cpu_mask_.size() <= word) launch.cpu_mask_.resize(word + 1);
    launch.cpu_mask_[word] |= 1UL << (cpu % kWordBits);
  }
  if (!command.output_path.empty()) {
    MUSTER_TRY(launch.output_, OpenOutput(command.output_path));
  }
  // One file for both has one file position; two would overwrite each other.
  const bool is_one = command.error_path == command.output_path;
  if (!command.error_path.empty() && !is_one) {
    MUSTER_TRY(launch.error_, OpenOutput(command.error_path));
  }
  launch.error_fd_ = is_one ? launch.output_.get() : launch.error_.get();
  const int beyond = kInheritedFd + static_cast<int>(command.descriptors.size());
  for (const int fd : command.descriptors) {
    launch.inherited_.emplace_back(fcntl(fd, F_DUPFD_CLOEXEC, beyond));
    if (!launch.inherited_.back().is_open()) return CannotStart("a descriptor");
  }
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return CannotStart("pipe");
  launch.report_ = OwnedFd(ends[0]);
  launch.reporting_ = MoveTo(OwnedFd(ends[1]), kReportFd);
  if (!launch.reporting_.is_open()) return CannotStart("pipe");
  return launch;
}

Result<pid_t> WorkerLaunch::Fork(int cgroup_members) {
  const pid_t parent = getpid();
  const AllSignalsBlocked blocked;
  const pid_t pid = fork();
  if (pid == 0) Become(parent, cgroup_members);
  if (pid < 0) return CannotStart("fork");
  reporting_.Close();
  return pid;
}

// Between fork and exec: nothing here may take a lock that another thread held at the fork.
void WorkerLaunch::Become(pid_t parent, int cgroup_members) const {
  setsid();
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(127);  // the parent had ended before the line above
  ResetSignals();
  // It enters the group itself ("0"), before it has children. CLONE_INTO_CGROUP would be quicker,
  // but newer kernels kill a process that is created in a group that has been killed before.
  if (cgroup_members >= 0 && write(cgroup_members, "0", 1) != 1)
    SendFailure(reporting_.get(), kCgroup);
  const bool in_place = (!output_.is_open() || dup2(output_.get(), STDOUT_FILENO) >= 0) &&
                        (error_fd_ < 0 || dup2(error_fd_, STDERR_FILENO) >= 0);
  const int number = errno;
  if (reporting_.get() != kReportFd) dup3(reporting_.get(), kReportFd, O_CLOEXEC);
  int next = kInheritedFd;
  for (const OwnedFd& fd : inherited_) dup2(fd.get(), next++);
  CloseFrom(next);
  errno = number;
  if (!in_place) Fail(kStreams);
  if (!cpu_mask_.empty() &&
      sched_setaffinity(0, cpu_mask_.size() * sizeof(unsigned long),
                        reinterpret_cast<const cpu_set_t*>(cpu_mask_.data())) != 0) {
    Fail(kAffinity);
  }
  UnblockSignals();
  execve(path_.c_str(), argument_pointers_.data(), environment_pointers_.data());
  Fail(kExec);
}

Status WorkerLaunch::AwaitExec() {
  Failure failure;
  while (true) {
    const ssize_t got = read(report_.get(), &failure, sizeof failure);
    if (got < 0 && errno == EINTR) continue;
    if (got != static_cast<ssize_t>(sizeof failure)) return Ok();
    if (failure.step != kCgroup) break;
    was_refused_by_cgroup_ = true;  // the worker runs without the cgroup
  }
  if (failure.step == kStreams) {
    errno = failure.number;
    return CannotStart("its output");
  }
  if (failure.step == kAffinity) {
    return MakeError(Code::kInvalid, "cannot bind '", Printable(arguments_[0]),
                     "' to its CPUs: ", ErrorText(failure.number));
  }
  return CannotRun(arguments_[0], path_, failure.number);
}

}  // namespace muster
