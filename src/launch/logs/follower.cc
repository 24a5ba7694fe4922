#include "launch/logs/follower.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstring>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/text.h"
#include "launch/logs/console_writer.h"

namespace muster {

namespace {

constexpr size_t kBlockBytes = 256 * 1024;
/// Between two looks at a file that grows. Nobody reads faster, and lines come in batches.
constexpr int kPaceMs = 10;
/// All files are looked at every so many turns: there may be a file system that tells us nothing.
constexpr int kTurnsMax = 10;

/// A ninth of the share of others.
constexpr int kNiceness = 10;

std::string_view Why(int number) { return std::strerror(number); }

/// A worker that opens /dev/stdout anew empties its log, and writes on from the beginning.
bool WasCut(int fd, uint64_t scanned) {
  struct stat now {};
  return fstat(fd, &now) == 0 && static_cast<uint64_t>(now.st_size) < scanned;
}

std::string Colored(const std::string& prefix, size_t worker) {
  constexpr std::array<std::string_view, 6> kColors = {"36", "33", "32", "35", "34", "31"};
  if (prefix.empty()) return prefix;
  return Concat("\x1b[", kColors[worker % kColors.size()], "m", prefix, "\x1b[0m");
}

bool HasOneOf(std::string_view line, const std::vector<std::string>& needles) {
  return std::any_of(needles.begin(), needles.end(),
                     [&](const std::string& needle) { return line.find(needle) != line.npos; });
}

/// As many bytes as there are, up to `size`; -1 and errno if that fails.
ssize_t ReadAt(int fd, char* bytes, size_t size, uint64_t at) {
  size_t filled = 0;
  while (filled < size) {
    const ssize_t count = pread(fd, bytes + filled, size - filled, static_cast<off_t>(at + filled));
    if (count == 0) break;
    if (count > 0) {
      filled += static_cast<size_t>(count);
    } else if (errno != EINTR) {
      return filled > 0 ? static_cast<ssize_t>(filled) : -1;
    }
  }
  return static_cast<ssize_t>(filled);
}

}  // namespace

/// A file of filtered lines, shared by all whose lines it takes.
struct Follower::Duplicate {
  std::string path;
  int fd;
  bool broken = false;

  Duplicate(std::string where, int descriptor) : path(std::move(where)), fd(descriptor) {}
  ~Duplicate() { close(fd); }
  Duplicate(const Duplicate&) = delete;
  Duplicate& operator=(const Duplicate&) = delete;

  /// Returns false, and errno, when the line is not there as a whole.
  bool Append(std::string_view line) const {
    while (!line.empty()) {  // Once around, unless the disk is nearly full.
      const ssize_t count = write(fd, line.data(), line.size());
      if (count >= 0) line.remove_prefix(static_cast<size_t>(count));
      if (count < 0 && errno != EINTR) return false;
    }
    return true;
  }
};

struct Follower::File {
  Followed what{};
  std::shared_ptr<Duplicate> duplicate{};
  bool complete = false;  ///< Its writers are gone.

  std::string shown_prefix{};
  ConsoleWriter* console = nullptr;
  int fd = -1;
  int watch = -1;         ///< We will be told once when it grows.
  bool watchable = true;  ///< As far as we know.
  bool busy = true;       ///< It has grown lately: look again.
  bool held = false;      ///< The console had enough to do when we looked last.
  bool complained = false;
  bool done = false;
  // Nothing of the file is kept but these: bytes of a line that has no end yet are read again when
  // it has. Hundreds of progress bars then cost no memory.
  uint64_t line_begin = 0;
  uint64_t scanned = 0;  ///< No line ends between line_begin and here.

  ~File() {
    if (fd >= 0) close(fd);
  }

  /// Whether there is anybody left to read it for.
  bool IsWanted() const {
    return (console != nullptr && console->broken() == 0) || (duplicate && !duplicate->broken);
  }
};

Result<std::unique_ptr<Follower>> Follower::Open(FollowerOptions options) {
  const int wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (wake < 0) {
    return Error{Code::kUnavailable, Concat("cannot follow the workers' logs: ", Why(errno))};
  }
  // Without inotify, when all instances of this user are taken, the tick does.
  const int inotify = options.use_inotify ? inotify_init1(IN_CLOEXEC | IN_NONBLOCK) : -1;
  std::unique_ptr<Follower> follower(new Follower(std::move(options), wake, inotify));
  // The signals of the process are for others; and a reader who left is no reason to die.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  int failure = 0;
  try {
    follower->thread_ = std::thread([raw = follower.get()] { raw->Run(); });
  } catch (const std::system_error& error) {
    failure = error.code().value();
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (failure != 0) {
    return Error{Code::kUnavailable,
                 Concat("cannot start a thread for the workers' logs: ", Why(failure))};
  }
  return follower;
}

Follower::Follower(FollowerOptions options, int wake, int inotify)
    : options_(std::move(options)),
      wake_(wake),
      inotify_(inotify),
      buffer_(kLineBytesMax + kBlockBytes, '\0') {}

Follower::~Follower() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  Wake();
  if (thread_.joinable()) thread_.join();
  close(wake_);
  if (inotify_ >= 0) close(inotify_);
}

void Follower::Wake() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t ignored = write(wake_, &one, sizeof one);  // Full is awake, too.
}

