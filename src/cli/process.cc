#include "cli/process.h"

#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <stdexcept>
#include <utility>

#include "base/text.h"

namespace muster::cli {

namespace {

sigset_t StopSet() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGTERM);
  return set;
}

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
  std::fprintf(stderr, "%s.%03ldZ %s %.*s\n", stamp, now.tv_nsec / 1'000'000,
               warning ? "warning" : "info", static_cast<int>(line.size()), line.data());
}

}  // namespace muster::cli
