#include "os/posix/process_tree.h"

#include <dirent.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <map>
#include <memory>
#include <set>
#include <unordered_set>
#include <utility>

#include "base/text.h"
#include "os/posix/file_io.h"

namespace muster {

namespace {

using SteadyClock = std::chrono::steady_clock;

// The kernel allows three quarters of the largest stack: 6 MiB.
constexpr size_t kEnvironmentBytesMax = 8u << 20;

// For a process in uninterruptible sleep, most often for a disk, to wake up.
constexpr Duration kUnsureMax = 200ms;

template <typename T>
bool ReadNumber(std::string_view word, T& number) {
  return std::from_chars(word.data(), word.data() + word.size(), number).ec == std::errc();
}

// pid (name) state parent group session … The name may be any text, such as ") R 1 (". Returns
// nothing for kernel threads.
std::optional<ProcessFacts> ParseStat(pid_t pid, std::string_view text) {
  const size_t name_end = text.rfind(')');
  if (name_end == std::string_view::npos || name_end + 2 > text.size()) return std::nullopt;
  const std::vector<std::string_view> words = Split(text.substr(name_end + 2), ' ');
  if (words.size() < 20 || words[0].empty()) return std::nullopt;
  constexpr uint64_t kKernelThread = 0x0020'0000;
  uint64_t flags = 0;
  if (!ReadNumber(words[6], flags) || (flags & kKernelThread) != 0) return std::nullopt;
  ProcessFacts facts{.pid = pid, .state = words[0][0]};
  const bool complete = ReadNumber(words[1], facts.parent) && ReadNumber(words[2], facts.group) &&
                        ReadNumber(words[3], facts.session) &&
                        ReadNumber(words[17], facts.threads) &&
                        ReadNumber(words[19], facts.started);
  return complete ? std::optional(facts) : std::nullopt;
}

/// A search in one snapshot of the process table.
class FamilySearch {
 public:
  explicit FamilySearch(const ProcessFamily& family)
      : family_(family),
        spared_(family.spared.begin(), family.spared.end()),
        self_(getpid()),
        all_(AllProcesses()) {
    spared_.insert(self_);
    // The kernel does not reuse a pid while its session or group has members: a leader whose pid
    // was reused has no members left.
    for (const Leader& leader : family.leaders) {
      const auto holder = std::ranges::find(all_, leader.pid, &ProcessFacts::pid);
      const bool is_reused =
          holder != all_.end() && leader.started != 0 && holder->started != leader.started;
      if (!is_reused) leaders_.insert(leader.pid);
    }
  }

  /// The environment of a process could not be read.
  bool is_unsure() const { return is_unsure_; }

  std::vector<ProcessFacts> Run() {
    for (const ProcessFacts& process : all_) {
      if (IsRelated(process)) Choose(process);
    }
    ChooseDescendants();
    // Last, and only for processes that nothing else has matched: it takes the most time.
    if (!family_.marks.empty()) {
      for (const ProcessFacts& process : all_) {
        if (IsMarked(process)) Choose(process);
      }
      ChooseDescendants();
    }
    std::vector<ProcessFacts> found;
    for (const ProcessFacts& process : all_) {
      if (chosen_.contains(process.pid) && !process.IsDead()) found.push_back(process);
    }
    return found;
  }

 private:
  bool IsRelated(const ProcessFacts& process) const {
    if (leaders_.contains(process.pid) || leaders_.contains(process.session) ||
        leaders_.contains(process.group)) {
      return true;
    }
    return family_.orphans && process.parent == self_ && process.session != own_.session;
  }

  bool IsMarked(const ProcessFacts& process) {
    // A process cannot enter an existing session: descendants of workers are never in this
    // process's session.
    if (chosen_.contains(process.pid) || spared_.contains(process.pid) || process.IsDead() ||
        process.session == own_.session || process.started < own_.started) {
      return false;
    }
    if (process.state == 'D') {
      is_unsure_ = true;
      return false;
    }
    return CarriesMark(
        ReadUpTo(Concat("/proc/", process.pid, "/environ"), kEnvironmentBytesMax).value_or(""),
        family_.marks);
  }

  void Choose(const ProcessFacts& process) {
    if (!spared_.contains(process.pid)) chosen_.insert(process.pid);
  }

  void ChooseDescendants() {
    for (size_t before = 0; before != chosen_.size();) {
      before = chosen_.size();
      for (const ProcessFacts& process : all_) {
        if (chosen_.contains(process.parent)) Choose(process);
      }
    }
  }

