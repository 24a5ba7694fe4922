// PeriodicTimer: calls a function periodically on a thread of its own.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

namespace muster {

/// One owner. The interval is the pause between the end of a call and the start of the next; the
/// first call comes after one. What the function throws is swallowed and the timer goes on
/// (PyTorch's ends there, silently): catch it in the function to learn of it.
class PeriodicTimer {
 public:
  /// std::invalid_argument if the interval is negative or there is no function.
  PeriodicTimer(std::chrono::milliseconds interval, std::function<void()> tick);
  /// Like Cancel(), but also allowed inside the call, which is then the last.
  ~PeriodicTimer();
  PeriodicTimer(const PeriodicTimer&) = delete;
  PeriodicTimer& operator=(const PeriodicTimer&) = delete;

  /// Names the thread, "PeriodicTimer" otherwise; Linux shows the first 15 bytes. std::logic_error
  /// after Start().
  void SetName(std::string name);
  /// std::logic_error if it was started before, even if cancelled since.
  void Start();
  /// Waits for a running call. May be repeated; no effect before Start(). std::logic_error from
  /// inside the call.
  void Cancel();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace muster
