// Ending a call that waits: on Ctrl-C or shutdown, for example.
#pragma once

#include <functional>
#include <memory>

#include "muster/error.h"

namespace muster {

struct InterruptionScope;

/// While it lives, blocking calls of this thread, and of no other, can be interrupted: while they
/// wait, they call `is_asked` ten to twenty times a second, and immediately after a signal has
/// ended one of their system calls. After it has returned true they end with InterruptedError.
///
///   std::atomic<bool> stop = false;  // set by another thread, or a signal handler
///   const muster::ScopedInterruption until_stopped([&] { return stop.load(); });
///   const std::string value = store.Get("key");
///
/// Stores and handlers can be used again afterwards; a node that waited for a round has left it, as
/// after a timeout. The cancellation may take some seconds if the other side does not answer; a
/// TcpStore whose server does not answer closes its connection, and its error says so.
///
/// If the reply still arrives, the call returns it, so that no element of a queue is lost. The
/// request is then kept for the next wait (is_pending()). One request causes one InterruptedError:
/// after that, `is_asked` is called again.
///
/// Objects of one thread may be nested; all of them are called, the innermost first. They are
/// destroyed in reverse order, on the thread that created them: keep them on the stack.
class ScopedInterruption {
 public:
  /// `is_asked` is called on this thread; it must not throw, and must not use the object that
  /// waits.
  explicit ScopedInterruption(std::function<bool()> is_asked);
  ~ScopedInterruption();

  /// `is_asked` has returned true, and no InterruptedError has been thrown for that yet.
  bool is_pending() const;

 private:
  const std::unique_ptr<InterruptionScope> scope_;
};

}  // namespace muster
