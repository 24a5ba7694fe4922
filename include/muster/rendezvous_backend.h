// RendezvousBackend: one cell that all nodes of a rendezvous read and replace. Write your own to
// keep the state of a dynamic rendezvous wherever you like.
#pragma once

#include <any>
#include <chrono>
#include <optional>
#include <string>
#include <string_view>

namespace muster {

/// The cell's content, and the token that fences the next write. A token means something to its
/// backend only; an empty one stands for "nothing is stored".
struct StoredState {
  std::string bytes;
  std::any token;
  bool was_set = false;  ///< Of SetState(): whether this is what the caller wrote.
};

/// Called by one thread at a time. Throws RendezvousConnectionError (out of reach) or
/// RendezvousStateError (what is stored cannot be read).
class RendezvousBackend {
 public:
  virtual ~RendezvousBackend() = default;
  RendezvousBackend(const RendezvousBackend&) = delete;
  RendezvousBackend& operator=(const RendezvousBackend&) = delete;

  virtual std::string Name() const = 0;

  /// nullopt: nothing is stored.
  virtual std::optional<StoredState> GetState() = 0;

  /// Writes if `token` is the one of what is stored (an empty token: if nothing is stored). A token
  /// that this backend never gave out writes nothing. nullopt: nothing is stored after all.
  virtual std::optional<StoredState> SetState(std::string_view bytes, const std::any& token) = 0;
  std::optional<StoredState> SetState(std::string_view bytes) { return SetState(bytes, {}); }

  /// Optional, and never relied upon: wakes waiting nodes, so that they need not look so often.
  /// AwaitNews() blocks until Announce() was called with the same news, by any node at any time,
  /// but not for longer than `time`; false, at once, if this backend cannot.
  virtual void Announce(std::string_view news) { static_cast<void>(news); }
  virtual bool AwaitNews(std::string_view news, std::chrono::milliseconds time) {
    static_cast<void>(news);
    static_cast<void>(time);
    return false;
  }

 protected:
  RendezvousBackend() = default;
};

}  // namespace muster
