// How a waiting thread is interrupted: the base of include/muster/interruption.h.
//
// The state is thread-local, the only state of the library that is not handed in: the caller of a
// public function interrupts, and the layers between it and the wait need not know. Where no
// ScopedInterruption exists, a wait costs one load more.
//
// A request is kept from the answer "yes" until InterruptedError is thrown for it: the operation
// under way may have to be cancelled first, and nothing waits meanwhile.
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

/// How long an interrupted wait goes on for a reply that is due, or for the confirmation of a
/// cancel: a peer that is alive sends it at once.
inline constexpr Duration kInterruptionGrace = 5s;

/// One ScopedInterruption.
struct InterruptionScope {
  std::function<bool()> is_asked;
  InterruptionScope* outer = nullptr;
  Instant next_check{};
  bool is_pending = false;
};

// The innermost of this thread; null if there is none, or it is masked. constinit: its uses need no
// check whether it has been initialised.
extern constinit thread_local InterruptionScope* this_threads_interruption;

inline bool CanBeInterrupted() { return this_threads_interruption != nullptr; }

/// Whether a request is pending. Does not call `is_asked`.
bool IsInterrupted();

/// Whether it is time to call `is_asked`, for callers that must release a lock first.
bool IsCheckDue(Instant now);

/// Calls `is_asked` if it is time, or in any case (`at_once`: a signal came, which may be the
/// request). Whether to stop.
bool CheckInterruption(Instant now, bool at_once = false);

/// `until`, or when to call `is_asked` again if that is earlier: how long to wait in one go.
Instant UntilNextCheck(Instant until);

/// InterruptedError is thrown: the request is done.
void CompleteInterruption();
/// The error was swallowed: the request is pending again.
void KeepInterruption();

/// Not interrupted in its lifetime: for destructors and cancellation.
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
