// A mutex for critical sections of a microsecond: a thread that finds it locked spins a few times
// before it sleeps.
#pragma once

#include <mutex>

namespace muster {

/// Sleeping and being woken costs two system calls, several times as long as the holder still
/// needs.
class SpinningMutex {
 public:
  void lock() {
    for (int i = 0; i < kLooks; ++i) {
      if (mutex_.try_lock()) return;
#if defined(__x86_64__) || defined(__i386__)
      __builtin_ia32_pause();
#endif
    }
    mutex_.lock();  // the holder was preempted: let it run
  }
  bool try_lock() { return mutex_.try_lock(); }
  void unlock() { mutex_.unlock(); }

 private:
  static constexpr int kLooks = 100;

  std::mutex mutex_;
};

}  // namespace muster
