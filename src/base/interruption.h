// How a waiting thread is interrupted: the base of include/muster/interruption.h.
//
// The state is thread-local, the only state of the library that is not passed as an argument: the
// caller of a public function interrupts, and the layers between it and the wait need no code for
// it. Without a ScopedInterruption, a wait costs one additional load.
//
// After `is_asked` has returned true, the request stays pending until InterruptedError is thrown
// for it: the current operation may have to be cancelled first. Until then every wait ends at once.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include "base/result.h"
#include "base/time.h"

namespace muster {

/// `is_asked` is called at most this often, and at least this often while a thread waits.
inline constexpr Duration kCheckInterval = 50ms;

/// How long an interrupted call still waits for a reply that is due, or for the confirmation of a
/// cancel: a live peer sends it immediately.
inline constexpr Duration kInterruptionGrace = 5s;

/// One ScopedInterruption.
struct InterruptionScope {
  std::function<bool()> is_asked;
  InterruptionScope* outer = nullptr;
  Instant next_check{};
  bool is_pending = false;
};

// The innermost scope of this thread; null if there is none, or if it is masked. constinit: no use
// has to check whether it has been initialised.
extern constinit thread_local InterruptionScope* this_threads_interruption;

inline bool CanBeInterrupted() { return this_threads_interruption != nullptr; }

/// Whether a request is pending. Does not call `is_asked`.
bool IsInterrupted();

/// Whether a call of `is_asked` is due, for callers that must release a lock first.
bool IsCheckDue(Instant now);

/// Calls `is_asked` if it is due, or always with `at_once` (a signal arrived, which may be the
/// request). Returns whether to stop.
bool CheckInterruption(Instant now, bool at_once = false);

/// The earlier of `until` and the next call of `is_asked`: the end of one uninterrupted wait.
Instant UntilNextCheck(Instant until);

/// InterruptedError is thrown: the request is done.
void CompleteInterruption();
/// The error was swallowed: the request is pending again.
void KeepInterruption();

/// This thread is not interrupted while it lives: for destructors and cancellation.
class ScopedUninterrupted {
 public:
  ScopedUninterrupted() : before_(std::exchange(this_threads_interruption, nullptr)) {}
  ~ScopedUninterrupted() { this_threads_interruption = before_; }
  ScopedUninterrupted(const ScopedUninterrupted&) = delete;
  ScopedUninterrupted& operator=(const ScopedUninterrupted&) = delete;

 private:
  InterruptionScope* const before_;
};

/// "interrupted after 1.2 s", for messages.
std::string InterruptedAfter(Instant began, Instant now);

/// kInterrupted: "interrupted after 1.2 s while waiting for key 'k'".
Error Interrupted(Instant began, Instant now, std::string_view waiting_for);

}  // namespace muster