Result<std::shared_ptr<Follower::Duplicate>> Follower::DuplicateAt(const std::string& path) {
  if (auto known = duplicates_[path].lock()) return known;
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (fd < 0) {
    return Error{Code::kUnavailable, Concat("cannot write filtered lines to '",
                                            Printable(path, 512), "': ", Why(errno))};
  }
  const auto made = std::make_shared<Duplicate>(path, fd);
  duplicates_[path] = made;
  return made;
}

Status Follower::Follow(Followed what) {
  auto file = std::make_unique<File>();
  // O_NONBLOCK: what somebody put there in place of a log must not hold up the others.
  file->fd = open(what.path.c_str(), O_RDONLY | O_CREAT | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0666);
  if (file->fd < 0) {
    return Error{Code::kUnavailable,
                 Concat("cannot follow the log '", Printable(what.path, 512), "': ", Why(errno))};
  }
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
  {
    const std::lock_guard lock(mutex_);
    finish_ = true;
  }
  Wake();
  if (thread_.joinable()) thread_.join();
}

void Follower::Run() {
  // Of this thread only, as Linux has it. Where cores are scarce they are for the workers: on two
  // busy cores the echo of a flood doubled the time of whoever wrote it.
  setpriority(PRIO_PROCESS, 0, getpriority(PRIO_PROCESS, 0) + kNiceness);
  while (TakeOrders()) {
    const bool all = ++turns_ >= kTurnsMax;
    if (all) turns_ = 0;
    Growth growth = Growth::kNone;
    for (const auto& file : files_) {
      if (all || file->busy || file->watch < 0) growth = std::max(growth, Look(*file));
    }
    Flush();
    for (const auto& file : files_) {
      // Its console has room now, and nobody would tell us again.
      if (file->held && !file->console->full()) growth = Growth::kMore;
    }
    std::erase_if(files_, [](const auto& file) { return file->done; });
    const bool waiting = std::any_of(consoles_.begin(), consoles_.end(),
                                     [](const auto& console) { return console.second->waiting(); });
    if (finishing_ && files_.empty() && !waiting) return;
    Wait(growth);
  }
}

/// False: stop.
bool Follower::TakeOrders() {
  const std::lock_guard lock(mutex_);
  if (settle_) {
    for (const auto& file : files_) file->complete = file->busy = true;
    settle_ = false;
  }
  for (auto& file : arrivals_) Adopt(std::move(file));
  arrivals_.clear();
  finishing_ = finish_;
  return !stop_;
}

void Follower::Adopt(std::unique_ptr<File> file) {
  file->shown_prefix = file->what.prefix;
  if (file->what.console >= 0) {
    auto& console = consoles_[file->what.console];
    if (!console) console = std::make_unique<ConsoleWriter>(file->what.console);
    file->console = console.get();
    if (options_.color && console->is_terminal()) {
      file->shown_prefix = Colored(file->what.prefix, file->what.worker);
    }
  }
  files_.push_back(std::move(file));
}

Follower::Growth Follower::Look(File& file) {
  if (!file.IsWanted()) {
    LetGo(file);
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
    growth = Read(file);  // It may have grown in between, and we would not be told.
  }
  file.busy = growth != Growth::kNone;
  return growth;
}

/// Shows the lines that have come to their ends, of one block at most: files take turns.
Follower::Growth Follower::Read(File& file) {
  const auto old = static_cast<size_t>(file.scanned - file.line_begin);
  const ssize_t count = ReadAt(file.fd, buffer_.data() + old, kBlockBytes, file.scanned);
  if (count < 0 && !std::exchange(file.complained, true)) {
    Say(Concat("cannot read '", Printable(file.what.path, 512), "': ", Why(errno),
               "; its rest may not be shown"));
  }
  if (count == 0 && WasCut(file.fd, file.scanned)) {
    file.scanned = file.line_begin = 0;
    return Growth::kMore;
  }
  if (count <= 0) return Growth::kNone;
  const auto fresh = static_cast<size_t>(count);
  const Growth growth = fresh == kBlockBytes ? Growth::kMore : Growth::kSome;
  file.scanned += fresh;
  const bool line_ends = std::memchr(buffer_.data() + old, '\n', fresh) != nullptr;
  if (!line_ends && old + fresh <= kLineBytesMax) return growth;

  std::string_view rest(buffer_.data(), old + fresh);
  const ssize_t again = ReadAt(file.fd, buffer_.data(), old, file.line_begin);
  // Only a file that has been cut has less of it now.
  if (again < static_cast<ssize_t>(old)) rest.remove_prefix(old);
  while (true) {
    const size_t end = rest.substr(0, kLineBytesMax + 1).find('\n');
    if (end == rest.npos && rest.size() <= kLineBytesMax) break;
    const size_t size = end == rest.npos ? kLineBytesMax : end + 1;
    Show(file, rest.substr(0, size));
    rest.remove_prefix(size);
  }
  file.line_begin = file.scanned - rest.size();
  return growth;
}

