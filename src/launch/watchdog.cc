#include "launch/watchdog.h"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "launch/core/signals.h"
#include "launch/logs/error_file.h"
#include "os/posix/process.h"
#include "os/posix/process_tree.h"
#include "os/posix/system_error.h"

namespace muster {

namespace {

using nlohmann::json;

/// The wall clock may be set while a timer runs: it is read again this often.
constexpr int64_t kWallClockCheckMs = 1'000;
/// No process has so many ancestors. Facts of processes that end during the search could form a
/// cycle.
constexpr int kAncestorsMax = 10'000;

Error Misread(std::string_view why) { return Error{Code::kProtocol, std::string(why)}; }

/// The time of a timer, limited to 1970 plus or minus 30,000 years.
WallTime AsWallTime(double seconds) {
  constexpr double kFar = 1e12;
  return WallTime{static_cast<int64_t>(std::min(seconds, kFar) * 1e6)};
}

/// Nothing: it has ended, or is no descendant of this process.
std::optional<ProcessFacts> FindDescendant(int64_t pid) {
  if (pid > std::numeric_limits<pid_t>::max()) return std::nullopt;
  const auto found = FactsOf(static_cast<pid_t>(pid));
  if (!found || found->IsDead()) return std::nullopt;
  const auto self = static_cast<pid_t>(ProcessId());
  pid_t ancestor = found->parent;
  for (int i = 0; i < kAncestorsMax && ancestor > 0; ++i) {
    if (ancestor == self) return found;
    const auto facts = FactsOf(ancestor);
    if (!facts) break;
    ancestor = facts->parent;
  }
  return std::nullopt;
}

Error CannotMake(const std::string& path) {
  return SystemError(Concat("cannot make the watchdog's pipe '", Printable(path, 512), "'"));
}

}  // namespace

// ----------------------------------------------------------------------------------------------
// requests

Result<TimerRequest> ParseTimerRequest(std::string_view line) {
  const json object = json::parse(line, nullptr, false);
  if (!object.is_object()) return Misread("not a JSON object");
  const auto whole = [&object](const char* name) -> std::optional<int64_t> {
    const auto found = object.find(name);
    return found == object.end() ? std::nullopt : WholeNumberOf(*found);
  };
  if (whole("version") != 1) return Misread("'version' is not 1");
  const std::optional<int64_t> pid = whole("pid");
  if (!pid || *pid < 1) return Misread("'pid' is no process's number");
  const auto scope = object.find("scope_id");
  if (scope == object.end() || !scope->is_string()) return Misread("'scope_id' is no text");
  const auto time = object.find("expiration_time");
  if (time == object.end() || !time->is_number()) return Misread("'expiration_time' is no number");
  const std::optional<int64_t> signal = whole("signal");
  if (!signal) return Misread("'signal' is no whole number");

  TimerRequest request{.pid = *pid, .scope = scope->get<std::string>()};
  const double seconds = time->get<double>();
  if (seconds >= 0) request.expires_at = AsWallTime(seconds);
  if (*signal > 0 && *signal <= SIGRTMAX) request.signal = static_cast<int>(*signal);
  return request;
}

bool TimerBook::Take(TimerRequest request) {
  std::pair<int64_t, std::string> whose{request.pid, request.scope};
  if (!request.expires_at) {
    timers_.erase(whose);
    return true;
  }
  const auto found = timers_.find(whose);
  if (found == timers_.end() && timers_.size() >= kTimersMax) return false;
  timers_.insert_or_assign(std::move(whose), std::move(request));
  return true;
}

std::optional<WallTime> TimerBook::Due() const {
  const auto first = std::ranges::min_element(
      timers_, {}, [](const auto& entry) { return *entry.second.expires_at; });
  return first == timers_.end() ? std::nullopt : first->second.expires_at;
}

std::vector<TimerRequest> TimerBook::TakeExpired(WallTime now) {
  std::map<int64_t, TimerRequest> chosen;  // by process
  for (const auto& [whose, timer] : timers_) {
    if (*timer.expires_at > now) continue;
    const auto [best, is_first] = chosen.try_emplace(timer.pid, timer);
    if (is_first) continue;
    const bool better = (timer.signal > 0) != (best->second.signal > 0)
                            ? timer.signal > 0
                            : *timer.expires_at < *best->second.expires_at;
    if (better) best->second = timer;
  }
  std::erase_if(timers_, [&](const auto& it) { return chosen.contains(it.first.first); });
  std::vector<TimerRequest> expired;
  for (auto& [pid, timer] : chosen) expired.push_back(std::move(timer));
  return expired;
}

// ----------------------------------------------------------------------------------------------
// the pipe

Result<std::unique_ptr<Watchdog>> Watchdog::Open(std::string path, Clock& clock,
                                                 std::function<void(const std::string&)> log) {
  // An empty file may have been created only to reserve the name.
  struct stat found {};
  if (lstat(path.c_str(), &found) == 0 && !S_ISFIFO(found.st_mode) &&
      !(S_ISREG(found.st_mode) && found.st_size == 0)) {
    return MakeError(Code::kInvalid, "TORCHELASTIC_TIMER_FILE '", Printable(path, 512),
                     "' is there, and is no pipe of a watchdog: remove it");
  }
  if (unlink(path.c_str()) != 0 && errno != ENOENT) return CannotMake(path);
  if (mkfifo(path.c_str(), 0600) != 0) return CannotMake(path);
  std::unique_ptr<Watchdog> made(new Watchdog(std::move(path), clock, std::move(log)));
  if (!made->requests_.is_open() || !made->open_end_.is_open() || !made->stop_.is_open())
    return CannotMake(made->path_);
  made->thread_ = std::thread([watchdog = made.get()] { watchdog->Run(); });
  return made;
}

Watchdog::Watchdog(std::string path, Clock& clock, std::function<void(const std::string&)> log)
    : path_(std::move(path)),
      clock_(clock),
      log_(std::move(log)),
      requests_(open(path_.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC)),
      open_end_(open(path_.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC)),
      stop_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

Watchdog::~Watchdog() {
  eventfd_write(stop_.get(), 1);
  if (thread_.joinable()) thread_.join();
  unlink(path_.c_str());
}

std::vector<TimerExpiry> Watchdog::TakeExpiries() {
  const std::lock_guard lock(mutex_);
  return std::exchange(expiries_, {});
}

// ----------------------------------------------------------------------------------------------
// its thread

void Watchdog::Run() {
  NameThisThread("watchdog");
  std::array<pollfd, 2> waited{};
  waited[0] = {.fd = requests_.get(), .events = POLLIN, .revents = 0};
  waited[1] = {.fd = stop_.get(), .events = POLLIN, .revents = 0};
  while (waited[1].revents == 0) {
    if (poll(waited.data(), waited.size(), MillisecondsToWait()) < 0) {
      if (errno != EINTR) return WarnOnce(Concat("cannot wait: ", ErrorText(errno)));
      continue;
    }
    // Requests first: a release that has arrived counts.
    if (waited[0].revents != 0) ReadRequests();
    ExpireTimers();
  }
}

int Watchdog::MillisecondsToWait() const {
  const auto due = book_.Due();
  if (!due) return -1;
  const int64_t left = static_cast<int64_t>(*due) - static_cast<int64_t>(clock_.Wall());
  return static_cast<int>(std::clamp<int64_t>(left / 1'000 + 1, 0, kWallClockCheckMs));
}

void Watchdog::ReadRequests() {
  std::array<char, 65536> block;
  ssize_t count = 0;
  while ((count = read(requests_.get(), block.data(), block.size())) > 0) {
    std::string_view rest(block.data(), static_cast<size_t>(count));
    for (size_t end = rest.find('\n'); end != rest.npos; end = rest.find('\n')) {
      pending_ += rest.substr(0, end);
      rest.remove_prefix(end + 1);
      if (!std::exchange(is_skipping_, false)) TakeLine(pending_);
      pending_.clear();
    }
    if (!is_skipping_) pending_ += rest;
    if (pending_.size() > PIPE_BUF) {
      WarnOnce(Concat("a line of more than ", PIPE_BUF, " bytes"));
      is_skipping_ = true;
      pending_.clear();
    }
    if (static_cast<size_t>(count) < block.size()) return;
  }
}

void Watchdog::TakeLine(std::string_view line) {
  if (line.size() > PIPE_BUF) return WarnOnce(Concat("a line of ", line.size(), " bytes"));
  Result<TimerRequest> request = ParseTimerRequest(line);
  if (!request) return WarnOnce(Concat("'", Printable(line, 200), "': ", request.error().message));
  if (!book_.Take(std::move(request).value()))
    WarnOnce(Concat("more than ", TimerBook::kTimersMax, " timers"));
}

void Watchdog::ExpireTimers() {
  for (TimerRequest& timer : book_.TakeExpired(clock_.Wall())) {
    const std::string what =
        Concat("timer '", Printable(timer.scope, 200), "' of pid ", timer.pid, " has expired: ");
    bool was_sent = false;
    if (timer.signal == 0) {
      log_(Concat(what, "it requests no signal"));
    } else if (const auto process = FindDescendant(timer.pid)) {
      log_(Concat(what, SignalName(timer.signal), " is sent"));
      SignalProcess(*process, timer.signal);
      was_sent = true;
    } else {
      log_(Concat(what, "there is no such process in this job (any more)"));
    }
    const std::lock_guard lock(mutex_);
    expiries_.push_back({std::move(timer), was_sent});
  }
}

// Only once: a broken worker writes many such lines.
void Watchdog::WarnOnce(const std::string& about) {
  if (std::exchange(has_warned_, true)) return;
  log_(Concat("the watchdog ignores requests that it cannot use, such as this: ", about));
}

}  // namespace muster
