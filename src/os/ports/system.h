// What a handler finds around it: the time, threads, the network and a name of its own. A real
// process has all that; so has a simulated one, and the handler cannot tell.
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

/// A lock, and news about what it guards. For std::unique_lock.
class Monitor {
 public:
  virtual ~Monitor() = default;

  virtual void lock() = 0;
  virtual void unlock() = 0;
  /// Gives the lock back until there is news, or until then; or for no reason at all, of which one
  /// is that the thread is interrupted (base/interruption.h).
  virtual void WaitUntil(Instant until) = 0;
  virtual void NotifyAll() = 0;
};

/// Something that runs beside everything else. Destroying it waits for its end.
class Thread {
 public:
  virtual ~Thread() = default;
};

/// A loop that turns by itself, on a thread of its own.
class LoopThread {
 public:
  virtual ~LoopThread() = default;

  virtual Loop& loop() = 0;
  virtual Connector& connector() = 0;
  /// Runs `work` on the loop and waits for it. Not from the loop itself.
  virtual void RunAndWait(const std::function<void()>& work) = 0;
};

/// A port that nobody else can take, for a store that may be served there one day.
class ReservedPort {
 public:
  virtual ~ReservedPort() = default;

  virtual uint16_t port() const = 0;
  /// A store with nothing in it, from now on, until destroyed or called again. Who was connected to
  /// the one before is cut off.
  virtual void Serve() = 0;
  /// For another process to serve there.
  virtual void Free() = 0;
};

class System {
 public:
  virtual ~System() = default;

  virtual Clock& clock() = 0;
  virtual Dialer& dialer() = 0;
  /// A simulated process may be dead already; whatever still runs in it ends when it sees this.
  virtual bool has_ended() const { return false; }
  virtual uint32_t process_id() const = 0;
  /// Tells the nodes of one process apart.
  virtual int64_t NextNodeId() = 0;
  /// Different for whatever starts at another time, or elsewhere. No secret.
  virtual uint64_t Seed() = 0;

  virtual std::unique_ptr<Monitor> MakeMonitor() = 0;
  /// Calls `tick` on a thread of its own until destroyed, which waits for a running call; the pause
  /// between two calls is the period.
  virtual std::unique_ptr<Timer> CallEvery(std::string name, std::chrono::milliseconds period,
                                           std::function<void()> tick) = 0;
  virtual std::unique_ptr<Thread> StartThread(std::function<void()> body) = 0;
  /// StoreError, NetworkError: no thread or descriptor to be had.
  virtual std::unique_ptr<LoopThread> StartLoop() = 0;
  virtual std::unique_ptr<ReservedPort> ReservePort() = 0;
};

/// This process: there is one, and nothing in it changes but the number of nodes made.
System& ThisProcess();

}  // namespace muster
