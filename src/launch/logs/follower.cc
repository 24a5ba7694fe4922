#include "launch/logs/follower.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstring>
#include <string_view>
#include <utility>

#include "base/text.h"
#include "launch/logs/console_writer.h"
#include "os/posix/file_io.h"
#include "os/posix/forking.h"
#include "os/posix/posix_clock.h"
#include "os/posix/process.h"
#include "os/posix/system_error.h"

namespace muster {

namespace {

constexpr size_t kBlockBytes = 256 * 1024;
/// Between two reads of a file that grows: lines come in batches.
constexpr int kPaceMs = 10;
/// All files are read every so many turns, in case a file system sends no events.
constexpr int kTurnsMax = 10;
/// The same while nothing grows and every file is watched, so that an idle job costs nothing but
/// its keep-alives, which come as often.
constexpr int kWatchedMs = 5'000;

/// Longer states of unfinished lines are cut at the front.
constexpr size_t kStateBytesMax = 4096;

/// A ninth of the CPU share of other threads.
constexpr int kNiceness = 10;

/// A worker that opens /dev/stdout again truncates its log and continues at the beginning.
bool WasCut(int fd, uint64_t scanned) {
  struct stat now {};
  return fstat(fd, &now) == 0 && static_cast<uint64_t>(now.st_size) < scanned;
}

std::string Colored(const std::string& prefix, size_t worker) {
  constexpr std::array<std::string_view, 6> kColors = {"36", "33", "32", "35", "34", "31"};
  if (prefix.empty()) return prefix;
  return Concat("\x1b[", kColors[worker % kColors.size()], "m", prefix, "\x1b[0m");
}

/// What a terminal shows of a line: the text after the last '\r' that text follows.
std::string_view LastState(std::string_view line) {
  line = line.substr(0, line.find_last_not_of("\r\n") + 1);  // 0 where there is no text
  return line.substr(line.rfind('\r') + 1);
}

bool HasOneOf(std::string_view line, const std::vector<std::string>& filters) {
  return std::ranges::any_of(
      filters, [&](const std::string& filter) { return line.find(filter) != line.npos; });
}

}  // namespace

/// A file of filtered lines, shared by all files whose lines it takes.
struct Follower::Duplicate {
  std::string path{};
  OwnedFd fd{};
  bool broken = false;
};

struct Follower::File {
  Followed what{};
  std::shared_ptr<Duplicate> duplicate{};
  bool complete = false;  ///< All its writers have ended.

  std::string shown_prefix{};
  ConsoleWriter* console = nullptr;
  OwnedFd fd{};
  int watch = -1;             ///< inotify reports its next growth.
  bool watchable = true;      ///< As far as is known.
  bool busy = true;           ///< It has grown recently: read it again.
  bool held = false;          ///< The console was full at the last attempt to read.
  bool has_reported = false;  ///< That it cannot be read.
  bool done = false;
  // Nothing else of the file is kept: the bytes of an incomplete line are read again when its end
  // has been written. Hundreds of progress bars then cost no memory.
  uint64_t line_begin = 0;
  uint64_t scanned = 0;                 ///< No line ends between line_begin and here.
  uint64_t state_end = 0;               ///< Of the state of its unfinished line that is shown.
  Instant state_at = Instant::Never();  ///< When the next one is to be shown.

  /// Whether its lines still have a destination.
  bool IsWanted() const {
    return (console != nullptr && console->broken() == 0) || (duplicate && !duplicate->broken);
  }
};

Result<std::unique_ptr<Follower>> Follower::Open(FollowerOptions options) {
  OwnedFd wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake.is_open()) return SystemError("cannot follow the workers' logs");
  // Without inotify, for example when this user has too many instances, the tick is used.
  OwnedFd inotify(options.use_inotify ? inotify_init1(IN_CLOEXEC | IN_NONBLOCK) : -1);
  std::unique_ptr<Follower> follower(
      new Follower(std::move(options), std::move(wake), std::move(inotify)));
  // The signals of the process are for other threads, and SIGPIPE must not end it.
  const AllSignalsBlocked blocked;
  MUSTER_TRY(follower->thread_, StartThread("cannot start a thread for the workers' logs",
                                            [raw = follower.get()] { raw->Run(); }));
  return follower;
}

