// Which process an object was made in. Its fork has the memory, but not the threads and not the say
// over connections.
#pragma once

#include <unistd.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

namespace muster::python {

/// Owns a T that is bound to its process: in a fork it may neither be used nor destroyed.
template <typename T>
class AtHome {
 public:
  AtHome(std::shared_ptr<T> object, std::string what)
      : object_(std::move(object)), what_(std::move(what)) {}
  AtHome(AtHome&&) noexcept = default;
  ~AtHome() {
    // Its destructor would wait for threads that are not here.
    if (!IsHere()) static_cast<void>(new std::shared_ptr<T>(std::move(object_)));
  }

  /// std::runtime_error in a fork.
  const std::shared_ptr<T>& operator*() const {
    if (!IsHere()) {
      throw std::runtime_error("this " + what_ + " was made in process " + std::to_string(pid_) +
                               " and cannot be used in its fork " + std::to_string(getpid()) +
                               ": make a new one after the fork");
    }
    return object_;
  }
  T* operator->() const { return (**this).get(); }

 private:
  bool IsHere() const { return getpid() == pid_; }

  std::shared_ptr<T> object_;
  std::string what_;
  pid_t pid_ = getpid();
};

}  // namespace muster::python
