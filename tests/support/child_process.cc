#include "support/child_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <stdexcept>
#include <utility>

namespace muster::test {

namespace {

void CloseIfOpen(int& fd) {
  if (fd >= 0) close(std::exchange(fd, -1));
}

}  // namespace

ChildProcess ChildProcess::Fork(const std::function<int(int input, int output)>& body) {
  int down[2];  // to the child
  int up[2];    // from it
  if (pipe2(down, O_CLOEXEC) != 0 || pipe2(up, O_CLOEXEC) != 0) throw std::runtime_error("pipe");
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid < 0) throw std::runtime_error("fork");
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
    close(down[1]);
    close(up[0]);
    int status = 1;
    try {
      status = body(down[0], up[1]);
    } catch (const std::exception& failure) {
      dprintf(STDERR_FILENO, "child process: %s\n", failure.what());
    }
    _exit(status);  // the parent's clean-up must not run here
  }
  close(down[0]);
  close(up[1]);
  return ChildProcess(pid, down[1], up[0]);
}

ChildProcess ChildProcess::Run(const std::vector<std::string>& command) {
  std::vector<char*> arguments;
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  // The child may not allocate: at the fork, another thread may have held a lock of the allocator,
  // and AddressSanitizer's locks stay locked permanently in the child.
  return Fork([&arguments](int input, int output) {
    dup2(input, STDIN_FILENO);
    dup2(output, STDOUT_FILENO);
    execvp(arguments[0], arguments.data());
    return 127;
  });
}

ChildProcess::ChildProcess(ChildProcess&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      to_child_(std::exchange(other.to_child_, -1)),
      from_child_(std::exchange(other.from_child_, -1)),
      unread_(std::move(other.unread_)) {}

ChildProcess::~ChildProcess() {
  if (pid_ > 0) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  CloseIfOpen(to_child_);
  CloseIfOpen(from_child_);
}

std::optional<std::string> ChildProcess::ReadLine(milliseconds patience) {
  const Clock::time_point give_up = Clock::now() + patience;
  while (true) {
    if (const size_t end = unread_.find('\n'); end != std::string::npos) {
      std::string line = unread_.substr(0, end);
      unread_.erase(0, end + 1);
      return line;
    }
    const auto left = std::chrono::duration_cast<milliseconds>(give_up - Clock::now()).count();
    pollfd item{.fd = from_child_, .events = POLLIN, .revents = 0};
    if (left <= 0 || poll(&item, 1, static_cast<int>(left)) <= 0) return std::nullopt;
    char buffer[4096];
    const ssize_t count = read(from_child_, buffer, sizeof buffer);
    if (count <= 0) return std::nullopt;
    unread_.append(buffer, static_cast<size_t>(count));
  }
}

void ChildProcess::CloseInput() { CloseIfOpen(to_child_); }

int ChildProcess::Wait(milliseconds patience) {
  int status = 0;
  const bool ended =
      EventuallyTrue([&] { return waitpid(pid_, &status, WNOHANG) == pid_; }, patience);
  if (!ended) {
    kill(pid_, SIGKILL);
    waitpid(pid_, &status, 0);
  }
  pid_ = -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

size_t ChildProcess::ResidentBytes() const {
  std::ifstream statm("/proc/" + std::to_string(pid_) + "/statm");
  size_t total = 0;
  size_t resident = 0;
  statm >> total >> resident;
  return resident * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

}  // namespace muster::test