Follower::Follower(FollowerOptions options, OwnedFd wake, OwnedFd inotify)
    : options_(std::move(options)),
      wake_(std::move(wake)),
      inotify_(std::move(inotify)),
      buffer_(kLineBytesMax + kBlockBytes, '\0') {}

Follower::~Follower() {
  stop_ = true;
  Wake();
  if (thread_.joinable()) thread_.join();
}

void Follower::Wake() {
  eventfd_write(wake_.get(), 1);  // it fails only while an earlier one is still to be read
}

Result<std::shared_ptr<Follower::Duplicate>> Follower::DuplicateAt(const std::string& path) {
  if (auto known = duplicates_[path].lock()) return known;
  const auto made = std::make_shared<Duplicate>(Duplicate{
      .path = path,
      .fd = OwnedFd(open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666))});
  if (!made->fd.is_open())
    return SystemError(Concat("cannot write filtered lines to '", Printable(path, 512), "'"));
  duplicates_[path] = made;
  return made;
}

Status Follower::Follow(Followed what) {
  auto file = std::make_unique<File>();
  // O_NONBLOCK: a FIFO in the place of a log must not block the other files.
  constexpr int kFlags = O_RDONLY | O_CREAT | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
  file->fd = OwnedFd(open(what.path.c_str(), kFlags, 0666));
  if (!file->fd.is_open())
    return SystemError(Concat("cannot follow the log '", Printable(what.path, 512), "'"));
  {
    const std::lock_guard lock(mutex_);
    MUSTER_ASSERT(!finish_);
    if (!what.duplicate_to.empty()) {
      MUSTER_TRY(file->duplicate, DuplicateAt(what.duplicate_to));
    }
    file->what = std::move(what);
    arrivals_.push_back(std::move(file));
  }
  Wake();
  return Ok();
}

void Follower::Settle() {
  {
    const std::lock_guard lock(mutex_);
    settle_ = true;
    for (const auto& file : arrivals_) file->complete = true;
  }
  Wake();
}

void Follower::Finish() {
  Settle();
  finish_ = true;
  Wake();
  if (thread_.joinable()) thread_.join();
}

void Follower::Run() {
  // On Linux, this changes only this thread. Scarce cores are for the workers: on two busy cores,
  // without this, echoing a flood of lines doubled the time of the worker that wrote it.
  setpriority(PRIO_PROCESS, 0, getpriority(PRIO_PROCESS, 0) + kNiceness);
  while (TakeRequests()) {
    const bool all = ++turns_ >= kTurnsMax;
    if (all) turns_ = 0;
    Growth growth = Growth::kNone;
    for (const auto& file : files_) {
      if (all || file->busy || file->watch < 0) growth = std::max(growth, ReadLines(*file));
    }
    state_due_ = Instant::Never();
    const Instant now = BootTime();
    for (const auto& file : files_) {
      if (!file->done) ShowState(*file, now);
    }
    Flush();
    for (const auto& file : files_) {
      // Its console has room now, and no event would report that.
      if (file->held && !file->console->full()) growth = Growth::kMore;
    }
    std::erase_if(files_, [](const auto& file) { return file->done; });
    const bool waiting = std::ranges::any_of(
        consoles_, [](const auto& console) { return console.second->waiting(); });
    if (finishing_ && files_.empty() && !waiting) return;
    Wait(growth);
  }
}

/// False: stop.
bool Follower::TakeRequests() {
  const std::lock_guard lock(mutex_);
  if (settle_) {
    for (const auto& file : files_) file->complete = file->busy = true;
    settle_ = false;
  }
  for (auto& file : arrivals_) Begin(std::move(file));
  arrivals_.clear();
  finishing_ = finish_;
  return !stop_;
}

void Follower::Begin(std::unique_ptr<File> file) {
  file->shown_prefix = file->what.prefix;
  if (file->what.console >= 0) {
    auto& console = consoles_[file->what.console];
    if (!console) console = std::make_unique<ConsoleWriter>(file->what.console, has_state_);
    file->console = console.get();
    if (options_.color && console->is_terminal()) {
      file->shown_prefix = Colored(file->what.prefix, file->what.worker);
    }
  }
  files_.push_back(std::move(file));
}

