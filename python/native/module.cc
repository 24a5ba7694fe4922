#include <cstdlib>

#include "bindings.h"
#include "etcd_plugin.h"

NB_MODULE(_native, module) {
  using namespace muster::python;
  module.doc() = "The native core of muster; its names are found in muster and muster.rendezvous.";
  // Objects that a daemon thread holds when Python ends are not leaks of ours, but would be
  // reported as leaks.
  nb::set_leak_warnings(std::getenv("MUSTER_TELL_LEAKS") != nullptr);
  module.attr("__version__") = MUSTER_VERSION;
  BindErrors(module);
  BindNetwork(module);
  BindStores(module);
  BindRendezvous(module);
  module.def(
      "load_etcd", [] { LoadEtcd(); },
      "Registers the backends of etcd; called automatically where needed.");
}
