#include "cli/process.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "base/calendar.h"
#include "base/text.h"
#include "os/posix/file_io.h"
#include "os/posix/forking.h"
#include "os/posix/line_writer.h"
#include "os/posix/posix_clock.h"

namespace muster::cli {

namespace {

[[noreturn]] void CannotWrite(const std::string& path, std::string_view why) {
  throw std::runtime_error(Concat("cannot write the port file ", Printable(path, 1024), ": ", why));
}

}  // namespace

StopSignals::StopSignals() { BlockSignals({SIGINT, SIGTERM}); }

std::optional<int> StopSignals::AwaitFor(std::chrono::milliseconds time) const {
  const sigset_t set = SetOf({SIGINT, SIGTERM});
  const timespec limit = ToTimespec(time);
  const int number = sigtimedwait(&set, nullptr, &limit);
  return number > 0 ? std::optional(number) : std::nullopt;
}

void OpenStandardDescriptors() {
  int fd = open("/dev/null", O_RDWR);
  while (fd >= 0 && fd <= STDERR_FILENO) fd = open("/dev/null", O_RDWR);
  if (fd >= 0) close(fd);
}

void PrintNotice(std::string_view line) {
  StandardError().Write(Concat("muster: ", OneLine(line), "\n"));
}

void FlushStderr() {
  constexpr std::chrono::milliseconds kPatience{200};
  StandardError().Flush(kPatience);
}

void ReportStderr(std::string_view text) {
  FlushStderr();
  const std::string shown = SeveralLines(text);
  std::fwrite(shown.data(), 1, shown.size(), stderr);
}

void BlockSignals(const std::vector<int>& signals) {
  const sigset_t set = SetOf(signals);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
}

SignalWatch::SignalWatch(const std::vector<int>& signals, std::function<void(int)> on_signal)
    : signals_(signals) {
  BlockSignals(signals);
  if (signals.empty()) return;
  thread_ = std::thread([this, on_signal = std::move(on_signal)] {
    const sigset_t set = SetOf(signals_);
    siginfo_t info{};
    while (true) {
      if (sigwaitinfo(&set, &info) < 0) continue;
      // From the destructor. Another signal, even at the same time, is the user's.
      if (is_ending_ && info.si_pid == getpid()) return;
      on_signal(info.si_signo);
    }
  });
}

SignalWatch::~SignalWatch() {
  if (!thread_.joinable()) return;
  is_ending_ = true;
  pthread_kill(thread_.native_handle(), signals_.front());
  thread_.join();
}

void RaiseDescriptorLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

// In a folder where other users may write, either name may be a link: links are not followed.
PortFile::PortFile(std::string path, uint16_t port) : path_(std::move(path)) {
  if (path_.empty()) return;
  struct stat found {};
  if (lstat(path_.c_str(), &found) == 0 && S_ISLNK(found.st_mode))
    CannotWrite(path_,
                "it is a symbolic link, which is not followed; remove it or name its target");
  file_ = ReplaceFile(path_, Concat(port, '\n'), 0644);
  if (!file_.is_open()) CannotWrite(path_, std::strerror(errno));
}

PortFile::~PortFile() {
  struct stat ours {};
  struct stat found {};
  if (path_.empty() || fstat(file_.get(), &ours) != 0 || lstat(path_.c_str(), &found) != 0) return;
  // The file may be another server's by now.
  if (found.st_dev == ours.st_dev && found.st_ino == ours.st_ino) unlink(path_.c_str());
}

void LogToStderr(bool warning, std::string_view line) {
  StandardError().Write(Concat(UtcText(PosixClock().Wall(), 3), warning ? " warning " : " info ",
                               OneLine(line), "\n"));
}

}  // namespace muster::cli
