// One cell that all nodes of a rendezvous read and replace: what the shared-document driver needs.
#pragma once

#include <any>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "base/time.h"

namespace muster {

/// Blocking, one call at a time. Errors: kUnavailable (out of reach), kTimeout, kProtocol (what is
/// stored cannot be read).
class StateBackend {
 public:
  /// A token is the backend's own; an empty one stands for "nothing is stored".
  struct Stored {
    std::string bytes;
    std::any token;
  };
  struct Answer {
    std::string bytes;  ///< What is stored now.
    std::any token;
    bool was_set = false;  ///< Whether that is what we wrote.
  };

  virtual ~StateBackend() = default;

  /// nullopt: nothing is stored.
  virtual Result<std::optional<Stored>> Get() = 0;
  /// Writes if `token` still fences what is stored. nullopt: nothing is stored after all.
  virtual Result<std::optional<Answer>> Set(std::string_view bytes, const std::any& token) = 0;

  /// Wakes whoever awaits this piece of news, now and later. Best effort: nobody relies on it.
  virtual void Announce(std::string_view news) = 0;
  /// Blocks until the news was announced, but not for longer than `time`. False, at once, if this
  /// backend has no way to wait: the caller sleeps instead.
  virtual bool Await(std::string_view news, Duration time) = 0;
};

}  // namespace muster