void Follower::Show(File& file, std::string_view line) {
  if (file.console != nullptr) file.console->Add(file.shown_prefix, line);
  if (!file.duplicate || file.duplicate->broken || !HasOneOf(line, file.what.needles)) return;
  std::string copy = Concat(file.what.prefix, line);
  if (!copy.ends_with('\n')) copy += '\n';
  if (!file.duplicate->Append(copy)) {
    file.duplicate->broken = true;
    Say(Concat("cannot write filtered lines to '", Printable(file.duplicate->path, 512),
               "': ", Why(errno), "; no more of them are collected, the logs have them all"));
  }
}

/// It has been read to its end, and there will be no more.
void Follower::Complete(File& file) {
  const auto old = static_cast<size_t>(file.scanned - file.line_begin);
  const ssize_t count = old > 0 ? ReadAt(file.fd, buffer_.data(), old, file.line_begin) : 0;
  if (count > 0) Show(file, std::string_view(buffer_.data(), static_cast<size_t>(count)));
  LetGo(file);
}

void Follower::LetGo(File& file) {
  if (file.watch >= 0) inotify_rm_watch(inotify_, file.watch);
  file.done = true;
}

/// Asks to be told once when the file grows. Returns whether that was asked now.
///
/// Once, because the kernel charges the writer for each notice: a million lines of 100 bytes took
/// 0.4 s without a watch and 0.8 s with one.
bool Follower::Watch(File& file) {
  if (inotify_ < 0 || !file.watchable || file.watch >= 0) return false;
  // Through the descriptor: directories of earlier attempts are renamed.
  const std::string self = Concat("/proc/self/fd/", file.fd);
  file.watch = inotify_add_watch(inotify_, self.c_str(), IN_MODIFY | IN_ONESHOT);
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
    Say(Concat("cannot write to ", name, ": ", Why(console->broken()),
               "; workers go on, and their output is only in their logs from now on"));
  }
}

void Follower::Wait(Growth growth) {
  if (growth == Growth::kMore) return;
  std::vector<pollfd> wanted = {{.fd = wake_, .events = POLLIN, .revents = 0}};
  for (const auto& [fd, console] : consoles_) {
    if (console->waiting()) wanted.push_back({.fd = fd, .events = POLLOUT, .revents = 0});
  }
  const bool paced = growth == Growth::kSome;
  if (!paced && inotify_ >= 0) wanted.push_back({.fd = inotify_, .events = POLLIN, .revents = 0});
  const auto tick = static_cast<int>(std::min<int64_t>(Milliseconds(options_.tick), INT_MAX));
  const int ready = poll(wanted.data(), wanted.size(), paced ? kPaceMs : tick);
  if (ready == 0 && !paced) turns_ = kTurnsMax;
  if (wanted.front().revents != 0) {
    uint64_t count = 0;
    [[maybe_unused]] const ssize_t ignored = read(wake_, &count, sizeof count);
  }
  TakeEvents();
}

void Follower::TakeEvents() {
  alignas(inotify_event) std::array<char, 4096> events;
  while (inotify_ >= 0) {
    const ssize_t count = read(inotify_, events.data(), events.size());
    if (count <= 0) return;
    for (ssize_t at = 0; at < count;) {
      inotify_event event;
      std::memcpy(&event, events.data() + at, sizeof event);
      at += static_cast<ssize_t>(sizeof event + event.len);
      if ((event.mask & IN_Q_OVERFLOW) != 0) turns_ = kTurnsMax;
      // IN_IGNORED alone: we asked again while the first watch was about to go, and it took ours
      // along.
      if ((event.mask & (IN_MODIFY | IN_IGNORED)) == 0) continue;
      for (const auto& file : files_) {
        if (file->watch != event.wd) continue;
        file->watch = -1;
        file->busy = true;
      }
    }
  }
}

void Follower::Say(const std::string& line) const {
  if (options_.log) options_.log(LogLevel::kWarning, line);
}

}  // namespace muster
