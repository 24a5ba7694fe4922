// A caller that ends its own wait when the test says so.
#pragma once

#include <atomic>
#include <functional>

#include "muster/interruption.h"

namespace muster::test {

/// Any thread.
class InterruptionRequest {
 public:
  /// For a ScopedInterruption.
  std::function<bool()> Check() {
    return [this] {
      ++checks_;
      return is_made_.load();
    };
  }
  /// Runs `call` in a scope of this.
  template <typename Call>
  auto Within(Call call) {
    return [this, call] {
      const ScopedInterruption scope(Check());
      return call();
    };
  }

  void Make() { is_made_ = true; }
  void Withdraw() { is_made_ = false; }
  int checks() const { return checks_; }

 private:
  std::atomic<bool> is_made_ = false;
  std::atomic<int> checks_ = 0;
};

}  // namespace muster::test
