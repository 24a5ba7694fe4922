// One cell that all nodes of a rendezvous read and replace: what the shared-document driver needs.
#pragma once

#include <any>
#include <exception>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "base/time.h"
#include "muster/rendezvous_backend.h"

namespace muster {

/// Blocking, one call at a time. Errors: kUnavailable (out of reach), kTimeout, kProtocol (what is
/// stored cannot be read), kInterrupted.
class StateBackend {
 public:
  virtual ~StateBackend() = default;

  virtual std::string Name() const { return ""; }

  /// nullopt: nothing is stored.
  virtual Result<std::optional<StoredState>> Get() = 0;
  /// Writes if `token` still fences what is stored. nullopt: nothing is stored after all.
  virtual Result<std::optional<StoredState>> Set(std::string_view bytes, const std::any& token) = 0;

  /// Wakes every node that awaits this piece of news, now and later. Best effort: nothing depends
  /// on it.
  virtual void Announce(std::string_view news) = 0;
  /// Blocks until the news was announced, but not for longer than `time`. False, at once, if this
  /// backend has no way to wait: the caller sleeps instead.
  virtual bool Await(std::string_view news, Duration time) = 0;

  /// The exception behind the last error, where a user's own backend threw one.
  virtual std::exception_ptr TakeException() { return nullptr; }
};

}  // namespace muster
