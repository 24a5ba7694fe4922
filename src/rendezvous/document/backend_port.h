// A RendezvousBackend as the driver uses it: exceptions become values, and are kept so that the
// caller of the handler gets the very same ones.
#pragma once

#include <any>
#include <exception>
#include <optional>
#include <string_view>

#include "base/result.h"
#include "base/time.h"
#include "muster/rendezvous_backend.h"

namespace muster {

/// Blocking, one call at a time. Errors: kUnavailable (out of reach), kProtocol (what is stored
/// cannot be read), kInterrupted.
class BackendPort {
 public:
  explicit BackendPort(RendezvousBackend& backend) : backend_(backend) {}

  /// nullopt: nothing is stored.
  Result<std::optional<StoredState>> Get();
  /// Writes if `token` still fences what is stored. nullopt: nothing is stored after all.
  Result<std::optional<StoredState>> Set(std::string_view bytes, const std::any& token);

  /// Wakes every node that awaits this piece of news, now and later. Best effort: nothing depends
  /// on it.
  void Announce(std::string_view news);
  /// Blocks until the news was announced, but not for longer than `time`. False, at once, if this
  /// backend cannot wait: the caller sleeps instead.
  bool Await(std::string_view news, Duration time);

  /// The exception behind the last error, where the backend threw one.
  std::exception_ptr TakeException();

 private:
  template <typename Call>
  Result<std::optional<StoredState>> Try(const Call& call);

  RendezvousBackend& backend_;
  std::exception_ptr thrown_;
};

}  // namespace muster