Follower::Growth Follower::ReadLines(File& file) {
  if (!file.IsWanted()) {
    Drop(file);
    return Growth::kMore;
  }
  file.held = file.console != nullptr && file.console->full();
  if (file.held) {
    file.busy = true;
    return Growth::kNone;
  }
  Growth growth = Read(file);
  if (file.complete) {
    if (growth == Growth::kNone) Complete(file);
    return Growth::kMore;
  }
  if (growth == Growth::kNone && file.busy && Watch(file)) {
    growth = Read(file);  // It may have grown before the watch began.
  }
  file.busy = growth != Growth::kNone;
  return growth;
}

/// Shows the complete lines of one block at most: files take turns.
Follower::Growth Follower::Read(File& file) {
  const auto old = static_cast<size_t>(file.scanned - file.line_begin);
  const ssize_t count = ReadAt(file.fd.get(), buffer_.data() + old, kBlockBytes, file.scanned);
  if (count < 0 && !std::exchange(file.has_reported, true)) {
    Warn(Concat("cannot read '", Printable(file.what.path, 512), "': ", ErrorText(errno),
                "; its rest may not be shown"));
  }
  if (count == 0 && WasCut(file.fd.get(), file.scanned)) {
    file.scanned = file.line_begin = file.state_end = 0;
    return Growth::kMore;
  }
  if (count <= 0) return Growth::kNone;
  const auto fresh = static_cast<size_t>(count);
  const Growth growth = fresh == kBlockBytes ? Growth::kMore : Growth::kSome;
  file.scanned += fresh;
  const bool line_ends = std::memchr(buffer_.data() + old, '\n', fresh) != nullptr;
  if (!line_ends && old + fresh <= kLineBytesMax) return growth;

  std::string_view rest(buffer_.data(), old + fresh);
  const ssize_t again = ReadAt(file.fd.get(), buffer_.data(), old, file.line_begin);
  // Only a truncated file has less of it now.
  if (again < static_cast<ssize_t>(old)) rest.remove_prefix(old);
  while (true) {
    const size_t end = rest.substr(0, kLineBytesMax + 1).find('\n');
    if (end == rest.npos && rest.size() <= kLineBytesMax) break;
    const size_t size = end == rest.npos ? kLineBytesMax : end + 1;
    Show(file, rest.substr(0, size));
    rest.remove_prefix(size);
  }
  file.line_begin = file.scanned - rest.size();
  file.state_at = Instant::Never();  // The rest is the beginning of another line.
  return growth;
}

void Follower::Show(File& file, std::string_view line, bool on_console) {
  if (file.console != nullptr && on_console)
    file.console->Add(file.shown_prefix, file.console->is_terminal() ? LastState(line) : line);
  if (!file.duplicate || file.duplicate->broken || !HasOneOf(line, file.what.filters)) return;
  std::string copy = Concat(file.what.prefix, line);
  if (!copy.ends_with('\n')) copy += '\n';
  if (!WriteAll(file.duplicate->fd.get(), copy)) {
    file.duplicate->broken = true;
    Warn(Concat("cannot write filtered lines to '", Printable(file.duplicate->path, 512),
                "': ", ErrorText(errno), "; the rest is only in the logs"));
  }
}

/// Shows the state of its unfinished line if it is old enough, and notes when it will be.
void Follower::ShowState(File& file, Instant now) {
  const uint64_t begin =
      std::max(file.line_begin, file.scanned - std::min(file.scanned, uint64_t{kStateBytesMax}));
  if (file.console == nullptr || file.scanned <= std::max(begin, file.state_end)) return;
  if (file.state_at == Instant::Never() || file.console->full())
    file.state_at = now + options_.unfinished_max;
  if (now >= file.state_at) {
    file.state_at = Instant::Never();
    file.state_end = file.scanned;
    const ssize_t count =
        ReadAt(file.fd.get(), buffer_.data(), static_cast<size_t>(file.scanned - begin), begin);
    const std::string_view state =
        LastState({buffer_.data(), static_cast<size_t>(std::max<ssize_t>(count, 0))});
    if (!state.empty()) file.console->Add(file.shown_prefix, state, true);
  }
  state_due_ = std::min(state_due_, file.state_at);
}

