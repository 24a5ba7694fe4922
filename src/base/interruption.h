// How a thread that waits is asked to stop: what include/muster/interruption.h stands on.
//
// The one variable of ours that is not handed in: whoever wishes to interrupt a wait is the caller
// of a public function, and between it and the wait lie layers that need not know. It is the
// thread's own, so no other thread sees it. While nobody has set it, a wait costs one load more.
//
// A wish is kept from the answer "yes" until InterruptedError is thrown for it: what was under way
// may have to end in order first, and everything that would wait meanwhile does not.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include "base/result.h"
#include "base/time.h"

namespace muster {

/// Questions come at most this often, and at least this often while a thread waits.
inline constexpr Duration kQuestionInterval = 50ms;

/// For what is under way when a wait is interrupted, a reply or the confirmation of a cancel:
/// whoever is alive gives it at once, and the caller wants to go.
inline constexpr Duration kInterruptionGrace = 5s;

/// One ScopedInterruption.
struct InterruptionScope {
  std::function<bool()> is_asked;
  InterruptionScope* outer = nullptr;
  Instant next_question{};
  bool is_pending = false;
};

// The innermost of this thread; null if there is none, or it is masked. constinit: no check whether
// it has been initialised stands before each use.
extern constinit thread_local InterruptionScope* this_threads_interruption;

inline bool CanBeInterrupted() { return this_threads_interruption != nullptr; }

/// Whether there is a wish that has not been fulfilled. Asks nobody.
bool IsInterrupted();

/// Whether it is time to ask. Does not ask: for those who must let go of a lock first.
bool IsQuestionDue(Instant now);

/// Asks if it is time, or in any case (`at_once`: a signal came, which may be the wish). Whether to
/// stop.
bool AskWhetherInterrupted(Instant now, bool at_once = false);

/// `until`, or when to ask again if that is earlier: how long to wait in one go.
Instant UntilNextQuestion(Instant until);

/// The wish is fulfilled: InterruptedError is on its way.
void FulfilInterruption();
/// It is not after all: the error went no further.
void KeepInterruption();

/// Not interrupted in its lifetime: destructors, and what puts things in order.
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
