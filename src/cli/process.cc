#include "cli/process.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/random.h>
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

#include "base/text.h"
#include "os/posix/line_writer.h"

namespace muster::cli {

namespace {

sigset_t SetOf(const std::vector<int>& signals) {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : signals) sigaddset(&set, signal);
  return set;
}

sigset_t StopSet() { return SetOf({SIGINT, SIGTERM}); }

}  // namespace

StopSignals::StopSignals() {
  const sigset_t set = StopSet();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
}

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

void TellStderr(std::string_view text) { StandardError().Write(SeveralLines(text)); }

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
    : on_signal_(std::move(on_signal)) {
  BlockSignals(signals);
  const sigset_t set = SetOf(signals);
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

/// A name in the folder of `path` that cannot be predicted.
std::string DraftOf(const std::string& path) {
  uint64_t number = 0;
  if (getrandom(&number, sizeof number, 0) != sizeof number)
    CannotWrite(path, std::strerror(errno));
  return Concat(path, ".", number, ".new");
}

}  // namespace

// Where other users may write, a link may be at either name: none is followed.
PortFile::PortFile(std::string path, uint16_t port) : path_(std::move(path)) {
  if (path_.empty()) return;
  struct stat found {};
  if (lstat(path_.c_str(), &found) == 0 && S_ISLNK(found.st_mode))
    CannotWrite(path_,
                "it is a symbolic link, which is not followed; remove it or name its target");
  const std::string draft = DraftOf(path_);
  file_ = OwnedFd(open(draft.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644));
  if (!file_.is_open()) CannotWrite(path_, std::strerror(errno));
  const std::string text = Concat(port, '\n');
  errno = ENOSPC;  // of a write that is cut short
  const bool written =
      write(file_.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size()) &&
      std::rename(draft.c_str(), path_.c_str()) == 0;
  if (!written) {
    const int why = errno;
    unlink(draft.c_str());
    CannotWrite(path_, std::strerror(why));
  }
}

PortFile::~PortFile() {
  struct stat ours {};
  struct stat found {};
  if (path_.empty() || fstat(file_.get(), &ours) != 0 || lstat(path_.c_str(), &found) != 0) return;
  // Another server's file may be there by now.
  if (found.st_dev == ours.st_dev && found.st_ino == ours.st_ino) unlink(path_.c_str());
}

void LogToStderr(bool warning, std::string_view line) {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  tm utc{};
  gmtime_r(&now.tv_sec, &utc);
  char stamp[32];
  strftime(stamp, sizeof stamp, "%Y-%m-%dT%H:%M:%S", &utc);
  char milliseconds[24];
  std::snprintf(milliseconds, sizeof milliseconds, ".%03ldZ", now.tv_nsec / 1'000'000);
  TellStderr(Concat(stamp, milliseconds, warning ? " warning " : " info ", OneLine(line), "\n"));
}

}  // namespace muster::cli