  const ProcessFamily& family_;
  std::unordered_set<pid_t> leaders_;
  std::unordered_set<pid_t> spared_;
  const pid_t self_;
  const std::vector<ProcessFacts> all_;
  const ProcessFacts own_ = FactsOf(self_).value_or(ProcessFacts{});
  std::unordered_set<pid_t> chosen_;
  bool is_unsure_ = false;
};

/// Stops all members, and the processes that they start during this, until no new one is found.
/// Returns the members, and whether the search is unsure.
std::pair<std::vector<ProcessFacts>, bool> Freeze(const ProcessFamily& family,
                                                  SteadyClock::time_point give_up) {
  std::set<std::pair<pid_t, uint64_t>> stopped;
  while (true) {
    FamilySearch search(family);
    std::vector<ProcessFacts> found = search.Run();
    bool found_more = false;
    for (const ProcessFacts& process : found) {
      if (!stopped.emplace(process.pid, process.started).second) continue;
      SignalProcess(process, SIGSTOP);
      found_more = true;
    }
    if (!found_more || SteadyClock::now() >= give_up) return {std::move(found), search.is_unsure()};
  }
}

bool EndAll(const ProcessFamily& family, SteadyClock::time_point give_up) {
  const SteadyClock::time_point enough = std::min(give_up, SteadyClock::now() + kUnsureMax);
  // A process that was found as a child is not found again once its parent is dead, and may not
  // have ended yet.
  std::map<pid_t, uint64_t> killed;  // by pid: when it was started
  for (auto pause = 1ms;; pause = std::min(pause * 2, 20ms)) {
    const auto [found, is_unsure] = Freeze(family, give_up);
    for (const ProcessFacts& process : found) {
      SignalProcess(process, SIGKILL);
      killed[process.pid] = process.started;
    }
    std::erase_if(killed, [](const auto& process) {
      const std::optional<ProcessFacts> now = FactsOf(process.first);
      return !now || now->started != process.second || now->IsDead();
    });
    const SteadyClock::time_point now = SteadyClock::now();
    if (found.empty() && killed.empty() && (!is_unsure || now >= enough)) return true;
    if (now >= give_up) return false;
    poll(nullptr, 0, static_cast<int>(pause.count()));  // a signal may shorten it: harmless
  }
}

}  // namespace

std::optional<ProcessFacts> FactsOf(pid_t pid) {
  return ParseStat(pid, ReadUpTo(Concat("/proc/", pid, "/stat"), 4096).value_or(""));
}

std::vector<ProcessFacts> AllProcesses() {
  std::vector<ProcessFacts> all;
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir("/proc"), &closedir);
  if (folder == nullptr) return all;
  while (const dirent* entry = readdir(folder.get())) {
    pid_t pid = 0;
    if (!ReadNumber(std::string_view(entry->d_name), pid)) continue;
    if (const std::optional<ProcessFacts> facts = FactsOf(pid)) all.push_back(*facts);
  }
  return all;
}

OwnedFd OpenProcess(pid_t pid) {
  // By its number: the header of glibc 2.36 declares pidfd_open() as if it were C++.
  return OwnedFd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
}

void SignalProcess(const ProcessFacts& process, int signal) {
  const OwnedFd handle = OpenProcess(process.pid);
  if (!handle.is_open() && errno == ESRCH) return;
  // The descriptor belongs to the current owner of the pid: check that this is still the process.
  const std::optional<ProcessFacts> now = FactsOf(process.pid);
  if (!now || now->started != process.started) return;
  if (handle.is_open()) {
    syscall(SYS_pidfd_send_signal, handle.get(), signal, nullptr, 0);
  } else {
    kill(process.pid, signal);  // out of descriptors: the pid might have been reused, but a
                                // surviving process is worse
  }
}

bool CarriesMark(std::string_view environment, const std::vector<std::string>& marks) {
  const std::string name = Concat(kMarkVariable, '=');
  for (const std::string_view entry : Split(environment, '\0')) {
    if (!entry.starts_with(name)) continue;
    for (const std::string_view item : Split(entry.substr(name.size()), ',')) {
      const auto fits = [item](const std::string& mark) {
        return mark.ends_with('.') ? item.starts_with(mark) : item == mark;
      };
      if (std::ranges::any_of(marks, fits)) return true;
    }
  }
  return false;
}

std::vector<ProcessFacts> FindFamily(const ProcessFamily& family) {
  return FamilySearch(family).Run();
}

bool EndFamily(const ProcessFamily& family, Duration limit) {
  const SteadyClock::time_point give_up = SteadyClock::now() + limit;
  for (const Leader& leader : family.leaders) {
    if (leader.pid > 1 && leader.started == 0 && !FactsOf(leader.pid)) kill(-leader.pid, SIGKILL);
  }
  // First the members that can be found without reading environments, which may take long.
  ProcessFamily related = family;
  related.marks.clear();
  const bool related_gone = EndAll(related, give_up);
  return family.marks.empty() ? related_gone : EndAll(family, give_up);
}

}  // namespace muster
