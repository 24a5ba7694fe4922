// Ending a call that waits: for Ctrl-C, a shutdown, or anything more urgent than the answer.
#pragma once

#include <functional>
#include <memory>

#include "muster/error.h"

namespace muster {

struct InterruptionScope;

/// While it lives, blocking calls of this thread, and of no other, can be interrupted: while they
/// wait they call `is_asked` ten to twenty times a second, and at once when a signal has ended one
/// of their system calls. When it returns true they end with InterruptedError.
///
///   std::atomic<bool> stop = false;  // set by another thread, or a signal handler
///   const muster::ScopedInterruption until_stopped([&] { return stop.load(); });
///   const std::string value = store.Get("key");
///
/// What was interrupted remains usable: a store and a handler can be used again, a node that waited
/// for a round has given up its place as after a timeout. That may take some seconds if the other
/// side does not answer; a TcpStore whose server does not answer loses its connection, and reports
/// so.
///
/// If the answer arrives meanwhile, the call returns it, so that no element of a queue is lost. The
/// interruption is then kept for the next wait; is_pending() shows it. One interruption causes one
/// InterruptedError: after that, `is_asked` is called again.
///
/// Objects of one thread may be nested; all of them are asked, the innermost first. Destroyed in
/// the reverse order, on the thread that made them: an object on the stack.
class ScopedInterruption {
 public:
  /// `is_asked` is called in this thread; it must not throw, and not call what is being waited in.
  explicit ScopedInterruption(std::function<bool()> is_asked);
  ~ScopedInterruption();
  ScopedInterruption(const ScopedInterruption&) = delete;
  ScopedInterruption& operator=(const ScopedInterruption&) = delete;

  /// `is_asked` has returned true, and no InterruptedError has been thrown for that yet.
  bool is_pending() const;

 private:
  const std::unique_ptr<InterruptionScope> scope_;
};

}  // namespace muster
