// PeriodicTimer: a function, called again and again on a thread of its own.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

namespace muster {

/// One owner. The pause between the end of a call and the start of the next is the interval; the
/// first call comes after one. What the function throws is swallowed and the timer goes on
/// (PyTorch's ends there, silently): catch it in the function to learn of it.
class PeriodicTimer {
 public:
  /// std::invalid_argument if the interval is negative or there is no function.
  PeriodicTimer(std::chrono::milliseconds interval, std::function<void()> tick);
  /// Like Cancel(); inside the call itself it does not wait, and the call is the last.
  ~PeriodicTimer();
  PeriodicTimer(const PeriodicTimer&) = delete;
  PeriodicTimer& operator=(const PeriodicTimer&) = delete;

  /// Names the thread, "PeriodicTimer" otherwise; Linux shows the first 15 bytes. std::logic_error
  /// after Start().
  void SetName(std::string name);
  /// std::logic_error if it was started before, even if cancelled since.
  void Start();
  /// Waits for a running call. As often as you like; nothing before Start(). std::logic_error from
  /// inside the call itself.
  void Cancel();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace muster
