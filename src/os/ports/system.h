// The environment of a handler: time, threads, network and process id, of a real process or of a
// simulated one.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/time.h"
#include "os/ports/clock.h"
#include "os/ports/dialer.h"
#include "os/ports/loop.h"
#include "os/ports/transport.h"

namespace muster {

/// A mutex with a condition variable. For std::unique_lock.
class Monitor {
 public:
  virtual ~Monitor() = default;

  virtual void lock() = 0;
  virtual void unlock() = 0;
  /// Releases the lock until NotifyAll(), or until then. May return earlier, for example when the
  /// thread is interrupted (base/interruption.h).
  virtual void WaitUntil(Instant until) = 0;
  virtual void NotifyAll() = 0;
};

/// A thread. Destroying it waits for its end.
class Thread {
 public:
  virtual ~Thread() = default;
};

/// A loop on a thread of its own.
class LoopThread {
 public:
  virtual ~LoopThread() = default;

  virtual Loop& loop() = 0;
  virtual Connector& connector() = 0;
  /// Runs `work` on the loop and waits for it. Not from the loop itself.
  virtual void RunAndWait(const std::function<void()>& work) = 0;
};

/// A port that no other process can take, for a store that may be served there later.
class ReservedPort {
 public:
  virtual ~ReservedPort() = default;

  virtual uint16_t port() const = 0;
  /// Serves an empty store from now on, until destroyed or called again. Connections to the one
  /// before are closed.
  virtual void Serve() = 0;
  /// Releases the port for another process.
  virtual void Free() = 0;
};

class System {
 public:
  virtual ~System() = default;

  virtual Clock& clock() = 0;
  virtual Dialer& dialer() = 0;
  /// A simulated process may be dead already: code that still runs in it ends when it sees this.
  virtual bool has_ended() const { return false; }
  virtual uint32_t process_id() const = 0;
  /// Distinguishes the nodes of one process.
  virtual int64_t NextNodeId() = 0;
  /// Another number at each call. In a real process it is unpredictable.
  virtual uint64_t Seed() = 0;

  virtual std::unique_ptr<Monitor> MakeMonitor() = 0;
  /// Calls `tick` on a thread of its own until destroyed, which waits for a running call; the pause
  /// between two calls is the period.
  virtual std::unique_ptr<Timer> CallEvery(std::string name, std::chrono::milliseconds period,
                                           std::function<void()> tick) = 0;
  virtual std::unique_ptr<Thread> StartThread(std::function<void()> body) = 0;
  /// StoreError, NetworkError: no thread or descriptor is left.
  virtual std::unique_ptr<LoopThread> StartLoop() = 0;
  virtual std::unique_ptr<ReservedPort> ReservePort() = 0;
};

/// This process. Its only state is the number of nodes made.
System& ThisProcess();

}  // namespace muster
