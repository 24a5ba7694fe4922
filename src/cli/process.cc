#include "cli/process.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <stdexcept>
#include <utility>

#include "adapters/posix/line_writer.h"
#include "base/text.h"

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

void BlockSignals(const std::vector<int>& signals) {
void ReportStderr(std::string_view text) {
  FlushStderr();
  const std::string shown = SeveralLines(text);
  std::fwrite(shown.data(), 1, shown.size(), stderr);
}

  const sigset_t set = SetOf(signals);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
}

SignalWatch::SignalWatch(const std::vector<int>& signals, std::function<void(int)> heed)
    : heed_(std::move(heed)) {
  BlockSignals(signals);
  const sigset_t set = SetOf(signals);
  signals_ = signalfd(-1, &set, SFD_CLOEXEC);
  end_ = eventfd(0, EFD_CLOEXEC);
  if (signals_ < 0 || end_ < 0)
    throw std::runtime_error(Concat("no descriptors to watch for signals: ", std::strerror(errno)));
  thread_ = std::thread([this] { Watch(); });
}

SignalWatch::~SignalWatch() {
  eventfd_write(end_, 1);
  thread_.join();
  close(signals_);
  close(end_);
}

void SignalWatch::Watch() {
  while (true) {
    pollfd either[] = {{.fd = end_, .events = POLLIN, .revents = 0},
                       {.fd = signals_, .events = POLLIN, .revents = 0}};
    if (poll(either, 2, -1) < 0) continue;
    if (either[0].revents != 0) return;
    signalfd_siginfo info{};
    if (read(signals_, &info, sizeof info) == sizeof info) heed_(static_cast<int>(info.ssi_signo));
  }
}

void RaiseDescriptorLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

PortFile::PortFile(std::string path, uint16_t port) : path_(std::move(path)) {
  if (path_.empty()) return;
  const std::string draft = path_ + ".new";
  std::ofstream file(draft);
  file << port << '\n';
  file.close();
  if (!file || std::rename(draft.c_str(), path_.c_str()) != 0) {
    const int why = errno;
    unlink(draft.c_str());
    throw std::runtime_error(
        Concat("cannot write the port file ", path_, ": ", std::string_view(std::strerror(why))));
  }
}

PortFile::~PortFile() {
  if (!path_.empty()) unlink(path_.c_str());
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
