// RendezvousBackend: one cell that all nodes of a rendezvous read and replace. Write your own to
// keep the state of a dynamic rendezvous wherever you like.
#pragma once

#include <any>
#include <chrono>
#include <optional>
#include <string>
#include <string_view>

namespace muster {

/// The cell's content, and the token that fences the next write. A token has a meaning only for its
/// backend; an empty one means "nothing is stored".
struct StoredState {
  std::string bytes;
  std::any token;
  bool was_set = false;  ///< For SetState(): whether this is what the caller wrote.
};

/// Called by one thread at a time. Throws RendezvousConnectionError (out of reach) or
/// RendezvousStateError (the stored state cannot be read).
class RendezvousBackend {
 public:
  virtual ~RendezvousBackend() = default;
  RendezvousBackend(const RendezvousBackend&) = delete;
  RendezvousBackend& operator=(const RendezvousBackend&) = delete;

  virtual std::string Name() const = 0;

  /// nullopt: nothing is stored.
  virtual std::optional<StoredState> GetState() = 0;

  /// Writes if `token` is that of the stored state (an empty token: if nothing is stored). A token
  /// that this backend has never returned writes nothing. nullopt: nothing is stored.
  virtual std::optional<StoredState> SetState(std::string_view bytes, const std::any& token) = 0;
  std::optional<StoredState> SetState(std::string_view bytes) { return SetState(bytes, {}); }

  /// Optional, and never relied upon: wakes waiting nodes, so that they need not read the state so
  /// often. AwaitNews() blocks until Announce() was called with the same news, by any node at any
  /// time, but not for longer than `time`. Returns false immediately if this backend cannot wait.
  /// What they throw is ignored.
  virtual void Announce(std::string_view /*news*/) {}
  virtual bool AwaitNews(std::string_view /*news*/, std::chrono::milliseconds /*time*/) {
    return false;
  }

 protected:
  RendezvousBackend() = default;
};

}  // namespace muster
