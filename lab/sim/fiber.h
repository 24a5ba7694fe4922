// Code with a stack of its own that runs until it waits, and continues when it is resumed: a thread
// of a simulated process. All fibers of a world share one real thread.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

namespace muster::sim {

class Fiber {
 public:
  explicit Fiber(std::function<void()> body);
  /// Only a fiber that is done, or was never resumed, may be destroyed.
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  /// Runs the body until it yields or ends. Not from inside a fiber.
  void Resume();
  bool done() const;

  /// The fiber that runs on this thread; null outside all fibers.
  static Fiber* Current();
  /// Returns to the code that resumed the current fiber.
  static void Yield();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace muster::sim
