#include "cli/process.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "base/calendar.h"
#include "base/text.h"
#include "os/posix/file_io.h"
#include "os/posix/line_writer.h"
#include "os/posix/posix_clock.h"

namespace muster::cli {

namespace {

sigset_t SetOf(const std::vector<int>& signals) {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : signals) sigaddset(&set, signal);
  return set;
}

sigset_t StopSet() { return SetOf({SIGINT, SIGTERM}); }

void Block(const sigset_t& set) { pthread_sigmask(SIG_BLOCK, &set, nullptr); }

}  // namespace

StopSignals::StopSignals() { Block(StopSet()); }

int StopSignals::Await() const {
  const sigset_t set = StopSet();
  int number = 0;
  while (sigwait(&set, &number) != 0) {
  }
  return number;
}

std::optional<int> StopSignals::AwaitFor(std::chrono::milliseconds time) const {
  const sigset_t set = StopSet();
  const timespec limit{.tv_sec = time.count() / 1000, .tv_nsec = time.count() % 1000 * 1'000'000};
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

void BlockSignals(const std::vector<int>& signals) { Block(SetOf(signals)); }

SignalWatch::SignalWatch(const std::vector<int>& signals, std::function<void(int)> on_signal)
    : on_signal_(std::move(on_signal)) {
  const sigset_t set = SetOf(signals);
  Block(set);
  signals_ = OwnedFd(signalfd(-1, &set, SFD_CLOEXEC));
  end_ = OwnedFd(eventfd(0, EFD_CLOEXEC));
  if (!signals_.is_open() || !end_.is_open())
    throw std::runtime_error(Concat("no descriptors to watch for signals: ", std::strerror(errno)));
  thread_ = std::thread([this] { Watch(); });
}

SignalWatch::~SignalWatch() {
  eventfd_write(end_.get(), 1);
  thread_.join();
}

void SignalWatch::Watch() {
  while (true) {
    pollfd either[] = {{.fd = end_.get(), .events = POLLIN, .revents = 0},
                       {.fd = signals_.get(), .events = POLLIN, .revents = 0}};
    if (poll(either, 2, -1) < 0) continue;
    if (either[0].revents != 0) return;
    signalfd_siginfo info{};
    if (read(signals_.get(), &info, sizeof info) == sizeof info)
      on_signal_(static_cast<int>(info.ssi_signo));
  }
}

void RaiseDescriptorLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

namespace {

[[noreturn]] void CannotWrite(const std::string& path, std::string_view why) {
  throw std::runtime_error(Concat("cannot write the port file ", Printable(path, 1024), ": ", why));
}

}  // namespace

// Where other users may write, a link may be at either name: none is followed.
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
  // Another server's file may be there by now.
  if (found.st_dev == ours.st_dev && found.st_ino == ours.st_ino) unlink(path_.c_str());
}

void LogToStderr(bool warning, std::string_view line) {
  StandardError().Write(Concat(UtcText(PosixClock().Wall(), 3), warning ? " warning " : " info ",
                               OneLine(line), "\n"));
}

}  // namespace muster::cli
