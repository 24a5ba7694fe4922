#include "rendezvous/registry.h"

#include <memory>
#include <stdexcept>
#include <utility>

#include "base/text.h"
#include "muster/c10d_rendezvous.h"
#include "muster/coordinated_rendezvous.h"
#include "muster/rendezvous_error.h"
#include "muster/static_rendezvous.h"
#include "store/throw.h"

namespace muster {

namespace {

using PlainCreator = RendezvousHandlerPtr (*)(const RendezvousParameters&);

/// Function objects cannot be compared; plain functions are compared by their address.
bool Same(const RendezvousHandlerCreator& a, const RendezvousHandlerCreator& b) {
  const PlainCreator* const left = a.target<PlainCreator>();
  const PlainCreator* const right = b.target<PlainCreator>();
  return left != nullptr && right != nullptr && *left == *right;
}

/// The names are registered even without gRPC: the error says what is missing, and no plug-in can
/// use them for something else.
RendezvousHandlerPtr RefuseEtcd(const RendezvousParameters& parameters) {
  throw RendezvousError(Concat("Rendezvous backend '", Printable(parameters.backend),
                               "': this build has no etcd support. It has: muster, c10d, static. "
                               "A program of your own links muster::etcd and calls EnableEtcd()."));
}

std::unique_ptr<RendezvousHandlerRegistry> WithBuiltIns() {
  auto registry = std::make_unique<RendezvousHandlerRegistry>();
  registry->Register("etcd", &RefuseEtcd);
  registry->Register("etcd-v2", &RefuseEtcd);
  registry->Register("muster", PlainCreator(&CreateCoordinatedHandler));
  registry->Register("c10d", &CreateC10dHandler);
  registry->Register("static", &CreateStaticHandler);
  return registry;
}

}  // namespace

void RendezvousHandlerRegistry::Register(std::string_view backend,
                                         RendezvousHandlerCreator creator) {
  if (backend.empty()) {
    throw Invalid("Rendezvous backend to register: its name is empty. Allowed: any other text.");
  }
  if (!creator) {
    throw Invalid("Rendezvous backend '", Printable(backend),
                  "' to register: its creator is null. Allowed: a function.");
  }
  const std::lock_guard lock(mutex_);
  const auto found = creators_.find(backend);
  if (found == creators_.end()) {
    creators_.emplace(backend, std::move(creator));
  } else if (!Same(found->second, creator)) {
    throw Invalid("Rendezvous backend '", Printable(backend),
                  "' is already registered, with another creator; that one "
                  "stays. Use another name.");
  }
}

void RendezvousHandlerRegistry::Supply(std::string_view backend, RendezvousHandlerCreator creator) {
  {
    const std::lock_guard lock(mutex_);
    const auto found = creators_.find(backend);
    if (found != creators_.end() && Same(found->second, &RefuseEtcd)) creators_.erase(found);
  }
  Register(backend, std::move(creator));
}

RendezvousHandlerPtr RendezvousHandlerRegistry::CreateHandler(
    const RendezvousParameters& parameters) const {
  RendezvousHandlerCreator creator;
  {
    // Creators may take long (they connect), and may use this registry themselves.
    const std::lock_guard lock(mutex_);
    const auto found = creators_.find(parameters.backend);
    if (found != creators_.end()) creator = found->second;
  }
  if (!creator) {
    const std::vector<std::string> names = Names();
    throw Invalid("Rendezvous backend '", Printable(parameters.backend),
                  "' is not registered. Registered are: ",
                  names.empty() ? "none" : ListOf(names, names.size()),
                  ". Did you forget to call Register()?");
  }
  RendezvousHandlerPtr handler = creator(parameters);
  if (handler == nullptr) {
    throw std::runtime_error(Concat("The creator registered for rendezvous backend '",
                                    Printable(parameters.backend), "' returned no handler."));
  }
  if (const std::string made = handler->GetBackend(); made != parameters.backend) {
    throw std::runtime_error(Concat("The creator registered for rendezvous backend '",
                                    Printable(parameters.backend), "' made a handler of backend '",
                                    Printable(made), "'."));
  }
  return handler;
}

std::vector<std::string> RendezvousHandlerRegistry::Names() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> names;
  names.reserve(creators_.size());
  for (const auto& [name, creator] : creators_) names.push_back(name);
  return names;
}

RendezvousHandlerRegistry& DefaultRendezvousRegistry() {
  // Never destroyed: threads may still create handlers while the process ends.
  static RendezvousHandlerRegistry& registry = *WithBuiltIns().release();
  return registry;
}

void RegisterRendezvousBackend(std::string_view backend, RendezvousHandlerCreator creator) {
  DefaultRendezvousRegistry().Register(backend, std::move(creator));
}

std::vector<std::string> RendezvousBackends() { return DefaultRendezvousRegistry().Names(); }

RendezvousHandlerPtr GetRendezvousHandler(const RendezvousParameters& parameters) {
  return DefaultRendezvousRegistry().CreateHandler(parameters);
}

}  // namespace muster