/// To be called when the file has been read to its end, and its writers have ended.
void Follower::Complete(File& file) {
  const auto old = static_cast<size_t>(file.scanned - file.line_begin);
  const ssize_t count = old > 0 ? ReadAt(file.fd.get(), buffer_.data(), old, file.line_begin) : 0;
  const std::string_view line(buffer_.data(), static_cast<size_t>(std::max<ssize_t>(count, 0)));
  // Elsewhere than on a terminal, a state that is the whole line has been shown as a line.
  const bool is_shown = old > 0 && old <= kStateBytesMax && file.state_end == file.scanned &&
                        line.find('\r') == line.npos && !file.console->is_terminal();
  if (!line.empty()) Show(file, line, !is_shown);
  Drop(file);
}

void Follower::Drop(File& file) {
  if (file.watch >= 0) inotify_rm_watch(inotify_.get(), file.watch);
  file.done = true;
}

/// Watches the next growth of the file. Returns whether the watch is new.
///
/// Only the next one, because each event costs the writer time: a million lines of 100 bytes took
/// 0.4 s without a watch and 0.8 s with one.
bool Follower::Watch(File& file) {
  if (!inotify_.is_open() || !file.watchable || file.watch >= 0) return false;
  // Through the descriptor: directories of earlier attempts are renamed.
  const std::string self = Concat("/proc/self/fd/", file.fd.get());
  file.watch = inotify_add_watch(inotify_.get(), self.c_str(), IN_MODIFY | IN_ONESHOT);
  file.watchable = file.watch >= 0;
  return file.watchable;
}

void Follower::Flush() {
  for (const auto& [fd, console] : consoles_) {
    if (console->broken() != 0) continue;
    console->Flush();
    if (console->broken() == 0) continue;
    const std::string name = fd == STDOUT_FILENO   ? "standard output"
                             : fd == STDERR_FILENO ? "standard error"
                                                   : Concat("descriptor ", fd);
    Warn(Concat("cannot write to ", name, ": ", ErrorText(console->broken()),
                "; workers go on, and their output is only in their logs from now on"));
  }
}

void Follower::Wait(Growth growth) {
  if (growth == Growth::kMore) return;
  std::vector<pollfd> wanted = {{.fd = wake_.get(), .events = POLLIN, .revents = 0}};
  for (const auto& [fd, console] : consoles_) {
    if (console->waiting()) wanted.push_back({.fd = fd, .events = POLLOUT, .revents = 0});
  }
  const bool paced = growth == Growth::kSome;
  if (!paced && inotify_.is_open())
    wanted.push_back({.fd = inotify_.get(), .events = POLLIN, .revents = 0});
  const bool all_watched =
      std::ranges::all_of(files_, [](const auto& file) { return file->watch >= 0; });
  const auto tick = static_cast<int>(std::min<int64_t>(Milliseconds(options_.tick), INT_MAX));
  const int64_t until_state = std::max<int64_t>(Milliseconds(state_due_ - BootTime()) + 1, 0);
  const int time = paced ? kPaceMs : all_watched ? std::max(tick, kWatchedMs) : tick;
  const int ready =
      poll(wanted.data(), wanted.size(), static_cast<int>(std::min<int64_t>(time, until_state)));
  if (ready == 0 && !paced) turns_ = kTurnsMax;
  eventfd_t ignored = 0;
  if (wanted.front().revents != 0) eventfd_read(wake_.get(), &ignored);
  TakeEvents();
}

void Follower::TakeEvents() {
  alignas(inotify_event) std::array<char, 4096> events;
  while (inotify_.is_open()) {
    const ssize_t count = read(inotify_.get(), events.data(), events.size());
    if (count <= 0) return;
    for (ssize_t at = 0; at < count;) {
      inotify_event event;
      std::memcpy(&event, events.data() + at, sizeof event);
      at += static_cast<ssize_t>(sizeof event + event.len);
      if ((event.mask & IN_Q_OVERFLOW) != 0) turns_ = kTurnsMax;
      // IN_IGNORED alone: the file was watched again while its first watch was about to end, which
      // ended both.
      if ((event.mask & (IN_MODIFY | IN_IGNORED)) == 0) continue;
      for (const auto& file : files_) {
        if (file->watch != event.wd) continue;
        file->watch = -1;
        file->busy = true;
      }
    }
  }
}

void Follower::Warn(const std::string& line) const {
  if (options_.log) options_.log(LogLevel::kWarning, line);
}

}  // namespace muster
