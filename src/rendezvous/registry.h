// RendezvousHandlerRegistry: the creators of handlers by the name of their backend.
#pragma once

#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "muster/rendezvous_registry.h"

namespace muster {

/// Any thread.
class RendezvousHandlerRegistry {
 public:
  /// std::invalid_argument if the name is empty or belongs to another creator. Registering the same
  /// plain function again changes nothing; two function objects are never the same.
  void Register(std::string_view backend, RendezvousHandlerCreator creator);

  /// Like Register(), but also replaces a built-in backend that always fails because an optional
  /// component is missing: for the use of that component.
  void Supply(std::string_view backend, RendezvousHandlerCreator creator);

  /// Calls the creator registered for parameters.backend with these parameters.
  /// std::invalid_argument if there is none; std::runtime_error if the handler reports another
  /// backend.
  RendezvousHandlerPtr CreateHandler(const RendezvousParameters& parameters) const;

  /// In alphabetical order.
  std::vector<std::string> Names() const;

 private:
  mutable std::mutex mutex_;
  std::map<std::string, RendezvousHandlerCreator, std::less<>> creators_;
};

/// The registry of this process.
RendezvousHandlerRegistry& DefaultRendezvousRegistry();

}  // namespace muster
