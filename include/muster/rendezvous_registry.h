// RendezvousHandlerRegistry: handlers by the name of their backend.
#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "muster/rendezvous_handler.h"
#include "muster/rendezvous_parameters.h"

namespace muster {

using RendezvousHandlerCreator = std::function<RendezvousHandlerPtr(const RendezvousParameters&)>;

/// Any thread.
class RendezvousHandlerRegistry {
 public:
  /// std::invalid_argument if the name is empty or taken by another creator. Registering the same
  /// plain function again changes nothing; two function objects are never the same.
  void Register(std::string_view backend, RendezvousHandlerCreator creator);

  /// Register(), but also in place of a built-in backend that refuses to be made because an
  /// optional component is missing: for that component, when it is there.
  void Supply(std::string_view backend, RendezvousHandlerCreator creator);

  /// Calls the creator registered for parameters.backend with these very parameters.
  /// std::invalid_argument if there is none; std::runtime_error if the handler says it is another
  /// backend's.
  RendezvousHandlerPtr CreateHandler(const RendezvousParameters& parameters) const;

  /// In alphabetical order.
  std::vector<std::string> Names() const;

 private:
  mutable std::mutex mutex_;
  std::map<std::string, RendezvousHandlerCreator, std::less<>> creators_;
};

/// The registry of this process. It knows "muster", "c10d" and "static"; "etcd" and "etcd-v2" are
/// taken, and say what is missing until EnableEtcd() (muster/etcd_rendezvous.h) was called.
RendezvousHandlerRegistry& DefaultRendezvousRegistry();

/// DefaultRendezvousRegistry().CreateHandler().
RendezvousHandlerPtr GetRendezvousHandler(const RendezvousParameters& parameters);

}  // namespace muster
