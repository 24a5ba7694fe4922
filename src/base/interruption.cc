#include "base/interruption.h"

#include <algorithm>

#include "base/text.h"

namespace muster {

constinit thread_local InterruptionScope* this_threads_interruption = nullptr;

bool IsInterrupted() {
  for (const auto* scope = this_threads_interruption; scope != nullptr; scope = scope->outer) {
    if (scope->is_pending) return true;
  }
  return false;
}

bool IsCheckDue(Instant now) {
  bool is_due = false;
  for (auto* scope = this_threads_interruption; scope != nullptr; scope = scope->outer) {
    // Most calls end before a check is due: the first one is not made at once.
    if (scope->next_check == Instant{}) scope->next_check = now + kCheckInterval;
    is_due = is_due || scope->next_check <= now;
  }
  return is_due;
}

bool CheckInterruption(Instant now, bool at_once) {
  InterruptionScope* const innermost = this_threads_interruption;
  if (innermost == nullptr) return false;
  if (IsInterrupted()) return true;
  if (!IsCheckDue(now) && !at_once) return false;
  // `is_asked` may call this library, and wait in that call.
  const ScopedUninterrupted meanwhile;
  for (auto* scope = innermost; scope != nullptr; scope = scope->outer) {
    if (scope->next_check > now && !at_once) continue;
    scope->next_check = now + kCheckInterval;
    // noexcept: an exception would have to pass through code that cancels and cleans up.
    scope->is_pending = [&]() noexcept { return scope->is_asked(); }();
    if (scope->is_pending) return true;
  }
  return false;
}

Instant UntilNextCheck(Instant until) {
  for (const auto* scope = this_threads_interruption; scope != nullptr; scope = scope->outer)
    until = std::min(until, scope->next_check);
  return until;
}

void CompleteInterruption() {
  for (auto* scope = this_threads_interruption; scope != nullptr; scope = scope->outer)
    scope->is_pending = false;
}

void KeepInterruption() {
  if (this_threads_interruption != nullptr) this_threads_interruption->is_pending = true;
}

std::string InterruptedAfter(Instant began, Instant now) {
  const int64_t tenths = Milliseconds(now - began) / 100;
  return Concat("interrupted after ", tenths / 10, ".", tenths % 10, " s");
}

Error Interrupted(Instant began, Instant now, std::string_view waiting_for) {
  return MakeError(Code::kInterrupted, InterruptedAfter(began, now), " while ", waiting_for);
}

}  // namespace muster
