// A RendezvousBackend for the driver: exceptions become values, and are stored so that the handler
// can throw the same exceptions to its caller.
#pragma once

#include <any>
#include <exception>
#include <optional>
#include <string_view>

#include "base/result.h"
#include "base/time.h"
#include "muster/rendezvous_backend.h"

namespace muster {

/// Blocking, one call at a time. Errors: kUnavailable (out of reach), kProtocol (the stored state
/// cannot be read), kInterrupted.
class BackendPort {
 public:
  explicit BackendPort(RendezvousBackend& backend) : backend_(backend) {}

  /// nullopt: nothing is stored.
  Result<std::optional<StoredState>> Get();
  /// Writes if `token` still matches the stored state. nullopt: nothing is stored.
  Result<std::optional<StoredState>> Set(std::string_view bytes, const std::any& token);

  /// Wakes every node that awaits these news, now and later. Best effort: nothing depends on it.
  void Announce(std::string_view news);
  /// Blocks until the news were announced, but not for longer than `time`. Returns false
  /// immediately if this backend cannot wait: the caller sleeps instead.
  bool Await(std::string_view news, Duration time);

  /// The exception of the last error, if the backend threw one.
  std::exception_ptr TakeException();

 private:
  template <typename Call>
  Result<std::optional<StoredState>> Try(const Call& call);

  RendezvousBackend& backend_;
  std::exception_ptr thrown_;
};

}  // namespace muster
