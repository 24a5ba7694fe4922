#include "sim/crash_report.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <memory>
#include <string>

#include "base/assert.h"
#include "base/text.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#include <sanitizer/common_interface_defs.h>
#endif

namespace muster::sim {

namespace {

constexpr size_t kCommandMax = 400;
constexpr size_t kStackBytes = 64 * 1024;
constexpr std::array kDeaths = {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL};

// Written beforehand: a dying thread can neither allocate nor format. The text of the last run is
// valid until that of the next one is complete.
struct Words {
  char text[512];
  size_t size;
};
constinit thread_local Words words[2]{};
constinit thread_local volatile sig_atomic_t current = 0;
// The first text, for threads that have no run yet.
constinit Words first_words{};

std::array<struct sigaction, kDeaths.size()> before{};

void Speak() {
  Words& own = words[current];
  const Words& last = own.size == 0 ? first_words : own;
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, last.text, last.size);
  own.size = first_words.size = 0;  // once, although a signal and a sanitizer may both request it
}

void OnDeath(int signal, siginfo_t* info, void*) {
  Speak();
  const auto which = static_cast<size_t>(std::ranges::find(kDeaths, signal) - kDeaths.begin());
  sigaction(signal, &before[which], nullptr);
  // A bad access happens again as soon as this returns. A signal that was sent has to be sent
  // again.
  if (info->si_code <= 0) raise(signal);
}

// A thread whose stack has overflowed needs another stack for its report. If there is one already,
// it is a sanitizer's, which must keep it.
class SpareStack {
 public:
  SpareStack() {
    stack_t there{};
    sigaltstack(nullptr, &there);
    if ((there.ss_flags & SS_DISABLE) == 0) return;
    memory_ = std::make_unique<char[]>(kStackBytes);
    const stack_t ours{.ss_sp = memory_.get(), .ss_flags = 0, .ss_size = kStackBytes};
    MUSTER_ASSERT(sigaltstack(&ours, nullptr) == 0);
  }
  ~SpareStack() {
    if (memory_ == nullptr) return;
    const stack_t none{.ss_sp = nullptr, .ss_flags = SS_DISABLE, .ss_size = 0};
    sigaltstack(&none, nullptr);
  }
  SpareStack(const SpareStack&) = delete;
  SpareStack& operator=(const SpareStack&) = delete;

 private:
  std::unique_ptr<char[]> memory_;
};

}  // namespace

void InstallCrashReport() {
  struct sigaction action {};
  action.sa_sigaction = OnDeath;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigemptyset(&action.sa_mask);
  for (size_t i = 0; i < kDeaths.size(); ++i)
    MUSTER_ASSERT(sigaction(kDeaths[i], &action, &before[i]) == 0);
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  __sanitizer_set_death_callback(Speak);
#endif
}

void SetCrashReport(std::string_view command) {
  thread_local const SpareStack spare_stack;
  const std::string text = Concat("muster: died in the run that this repeats:\n  ",
                                  command.substr(0, kCommandMax), "\n");
  Words& next = words[1 - current];
  static_assert(kCommandMax + 100 < sizeof next.text);
  std::memcpy(next.text, text.data(), text.size());
  next.size = text.size();
  std::atomic_signal_fence(std::memory_order_seq_cst);
  current = 1 - current;
  if (first_words.size == 0) first_words = next;  // before there are other threads
}

}  // namespace muster::sim
