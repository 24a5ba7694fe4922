#include "load/child.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <utility>

#include "base/text.h"

namespace muster::load {

namespace {

constexpr int kGraceMs = 5000;
constexpr size_t kLineBytesMax = 4096;

/// In the child, between fork and exec: it may not wait for a lock of the parent.
[[noreturn]] void Become(char* const* words, int output, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) _exit(127);  // the parent died before prctl()
  dup2(output, STDOUT_FILENO);
  execv(words[0], words);
  _exit(127);
}

}  // namespace

Result<std::unique_ptr<Child>> Child::Start(const std::vector<std::string>& command,
                                            Duration patience) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return SystemError("pipe2");
  Descriptor reads(ends[0]);
  Descriptor writes(ends[1]);
  std::vector<char*> words;
  for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid < 0) return SystemError("fork");
  if (pid == 0) Become(words.data(), writes.get(), parent);
  writes.Close();
  std::unique_ptr<Child> child(new Child(pid, std::move(reads)));
  if (Status heard = child->ReadFirstLine(patience); !heard) {
    return Error{heard.error().code, Concat(command[0], ": ", heard.error().message)};
  }
  return child;
}

Status Child::ReadFirstLine(Duration patience) {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  while (!first_line_.ends_with('\n')) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    pollfd readable{.fd = output_.get(), .events = POLLIN, .revents = 0};
    const int ready = left > 0ms ? poll(&readable, 1, static_cast<int>(left.count())) : 0;
    if (ready < 0 && errno == EINTR) continue;
    if (ready < 0) return SystemError("poll");
    if (ready == 0) return Error{Code::kTimeout, "did not say where it listens"};
    char byte;
    if (read(output_.get(), &byte, 1) != 1) {
      return Error{Code::kUnavailable, "ended before it listened"};
    }
    first_line_ += byte;
    if (first_line_.size() > kLineBytesMax)
      return Error{Code::kProtocol, "its first line is too long"};
  }
  first_line_.pop_back();
  return Ok();
}

Child::~Child() {
  // By number: the header of glibc 2.36 declares pidfd_open() as if it were C++.
  const Descriptor handle(static_cast<int>(syscall(SYS_pidfd_open, pid_, 0)));
  kill(pid_, SIGTERM);
  pollfd ended{.fd = handle.get(), .events = POLLIN, .revents = 0};
  if (!handle.is_open() || poll(&ended, 1, kGraceMs) != 1) kill(pid_, SIGKILL);
  while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

}  // namespace muster::load
