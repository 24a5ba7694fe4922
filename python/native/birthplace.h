// The process in which an object was made. A fork has its memory, but neither its threads nor its
// connections.
#pragma once

#include <nanobind/nanobind.h>
#include <unistd.h>

#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include "interpreter.h"

namespace muster::python {

/// Whether an object may be used in a fork of the process that made it.
enum class InFork { kRefused, kUsable };

/// Owns a T that belongs to its process. A fork may not destroy it, and may not use it if it has
/// threads or connections.
template <typename T>
class AtHome {
 public:
  AtHome(std::shared_ptr<T> object, std::string what, InFork in_fork = InFork::kRefused)
      : object_(std::move(object)), what_(std::move(what)), in_fork_(in_fork) {}
  AtHome(AtHome&&) noexcept = default;
  ~AtHome() { Drop(); }

  /// std::runtime_error in a fork.
  const std::shared_ptr<T>& operator*() const {
    if (in_fork_ == InFork::kRefused && !IsHere()) {
      throw std::runtime_error("this " + what_ + " was made in process " + std::to_string(pid_) +
                               " and cannot be used in its fork " + std::to_string(getpid()) +
                               ": make a new one after the fork");
    }
    return object_;
  }
  T* operator->() const { return (**this).get(); }

  bool IsHere() const { return getpid() == pid_; }
  InFork in_fork() const { return in_fork_; }

  /// Gives up ownership; a call that is using the object keeps it until it returns.
  void Drop() {
    if (!object_) return;
    if (!IsHere()) {
      // Its destructor would wait for threads that a fork does not have.
      static_cast<void>(new std::shared_ptr<T>(std::move(object_)));
      return;
    }
    // It may wait for its own threads, which may need Python's lock.
    const InterpreterVisit visit;
    std::optional<nanobind::gil_scoped_release> unlocked;
    if (visit && PyGILState_Check() != 0) unlocked.emplace();
    object_.reset();
  }

 private:
  std::shared_ptr<T> object_;
  std::string what_;
  InFork in_fork_;
  pid_t pid_ = getpid();
};

}  // namespace muster::python
